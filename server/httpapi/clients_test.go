package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/ratelimit"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// wire is the network before a gateway.
type wire struct {
	net.Listener
	to      string
	stopped atomic.Bool  // nothing is carried any more, as before a stopped process
	deaf    atomic.Bool  // the next answer is lost, with its connection
	mute    atomic.Bool  // answers are not carried
	away    atomic.Bool  // connections are refused, and those that there are break
	late    atomic.Int64 // milliseconds that bytes take each way
	asked   atomic.Int64 // times that something came from the caller
	answers atomic.Int64

	mu    sync.Mutex
	conns []net.Conn
	all   sync.WaitGroup
}

func newWire(t *testing.T, s *site) *wire {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{Listener: l, to: strings.TrimPrefix(s.url, "http://")}
	w.all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", w.to)
			if err != nil || w.away.Load() {
				_ = c.Close()
				if err == nil {
					_ = server.Close()
				}
				continue
			}
			w.mu.Lock()
			w.conns = append(w.conns, c, server)
			w.mu.Unlock()
			w.all.Go(func() { w.carry(server, c, false) })
			w.all.Go(func() { w.carry(c, server, true) })
		}
	})
	t.Cleanup(w.kill)
	return w
}

// carry carries bytes; answer says that they go to the caller.
func (w *wire) carry(to, from net.Conn, answer bool) {
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if !answer && n > 0 {
			w.asked.Add(1)
		}
		for w.stopped.Load() && err == nil {
			// What came is kept, and nothing more is read, until the connection is closed.
			_, _ = io.Copy(io.Discard, from)
			err = net.ErrClosed
		}
		if err != nil || w.away.Load() || answer && w.deaf.CompareAndSwap(true, false) {
			break
		}
		if answer && w.mute.Load() {
			continue
		}
		time.Sleep(time.Duration(w.late.Load()) * time.Millisecond)
		if _, err = to.Write(b[:n]); err != nil {
			break
		}
		if answer {
			w.answers.Add(1)
		}
	}
	_, _ = to.Close(), from.Close()
}

// cut breaks the connections that there are.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		_ = c.Close()
	}
}

// kill refuses connections, and breaks those that there are.
func (w *wire) kill() {
	_ = w.Close()
	w.cut()
	w.all.Wait()
}

func (w *wire) url() string { return "http://" + w.Addr().String() }

// liar is what a network may have in the place of a gateway, or before it.
type liar struct {
	server http.Server
	url    string
	lies   atomic.Pointer[func(http.ResponseWriter, *http.Request) bool] // false: the gateway answers
	asked  atomic.Int64

	mu  sync.Mutex
	ctx context.Context // of the requests that wait at the gateway
	end context.CancelFunc
}

func newLiar(t *testing.T, s *site) *liar {
	to, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &liar{url: "http://" + listener.Addr().String()}
	l.ctx, l.end = context.WithCancel(t.Context())
	passes := httputil.NewSingleHostReverseProxy(to)
	passes.ErrorLog, passes.Transport = log.New(io.Discard, "", 0), s.web.Transport
	l.server.ErrorLog = passes.ErrorLog
	l.server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.asked.Add(1)
		l.mu.Lock()
		ctx, end := context.WithCancel(l.ctx)
		l.mu.Unlock()
		defer end()
		defer context.AfterFunc(r.Context(), end)()
		if lie := l.lies.Load(); lie == nil || !(*lie)(w, r) {
			r.Host = to.Host
			passes.ServeHTTP(w, r.WithContext(ctx))
		}
	})
	served := make(chan struct{})
	go func() { defer close(served); _ = l.server.Serve(listener) }()
	t.Cleanup(func() {
		l.end()
		_ = l.server.Close()
		<-served
	})
	return l
}

// lie has requests answered by f, where that returns true. Those that wait at the gateway break.
func (l *liar) lie(f func(w http.ResponseWriter, r *http.Request) bool) {
	l.lies.Store(&f)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end()
	l.ctx, l.end = context.WithCancel(context.Background())
}

// says answers as one that is no gateway, or is one by half.
func says(status int, kind, body string, header ...string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Type", kind)
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
		return true
	}
}

// granted is the body of a grant with other words in the place of some.
func granted(replace ...string) string {
	return strings.NewReplacer(replace...).Replace(`{"state":"acquired","name":"x","node":"/default","token":7,"count":"max",` +
		`"holder":"h","session_id":"9","preempt":false,"expires_in_ms":1000,"waited_ms":0}`)
}

