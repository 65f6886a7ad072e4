package httpapi

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/signalbox-dev/signalbox/server/servertest"
)

// gate is a proxy before a gateway. The case that runs switches it, by requests below /gate/, and
// below /at/PLACE/gate/ what goes through a place of it.
type gate struct {
	pass *httputil.ReverseProxy

	mu    sync.Mutex
	turns map[string]turn // by place
	asked []string
}

// turn is what a gate does.
type turn struct {
	mode   string // pass, weak, away, hang, late, or answer
	answer []byte // in the mode answer, what each connection gets before it is closed
}

func newGate(t *testing.T, s *site) string {
	to, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{turns: make(map[string]turn), pass: httputil.NewSingleHostReverseProxy(to)}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	g.pass.Transport = transport
	g.pass.ErrorHandler = func(http.ResponseWriter, *http.Request, error) {} // its caller has hung up
	g.pass.ModifyResponse = func(r *http.Response) error {
		if tag := r.Header.Get("ETag"); tag != "" && g.now("").mode == "weak" {
			r.Header.Set("ETag", "W/"+strings.TrimSuffix(tag, `"`)+`-gzip"`)
		}
		return nil
	}
	srv := httptest.NewServer(g)
	t.Cleanup(srv.Close)
	return srv.URL
}

func (g *gate) now(place string) turn {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.turns[place]
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	place := ""
	if rest, ok := strings.CutPrefix(r.URL.Path, "/at/"); ok {
		place, rest, _ = strings.Cut(rest, "/")
		r.URL.Path, r.URL.RawPath = "/"+rest, ""
	}
	if mode, ok := strings.CutPrefix(r.URL.Path, "/gate/"); ok {
		g.control(w, r, place, mode)
		return
	}
	g.mu.Lock()
	g.asked = append(g.asked, r.Method+" "+r.URL.RequestURI())
	g.mu.Unlock()
	switch now := g.now(place); now.mode {
	case "away", "answer":
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_, _ = conn.Write(now.answer)
			_ = conn.Close()
		}
	case "hang":
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	case "late": // the gateway answers, and its caller learns nothing
		g.pass.ServeHTTP(httptest.NewRecorder(), r)
		<-r.Context().Done()
	default:
		g.pass.ServeHTTP(w, r)
	}
}

// control switches the gate, or says how many requests contained a text.
func (g *gate) control(w http.ResponseWriter, r *http.Request, place, mode string) {
	body, _ := io.ReadAll(r.Body)
	g.mu.Lock()
	defer g.mu.Unlock()
	if mode != "count" {
		g.turns[place] = turn{mode, body}
		return
	}
	text, _ := url.QueryUnescape(r.URL.RawQuery)
	n := 0
	for _, asked := range g.asked {
		if strings.Contains(asked, text) {
			n++
		}
	}
	_, _ = fmt.Fprint(w, n)
}

// nobody is a port on which nobody listens.
func nobody(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// runCase starts a case of testdata/cases.mjs.
func runCase(t *testing.T, name, gate string, s *site, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), "node", append([]string{"testdata/cases.mjs", "../../../client/js",
		name, gate, s.url}, args...)...)
	cmd.Stderr = os.Stderr
	return cmd
}

// TestTypeScript: the cases of the client of TypeScript that need its platform: hostile answers,
// outages, calls that are given up, names, and ends of programs.
func TestTypeScript(t *testing.T) {
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("node is missing, so the client of TypeScript is not tested: ", err)
	}
	srv := servertest.Start(t, servertest.RealTime())
	for _, name := range []string{"answers that are not a gateway's", "a release while the gateway is away",
		"a wait that is given up", "the end of a connection", "tags that a proxy makes weak", "a watch through an outage",
		"names of all kinds", "a session that is given serves one lease", "units of a limit are taken once"} {
		t.Run(name, func(t *testing.T) {
			s := openSite(t, srv)
			if out, err := runCase(t, name, newGate(t, s), s, nobody(t)).Output(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	t.Run("fifty tasks of each of two processes", func(t *testing.T) {
		folder, rounds := t.TempDir(), "2"
		if os.Getenv("SIGNALBOX_LONG") != "" {
			rounds = "20"
		}
		s, other := openSite(t, srv), openSite(t, srv)
		first := runCase(t, "fifty tasks", newGate(t, s), s, folder, rounds)
		second := runCase(t, "fifty tasks", newGate(t, other), other, folder, rounds)
		for _, cmd := range []*exec.Cmd{first, second} {
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
		}
		for _, cmd := range []*exec.Cmd{first, second} {
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("a program that forgets a lease", func(t *testing.T) {
		s := openSite(t, srv)
		out, err := runCase(t, "a program that forgets a lease", newGate(t, s), s).Output()
		if err != nil || string(out) != "main ends\n" {
			t.Errorf("it ends with %v: %s", err, out)
		}
		if n := s.ask("GET", "/v1/locks/forgotten", "", "").number("num_owners"); n != 1 {
			t.Errorf("%d hold what it forgot; it is held until its ttl is over", n)
		}
	})
	t.Run("a program that is told to end", func(t *testing.T) {
		s := openSite(t, srv)
		cmd := runCase(t, "a program that is told to end", newGate(t, s), s)
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "holds\n" {
			t.Fatalf("it says %q: %v", line, err)
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 143 {
			t.Errorf("it ends with %v", err)
		}
		if a := s.ask("GET", "/v1/locks/told", "", ""); a.doc["exists"] != false {
			t.Errorf("after its end: %s", a.body)
		}
	})
}

// TestTypeScriptModel: on virtual time, with a scripted cluster, the client does what a model says.
func TestTypeScriptModel(t *testing.T) {
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("node is missing, so the client of TypeScript is not tested: ", err)
	}
	seeds := "30"
	if os.Getenv("SIGNALBOX_LONG") != "" {
		seeds = "1000"
	}
	cmd := exec.CommandContext(t.Context(), "node", "testdata/virtual.mjs", "../../../client/js", "1", seeds)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
