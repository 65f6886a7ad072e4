package admin

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// net/http lingers for half a second over a refused request, so that the client can read the
	// answer.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

func get(h http.Handler, method, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, "http://127.0.0.1:7072"+target, nil))
	return w
}

// TestForeignNames: neither a site that points its name at the address nor the pages of another site
// get anything. Probes and Prometheus come by addresses, by the machine's name or by one that is
// given.
func TestForeignNames(t *testing.T) {
	h := Handler(Config{Hosts: []string{"db-1.example.com"}})
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		host, header, value string
		code                int
	}{
		{"127.0.0.1:7072", "", "", 200}, {"localhost:7072", "", "", 200}, {"[::1]:7072", "", "", 200},
		{"10.1.2.3:7072", "", "", 200}, {"[fd00::1]:7072", "", "", 200}, {"10.1.2.3", "", "", 200},
		{"DB-1.example.com.:7072", "", "", 200}, {own + ":7072", "", "", 200}, {"", "", "", 200},
		{"rebound.example.net:7072", "", "", 421}, {"127.0.0.1.example.net", "", "", 421}, {"example.com", "", "", 421},
		{"localhost:7072", "Origin", "http://rebound.example.net", 403}, {"localhost:7072", "Origin", "null", 403},
		{"localhost:7072", "Sec-Fetch-Site", "cross-site", 403}, {"localhost:7072", "Sec-Fetch-Site", "same-site", 403},
		{"localhost:7072", "Sec-Fetch-Site", "same-origin", 200}, {"localhost:7072", "Sec-Fetch-Site", "none", 200},
	} {
		for _, path := range []string{"/", "/metrics", "/healthz", "/readyz", "/debug/pprof/cmdline"} {
			r := httptest.NewRequest("GET", path, nil)
			if r.Host = tc.host; tc.header != "" {
				r.Header.Set(tc.header, tc.value)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != tc.code || tc.code == 421 && !strings.Contains(w.Body.String(), "--admin-host") {
				t.Errorf("%s of host %q with %s %q: %d %q, want %d", path, tc.host, tc.header, tc.value, w.Code, w.Body, tc.code)
			}
		}
	}
}

func TestPages(t *testing.T) {
	own := func(w io.Writer) { fmt.Fprintln(w, `signalbox_connections{listener="plain"} 7`) }
	sick := errors.New("shard 3 has had no leader for 12s; see its log")
	well := Handler(Config{Metrics: own})
	ill := Handler(Config{Live: func() error { return sick }, Ready: func() error { return sick }})

	for _, tc := range []struct {
		name, method, target string
		handler              http.Handler
		code                 int
		contains             string
	}{
		{"index lists the pages", "GET", "/", well, 200, "/metrics"},
		{"index lists the profiles", "GET", "/", well, 200, "/debug/pprof/"},
		{"own metrics", "GET", "/metrics", well, 200, `signalbox_connections{listener="plain"} 7`},
		{"no metrics", "GET", "/metrics", ill, 200, ""},
		{"fit", "GET", "/healthz", well, 200, "ok\n"},
		{"ready", "GET", "/readyz", well, 200, "ok\n"},
		{"unfit says why", "GET", "/healthz", ill, 503, sick.Error()},
		{"not ready says why", "GET", "/readyz", ill, 503, sick.Error()},
		{"head", "HEAD", "/readyz", ill, 503, ""},
		{"profiles", "GET", "/debug/pprof/", well, 200, "goroutine"},
		{"one profile", "GET", "/debug/pprof/goroutine?debug=1", well, 200, "goroutine profile"},
		{"unknown page", "GET", "/nothing", well, 404, ""},
		{"post", "POST", "/metrics", well, 405, "use GET or HEAD"},
		{"delete of an unknown page", "DELETE", "/nothing", well, 405, "use GET or HEAD"},
		{"long url", "GET", "/metrics?" + strings.Repeat("a", maxURL), well, 414, "too long"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := get(tc.handler, tc.method, tc.target)
			if w.Code != tc.code || !strings.Contains(w.Body.String(), tc.contains) {
				t.Fatalf("got %d %q, want %d with %q", w.Code, w.Body, tc.code, tc.contains)
			}
		})
	}
	if allow := get(well, "PUT", "/").Header().Get("Allow"); allow != "GET, HEAD" {
		t.Errorf("Allow is %q", allow)
	}
}

// TestSlowClients opens connections that never finish a request: the server closes them, and serves
// others meanwhile.
func TestSlowClients(t *testing.T) {
	srv := Server(Handler(Config{}), slog.New(slog.DiscardHandler))
	if srv.ReadHeaderTimeout <= 0 || srv.ReadTimeout <= 0 || srv.WriteTimeout <= 0 || srv.IdleTimeout <= 0 {
		t.Fatalf("a timeout is missing: %+v", srv)
	}
	srv.ReadHeaderTimeout, srv.ReadTimeout = time.Second, time.Second
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()

	for _, opening := range []string{"", "GET /met", "GET / HTTP/1.1\r\nHost: localhost\r\nX: "} {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, opening); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(c); err != nil { // until the server closes
			t.Errorf("after %q: %v", opening, err)
		}
		_ = c.Close()
	}

	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = c.Write(append([]byte("GET /"), bytes.Repeat([]byte("a"), 1<<20)...)) }()
	// The server closes while the client still writes, which may take the answer with it.
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	answer, err := io.ReadAll(c)
	if len(answer) > 0 && !bytes.HasPrefix(answer, []byte("HTTP/1.1 431")) || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a URL of 1 MiB was answered %q, %v", answer, err)
	}
	_ = c.Close()

	if err := srv.Close(); err != nil {
		t.Error(err)
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}