// lies are answers that are not of a gateway. None of them is a lease, a renewal or a release.
var lies = map[string]func(http.ResponseWriter, *http.Request) bool{
	"a login page":              says(200, "text/html; charset=utf-8", "<html><title>Please log in</title></html>"),
	"a login page as JSON":      says(200, "application/json", "<html></html>"),
	"a page that forbids":       says(403, "text/html", "<html></html>"),
	"a page that finds nothing": says(404, "text/html", "<html></html>"),
	"a bad gateway":             says(502, "text/html", "<html></html>"),
	"an error of others":        says(500, "application/json", `{"code":"lease_lost","detail":"no","status":410}`),
	"a problem of others":       says(409, "application/problem+json", `{"title":"no"}`),
	"another service":           says(200, "application/json", `{"status":"ok"}`),
	"a token alone":             says(200, "application/json", `{"token":1}`),
	"a grant without times":     says(200, "application/json", `{"token":1,"count":"max","state":"acquired"}`),
	"a list":                    says(200, "application/json", `[1,2]`),
	"nothing":                   says(200, "application/json", ""),
	"NaN":                       says(200, "application/json", granted(`"expires_in_ms":1000`, `"expires_in_ms":NaN`)),
	"a huge time":               says(200, "application/json", granted(`"expires_in_ms":1000`, `"expires_in_ms":9007199254740991`)),
	"a huge number":             says(200, "application/json", granted(`:1000`, `:1`+strings.Repeat("0", 5000))),
	"a long wait":               says(200, "application/json", granted(`"waited_ms":0`, `"waited_ms":86400000`)),
	"a time in the past":        says(200, "application/json", granted(`:1000`, `:-1000`)),
	"a time that is text":       says(200, "application/json", granted(`:1000`, `:"1000"`)),
	"half a millisecond":        says(200, "application/json", granted(`:1000`, `:0.5`)),
	"a token that is text":      says(200, "application/json", granted(`"token":7`, `"token":"7"`)),
	"no token":                  says(200, "application/json", granted(`"token":7`, `"token":0`)),
	"another state":             says(200, "application/json", granted(`acquired`, `lost`)),
	"another status":            says(201, "application/json", granted()),
	"another kind":              says(200, "text/plain", granted()),
	"a deep document":           says(200, "application/json", strings.Repeat("[", 100_000)),
	"half an answer":            says(200, "application/json", granted(), "Content-Length", "5000"),
	"a connection that breaks":  func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) },
}

// driven is a program that uses a client. Its commands are lines of JSON, `id` and `do`, with `name`,
// or `hex` for one of bytes, and are answered under their id, in any order:
//
//	connect  as, addresses, session, timeout: a connection
//	lock     with, as, name, ttl, wait, holder: a lease, with its token; semaphore has count and limit too
//	release, held, lost (within wait)  lease: whether it is held and lost, and the cause
//	cancel   lease: gives up the lock that is under way for it, which is answered as Cancelled
//	crowd    with, name, many, rounds, ttl, wait: as many callers at once lock it so often. The spans of
//	         what was held are [token, begin, end] in nanoseconds of the host's monotonic clock; least is
//	         how often the caller was served that was served least, and errors are counted by class
//	why, get, set, take, members  with, name: the call of that name; lines, data, version, held
//	watch    with, name, until: each value is an answer with `more`; ends with the value until
//	close    with
//	left     threads, tasks and timers of clients that are left, as lines
//
// An error is its class's name as error, with detail, holders (how many), caused (it has a cause) and
// inTime (it is the language's error of a time that is over). Times are in milliseconds.
type driven struct {
	t        *testing.T
	in       io.WriteCloser
	process  *os.Process
	language string
	mine     string // what the names of this test begin with
	mu       sync.Mutex
	next     int
	waits    map[int]chan said
}

// said is what a program answers to a command.
type said struct {
	ID, Holders, Version int
	Token                uint64
	Held, Lost           bool
	Cause, Error, Data   string
	Loss                 string
	Since                int
	Detail               string
	Lines                []string
	More, Caused, InTime bool
	Own                  bool
	Spans                [][3]int64
	Least                int
	Errors               map[string]int
}

type command map[string]any

// drivers are the programs of each language.
var drivers = map[string][]string{
	"python": {"python3", "testdata/driver.py"}, "python-aio": {"python3", "testdata/driver_aio.py"},
	"js": {"node", "testdata/driver.mjs"},
}

