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
	h.ServeHTTP(w, httptest.NewRequest(method, target, nil))
	return w
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

	for _, opening := range []string{"", "GET /met", "GET / HTTP/1.1\r\nHost: x\r\nX: "} {
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
