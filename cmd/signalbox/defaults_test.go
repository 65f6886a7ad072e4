package main

import (
	"bytes"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/signalbox-dev/signalbox/cmd/signalbox/settings"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// recorder passes connections on to a server, and keeps the requests of clients.
type recorder struct {
	listener net.Listener
	backend  string
	mu       sync.Mutex
	requests []string // kind and body
}

func newRecorder(t *testing.T) *recorder {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return &recorder{listener: l}
}

// serve passes connections on to a server from now.
func (r *recorder) serve(backend string) {
	r.backend = backend
	go func() {
		for {
			c, err := r.listener.Accept()
			if err != nil {
				return
			}
			go r.pass(c)
		}
	}()
}

func (r *recorder) pass(c net.Conn) {
	defer c.Close()
	s, err := net.Dial("tcp", r.backend)
	if err != nil {
		return
	}
	go func() {
		defer s.Close()
		_, _ = io.Copy(s, io.TeeReader(c, &frameReader{r: r}))
	}()
	_, _ = io.Copy(c, s)
}

// frameReader takes the frames out of what a client sends.
type frameReader struct {
	r   *recorder
	buf []byte
}

func (f *frameReader) Write(b []byte) (int, error) {
	f.buf = append(f.buf, b...)
	for {
		frame, n, err := protocol.SplitFrame(f.buf, 1<<24)
		if err != nil || n == 0 {
			return len(b), nil
		}
		if h, err := protocol.ParseFrame(frame); err == nil {
			f.r.mu.Lock()
			f.r.requests = append(f.r.requests, h.Kind.String()+" "+plainBody(h.Body))
			f.r.mu.Unlock()
		}
		f.buf = f.buf[n:]
	}
}

// plainBody is a body without what differs from run to run: large numbers, such as ids and times, and sessions' keys.
func plainBody(b []byte) string {
	var plain []byte
	for i := 0; i < len(b); i++ {
		plain = append(plain, b[i])
		switch {
		case b[i] == 0xcf: // a number of 64 bits
			i += 8
		case b[i] == 0xce: // of 32
			i += 4
		case b[i] == 0xc4 && i+1 < len(b) && b[i+1] == protocol.KeyLen:
			i += 1 + protocol.KeyLen
		}
	}
	return string(plain)
}

// take returns what was recorded since the last call, with {} for the object's name, in an order of its own:
// requests of several goroutines overtake each other.
func (r *recorder) take(object string) (list []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, text := range r.requests {
		if !strings.HasPrefix(text, protocol.KindPing.String()+" ") { // it is sent by time
			list = append(list, strings.ReplaceAll(text, object, "{}"))
		}
	}
	r.requests = nil
	slices.Sort(list)
	return slices.Compact(list)
}

// defaultCases have, for a verb whose help shows defaults, the commands that run before, separated by
// semicolons, and the verb's own. {} is the object's name.
var defaultCases = map[string]string{
	"signalbox auth trust create": "auth trust create {} --issuer ci.example",
	"signalbox elect":             "elect {} -- true",
	"signalbox limit alter":       "limit create {} --rate 7; limit alter {} --rate 8",
	"signalbox limit delete":      "limit create {} --rate 7; limit delete {}",
	"signalbox limit describe":    "limit create {} --rate 7; limit describe {}",
	"signalbox lock":              "lock {} {}b -- true",
	"signalbox rollout alter":     "rollout create {} --location SAS; rollout alter {} --location SAS:1s",
	"signalbox sem acquire":       "sem create {} --limit 3; sem acquire {} -- true",
	"signalbox sem create":        "sem create {}",
	"signalbox sem why":           "sem create {}; sem why {}",
	"signalbox service ls":        "service ls {}",
}

// notCompared are the verbs that run until they are interrupted, and those that send secrets, or by time.
var notCompared = []string{
	"auth create", "config watch", "console", "dev", "http", "limit top", "limit wait", "load", "once", "process watch",
	"rollout follow", "rollout generate", "rollout watch", "sem watch", "service register", "service watch", "top",
}

// TestShownDefaultsChangeNothing: a flag that is given its shown default changes nothing of what a verb sends.
func TestShownDefaultsChangeNothing(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	srv := servertest.Start(t, servertest.RealTime(),
		servertest.Config(func(c *server.Config) { c.Advertise = r.listener.Addr().String() }))
	r.serve(srv.Addr())
	runs := 0
	sent := func(commands string, more ...string) (list []string, code int) {
		t.Helper()
		runs++
		object := "ob" + string([]byte{byte('a' + runs/26), byte('a' + runs%26)})
		all := strings.Split(strings.ReplaceAll(commands, "{}", object), "; ")
		for i, command := range all {
			args := strings.Fields(command)
			if i == len(all)-1 {
				at := slices.Index(args, "--")
				if at < 0 {
					at = len(args)
				}
				args = slices.Insert(args, at, more...)
			}
			r.take(object)
			out, said, c := runWith(t, r.listener.Addr().String(), args)
			if code = c; code != 0 {
				t.Errorf("%q: exit code %d\n%s%s", args, code, out, said)
			}
		}
		return r.take(object), code
	}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		path := c.CommandPath()
		if c.Name() == "help" || c.Name() == "completion" ||
			slices.Contains(notCompared, strings.TrimPrefix(path, "signalbox ")) {
			return
		}
		var plain []string
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			switch {
			case f.Name == "help" || f.Name == "timeout" || settings.InTable(f) && !ownDefault(f):
				return
			case f.DefValue == "" || f.DefValue == "false" || f.DefValue == "[]":
				return
			}
			commands := defaultCases[path]
			if commands == "" {
				t.Errorf("%s shows the default %s of --%s, and defaultCases has no command of it", path, f.DefValue, f.Name)
				return
			}
			if plain == nil {
				plain, _ = sent(commands)
				if again, _ := sent(commands); !slices.Equal(again, plain) {
					t.Errorf("%s sends other things when it runs again:\n%q\n%q", path, plain, again)
				}
			}
			if given, _ := sent(commands, "--"+f.Name+"="+f.DefValue); !slices.Equal(given, plain) {
				t.Errorf("%s with --%s=%s, the shown default, sends\n%q\nand without it\n%q", path, f.Name, f.DefValue,
					given, plain)
			}
		})
	}
	walk(tree())
}

func runWith(t *testing.T, addr string, args []string) (stdout, stderr string, code int) {
	t.Helper()
	var out, notes bytes.Buffer
	at := slices.Index(args, "--")
	if at < 0 {
		at = len(args)
	}
	args = slices.Insert(slices.Clone(args), at, "--endpoints", addr)
	code = run(t.Context(), args, strings.NewReader(""), &out, &notes)
	return out.String(), notes.String(), code
}