func drive(t *testing.T, language string) *driven {
	folder, err := filepath.Abs("../../client/" + strings.TrimSuffix(language, "-aio"))
	if err != nil {
		t.Fatal(err)
	}
	args := drivers[language]
	for _, name := range []string{args[1], folder + "/signalbox.js", folder + "/signalbox/__init__.py", folder + "/signalbox/aio.py"} {
		_, _ = os.ReadFile(name) // a cached result of a test counts only for these
	}
	cmd := exec.Command(args[0], args[1], folder)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d := &driven{t: t, in: in, process: cmd.Process, language: language, waits: make(map[int]chan said)}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var a said
			if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
				t.Errorf("%s: %v", lines.Bytes(), err)
				continue
			}
			d.mu.Lock()
			d.waits[a.ID] <- a
			d.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = in.Close()
		time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		<-read
		_ = cmd.Wait()
	})
	return d
}

// start sends a command.
func (d *driven) start(c command) <-chan said {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.next++
	c["id"] = d.next
	if c["do"] == "connect" && c["timeout"] == nil {
		c["timeout"] = 60_000 // a busy machine has the time to answer
	}
	if name, ok := c["name"].(string); ok {
		c["name"] = d.mine + name
	}
	ch := make(chan said, 100)
	d.waits[d.next] = ch
	b, err := json.Marshal(c)
	if err == nil {
		_, err = d.in.Write(append(b, '\n'))
	}
	if err != nil {
		d.t.Fatal(err)
	}
	return ch
}

// lock acquires; what fails is a busy machine's, and is repeated.
func (d *driven) lock(with, as, name string, ttl int) (a said) {
	d.t.Helper()
	until(d.t, "it has "+name, func() bool {
		a = d.do(command{"do": "lock", "with": with, "as": as, "name": name, "ttl": ttl, "wait": 60_000})
		return a.Held
	})
	return a
}

// refused locks what one holds. The holder is named if it can be read within a second.
func (d *driven) refused(c command) (a said) {
	d.t.Helper()
	until(d.t, "a refusal names the holder", func() bool {
		if a = d.do(maps.Clone(c)); a.Error != "NotAcquired" || a.Holders > 1 {
			d.t.Fatalf("refused with %+v", a)
		}
		return a.Holders == 1
	})
	return a
}

func (d *driven) do(c command) said {
	d.t.Helper()
	select {
	case a := <-d.start(c):
		return a
	case <-time.After(patience):
		d.t.Fatalf("%v is not answered", c)
		return said{}
	}
}

// until repeats a look until it is true.
func until(t *testing.T, what string, look func() bool) {
	t.Helper()
	await.True(t, "this: "+what, look)
}

// owners is how many hold a name, and waiters how many wait.
func (d *driven) owners(s *site, name string) (owners, waiters int64) {
	d.t.Helper()
	a := s.ask("GET", "/v1/locks/"+d.mine+name, "", "")
	if a.doc["exists"] == false {
		return 0, 0
	}
	return a.number("num_owners"), a.number("num_waiters")
}

// clientCases are what a client of any language does. Each has two gateways of its own.
type clientCase struct {
	name string
	long bool
	run  func(t *testing.T, d *driven, srv *servertest.Server, direct *site, one, two *wire)
}

var clientCases = []clientCase{
	{"a lock is held by one, its refusal names the holder, and nothing is held after the end", false, func(t *testing.T, d *driven, _ *servertest.Server, s *site, _, _ *wire) {
		first := d.do(command{"do": "lock", "with": "a", "as": "x", "name": "jobs/ü", "holder": "first"})
		if first.Token == 0 || !first.Held {
			t.Fatalf("%+v", first)
		}
		d.refused(command{"do": "lock", "with": "b", "as": "y", "name": "jobs/ü"})
		if a := d.do(command{"do": "lock", "with": "b", "as": "y", "name": "jobs/ü", "wait": 50}); a.Error != "NotAcquired" {
			t.Errorf("refused with %+v", a)
		}
		d.do(command{"do": "semaphore", "with": "a", "as": "u", "name": "gpu", "count": 2, "limit": 3})
		waiting := d.start(command{"do": "lock", "with": "b", "as": "y", "name": "jobs/ü", "wait": 50_000})
		until(t, "it waits", func() bool { return len(d.do(command{"do": "why", "with": "b", "name": "jobs/ü"}).Lines) > 0 })
		if a := d.do(command{"do": "release", "lease": "x"}); a.Held || a.Lost {
			t.Errorf("after its release: %+v", a)
		}
		if a := <-waiting; a.Token <= first.Token {
			t.Errorf("%+v after %+v", a, first)
		}
		late := d.do(command{"do": "close", "with": "a"}).Error == "Unavailable" // a slow machine: it is free after its ttl
		d.do(command{"do": "release", "lease": "y"})
		if a := s.ask("GET", "/v1/locks/"+d.mine+"gpu", "", ""); a.number("num_owners") != 0 && !late {
			t.Errorf("after the end: %s", a.body)
		}
		if a := s.ask("GET", "/v1/locks/"+d.mine+"jobs%2F%C3%BC", "", ""); a.doc["exists"] != false {
			t.Errorf("after the end: %s", a.body)
		}
	}},
	{"an answer that is lost is asked for again", false, func(t *testing.T, d *driven, _ *servertest.Server, s *site, one, two *wire) {
		one.deaf.Store(true)
		two.deaf.Store(true)
		got := d.do(command{"do": "lock", "with": "a", "as": "x", "name": "jobs"})
		if a := s.ask("GET", "/v1/locks/"+d.mine+"jobs", "", ""); !got.Held || a.number("num_owners") != 1 ||
			!strings.Contains(string(a.body), fmt.Sprintf(`"token":%d}`, got.Token)) {
			t.Errorf("%+v, of %s", got, a.body)
		}
	}},
	{"a lock goes on while its gateway is killed or stopped, and is lost when both are", true, func(t *testing.T, d *driven, _ *servertest.Server, s *site, one, two *wire) {
		got := d.lock("a", "x", "jobs", 6000)
		one.kill()
		before := two.answers.Load()
		until(t, "it is renewed", func() bool { return two.answers.Load() != before })
		if a := d.do(command{"do": "held", "lease": "x"}); !a.Held || a.Lost {
			t.Skipf("the machine is so slow that it was not renewed in time: %+v", a)
		}
		if a := s.ask("GET", "/v1/locks/"+d.mine+"jobs", "", ""); !strings.Contains(string(a.body), fmt.Sprintf(`"token":%d}`, got.Token)) {
			t.Errorf("it is %s", a.body)
		}
		two.stopped.Store(true)
		if a := d.do(command{"do": "lost", "lease": "x", "wait": 50_000}); a.Held || !a.Lost || a.Cause != "LeaseLost" ||
			a.Loss != "unreachable" {
			t.Errorf("after its other gateway stopped: %+v", a)
		}
	}},
	{"a program that stood still blames no gateway", false, func(t *testing.T, d *driven, _ *servertest.Server, s *site, one, _ *wire) {
		d.do(command{"do": "connect", "as": "n", "addresses": []string{one.url()}})
		d.lock("n", "x", "jobs", 6000)
		one.mute.Store(true)
		asked := one.asked.Load()
		until(t, "a renewal is under way again", func() bool { return one.asked.Load() > asked+1 })
		if a := d.do(command{"do": "held", "lease": "x"}); !a.Held {
			t.Skipf("the machine is so slow that it has ended: %+v", a)
		}
		_ = d.process.Signal(syscall.SIGSTOP)
		until(t, "the session has ended", func() bool { owners, _ := d.owners(s, "jobs"); return owners == 0 })
		one.mute.Store(false)
		_ = d.process.Signal(syscall.SIGCONT)
		if a := d.do(command{"do": "lost", "lease": "x", "wait": 50_000}); !a.Lost || a.Loss != "unknown" || a.Since <= 6000 {
			t.Errorf("after it was stopped: %+v", a)
		}
	}},
	{"a session that somebody ends is lost", false, func(t *testing.T, d *driven, _ *servertest.Server, s *site, one, two *wire) {
		d.do(command{"do": "connect", "as": "n", "addresses": []string{one.url()}, "session": "a-given-session"})
		d.lock("n", "x", "jobs", 6000)
		s.until("ended", "DELETE", "/v1/session", "a-given-session").wants(200) // it may move back meanwhile
		if a := d.do(command{"do": "lost", "lease": "x", "wait": 50_000}); a.Held || !a.Lost || a.Cause != "SessionExpired" && a.Cause != "LeaseLost" {
			t.Errorf("after its end: %+v", a)
		}
	}},
	{"a session that an operator ends says so", false, func(t *testing.T, d *driven, srv *servertest.Server, s *site, _, _ *wire) {
		d.lock("a", "x", "jobs", 20_000) // a slow machine's belief must not end before it has heard
		var sem struct {
			Owners []struct {
				Session string `json:"session_id"`
			}
		}
		if err := json.Unmarshal(s.ask("GET", "/v1/locks/"+d.mine+"jobs", "", "").body, &sem); err != nil || len(sem.Owners) != 1 {
			t.Fatalf("%+v, %v", sem, err)
		}
		killSession(t, srv, sem.Owners[0].Session)
		if a := d.do(command{"do": "lost", "lease": "x", "wait": 50_000}); !a.Lost || a.Loss != "session_ended_by_operator" {
			t.Errorf("after its end: %+v", a)
		}
	}},
	{"configurations and services", false, func(t *testing.T, d *driven, srv *servertest.Server, _ *site, _, _ *wire) {
		if a := d.do(command{"do": "get", "with": "a", "name": "flags"}); a.Error != "NotFound" {
			t.Errorf("%+v", a)
		}
		if a := d.do(command{"do": "set", "with": "a", "name": "flags", "data": "on", "version": 0}); a.Version != 1 {
			t.Errorf("%+v", a)
		}
		if a := d.do(command{"do": "set", "with": "a", "name": "flags", "data": "off", "version": 0}); a.Error != "VersionMismatch" {
			t.Errorf("%+v", a)
		}
		if a := d.do(command{"do": "get", "with": "b", "name": "flags"}); a.Data != "on" || a.Version != 1 {
			t.Errorf("%+v", a)
		}
		c, err := client.Dial(t.Context(), srv.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.CloseWithoutRelease()
		own, err := c.Session(t.Context(), "/default")
		if err != nil {
			t.Fatal(err)
		}
		defer own.Close(context.Background())
		if _, err := own.Service(d.mine+"web").Register(t.Context(), []byte(`{"addr":"10.0.0.1:80"}`)); err != nil {
			t.Fatal(err)
		}
		until(t, "the member is listed", func() bool {
			return fmt.Sprint(d.do(command{"do": "members", "with": "a", "name": "web"}).Lines) == "[10.0.0.1:80]"
		})
	}},
	{"a rate limit admits, and refuses", false, func(
		t *testing.T, d *driven, srv *servertest.Server, _ *site, _, _ *wire,
	) {
		s, err := client.OpenSession(t.Context(), client.Config{Endpoints: []string{srv.Addr()}}, client.DefaultNode)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Client().CloseWithoutRelease()
		limit := ratelimit.Config{Rate: ratelimit.PerSecond(5)}
		if _, err := ratelimit.Create(t.Context(), s, d.mine+"api", limit); err != nil {
			t.Fatal(err)
		}
		seen := make(map[bool]bool)
		for began := time.Now(); len(seen) < 2 && time.Since(began) < patience; {
			a := d.do(command{"do": "take", "with": "a", "name": "api", "units": 3})
			if a.Error != "" {
				t.Fatalf("%+v", a)
			}
			seen[a.Held] = true
		}
		if len(seen) < 2 {
			t.Errorf("it was always %v", seen)
		}
	}},
}

// TestClients: the clients of other languages keep the rules, through gateways that are killed and
// stopped and answers that are lost.
func TestClients(t *testing.T) {
	t.Parallel()
	for language, program := range drivers {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(program[0]); err != nil {
				t.Skipf("%s is missing, so its client is not tested: %v", program[0], err)
			}
			cases := clientCases
			if language != "js" { // its driver does not know the words of these
				cases = slices.Concat(clientCases, clientFaults)
			}
			for i, c := range cases {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					if c.long {
						form.SkipUntil(t, form.Long, "ten seconds and more")
					}
					srv := servertest.Start(t, servertest.RealTime())
					direct := openSite(t, srv)
					one, two := newWire(t, openSite(t, srv)), newWire(t, openSite(t, srv))
					d := drive(t, language)
					d.mine = fmt.Sprintf("%d-", i)
					for _, as := range []string{"a", "b"} {
						d.do(command{"do": "connect", "as": as, "addresses": []string{one.url(), two.url()}})
					}
					c.run(t, d, srv, direct, one, two)
					for _, as := range []string{"a", "b"} {
						d.start(command{"do": "close", "with": as})
					}
				})
			}
		})
	}
}

// TestBuiltTypeScript: what is committed beside the client of TypeScript is what its compiler makes
// of it, and no client is above its bound of lines.
func TestBuiltTypeScript(t *testing.T) {
	t.Parallel()
	for name, most := range map[string]int{"python/signalbox/__init__.py": 500, "python/signalbox/aio.py": 400, "js/signalbox.ts": 500} {
		b, err := os.ReadFile("../../client/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(b), "\n"); n > most {
			t.Errorf("client/%s has %d lines, above %d", name, n, most)
		}
	}
	if _, err := exec.LookPath("tsc"); err != nil {
		t.Skip("tsc is missing, so client/js is not built again: ", err)
	}
	out := t.TempDir()
	if text, err := exec.CommandContext(t.Context(), "tsc", "-p", "../../client/js", "--outDir", out).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, name := range []string{"signalbox.js", "signalbox.d.ts"} {
		want, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile("../../client/js/" + name); err != nil || string(got) != string(want) {
			t.Errorf("client/js/%s is not what tsc makes of signalbox.ts: %v", name, err)
		}
	}
}
