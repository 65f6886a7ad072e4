package httpapi

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// faces are a gateway's listeners, plain and with TLS.
type faces struct {
	*site
	plain, secure string // addresses
	trust         *tls.Config
	http2         *http.Client
}

func openFaces(t *testing.T, srv *servertest.Server, change ...func(*Config)) *faces {
	t.Helper()
	s := openSite(t, srv, change...)
	secure := httptest.NewUnstartedServer(nil)
	secure.Config = s.serve()
	secure.Listener = LimitListener(secure.Listener)
	secure.EnableHTTP2 = true
	secure.StartTLS()
	t.Cleanup(secure.Close)
	web := secure.Client()
	return &faces{site: s, plain: strings.TrimPrefix(s.url, "http://"), secure: secure.Listener.Addr().String(),
		trust: web.Transport.(*http.Transport).TLSClientConfig, http2: web}
}

func (f *faces) dial(t *testing.T, secure bool) net.Conn {
	t.Helper()
	var conn net.Conn
	var err error
	if secure {
		trust := f.trust.Clone()
		trust.NextProtos = []string{"http/1.1"}
		conn, err = tls.Dial("tcp", f.secure, trust)
	} else {
		conn, err = net.Dial("tcp", f.plain)
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	return conn
}

// TestRaw: malformed and oversized requests are refused, without TLS and with it. Sizes are at the
// bound and above it.
func TestRaw(t *testing.T) {
	t.Parallel()
	f := openFaces(t, servertest.Start(t))
	const host, session = "Host: localhost\r\n", "Signalbox-Session: " + alice + "\r\n"
	sized := func(bytes int) string {
		return fmt.Sprintf("Content-Length: %d\r\n\r\n", bytes) + strings.Repeat("x", bytes)
	}
	line := func(bytes int) string {
		path := "/v1/locks/?name64="
		return "GET " + path + strings.Repeat("A", bytes-len(path)) + " HTTP/1.1\r\n" + host + "\r\n"
	}
	header := func(bytes int) string {
		return "GET /v1/locks HTTP/1.1\r\n" + host + "X-Filler: " + strings.Repeat("x", bytes) + "\r\n\r\n"
	}
	for _, c := range []struct {
		what, request string
		status        int
	}{
		{"an honest request", "GET /v1/locks HTTP/1.1\r\n" + host + "\r\n", 200},
		{"the own address as host", "GET /v1/locks HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n", 200},
		{"no host", "GET /v1/locks HTTP/1.1\r\n\r\n", 400},
		{"no host by HTTP/1.0", "GET /v1/locks HTTP/1.0\r\n\r\n", 400},
		{"two hosts", "GET /v1/locks HTTP/1.1\r\n" + host + host + "\r\n", 400},
		{"another host", "GET /v1/locks HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421},
		{"another host in the target", "GET http://evil.example/v1/locks HTTP/1.1\r\n" + host + "\r\n", 421},
		{"a page", "GET /v1/locks HTTP/1.1\r\n" + host + "Origin: null\r\n\r\n", 403},
		{"a page of the same site", "GET /v1/locks HTTP/1.1\r\n" + host + "Sec-Fetch-Site: same-origin\r\n\r\n", 403},
		{"OPTIONS *", "OPTIONS * HTTP/1.1\r\n" + host + "\r\n", 405},
		{"CONNECT", "CONNECT localhost:80 HTTP/1.1\r\n" + host + "\r\n", 405},
		{"HTTP/2 without TLS", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400},
		{"an upgrade is not taken", "GET /v1/locks HTTP/1.1\r\n" + host + "Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n", 200},
		{"no request", "\x16\x03\x01 hello\r\n\r\n", 400},
		{"a line of the bound", line(maxURL), 400}, // its name is too long
		{"a line above the bound", line(maxURL + 1), 414},
		{"headers at the bound", header(maxHeader - 100), 200},
		{"headers above the bound", header(maxHeader + 8<<10), 431},
		{"a body of the bound", "PUT /v1/config/a HTTP/1.1\r\n" + host + sized(maxBody), 400}, // read, and a byte too long for the cluster
		{"a body above the bound", "PUT /v1/config/b HTTP/1.1\r\n" + host + sized(maxBody+1), 413},
		{"a chunked body above the bound", "PUT /v1/config/b HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n" +
			fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", maxBody+1, strings.Repeat("x", maxBody+1)), 413},
		{"two lengths", "PUT /v1/config/b HTTP/1.1\r\n" + host + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx", 400},
		{"an unknown coding", "PUT /v1/config/b HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip\r\n\r\nxx", 501},
		{"a broken chunk", "PUT /v1/config/b HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
		{"a body without a route for one", "DELETE /v1/session HTTP/1.1\r\n" + host + session + sized(1), 400},
		{"two sessions", "GET /v1/session HTTP/1.1\r\n" + host + session + session + "\r\n", 400},
		{"two tokens", "GET /v1/locks HTTP/1.1\r\n" + host + "Authorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n", 400},
		{"a name of 7 characters", "GET /v1/session HTTP/1.1\r\n" + host + "Signalbox-Session: 1234567\r\n\r\n", 400},
		{"a name of 128 characters", "GET /v1/session HTTP/1.1\r\n" + host + "Signalbox-Session: " + strings.Repeat("x", 128) + "\r\n\r\n", 410},
		{"a name of 129 characters", "GET /v1/session HTTP/1.1\r\n" + host + "Signalbox-Session: " + strings.Repeat("x", 129) + "\r\n\r\n", 400},
		{"a name that is not ASCII", "GET /v1/session HTTP/1.1\r\n" + host + "Signalbox-Session: 1234567\xe9\r\n\r\n", 400},
		{"a body that ends early", "PUT /v1/config/b HTTP/1.1\r\n" + host + "Content-Length: 9\r\n\r\nxx", -400},
	} {
		for _, secure := range []bool{false, true} {
			conn := f.dial(t, secure)
			written := make(chan struct{})
			go func() { defer close(written); _, _ = io.WriteString(conn, c.request) }()
			if half, ok := conn.(interface{ CloseWrite() error }); c.status < 0 && ok {
				<-written
				_ = half.CloseWrite()
			}
			want := max(c.status, -c.status)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Errorf("%s, TLS %t: %v", c.what, secure, err)
			} else if resp.StatusCode != want {
				b, _ := io.ReadAll(resp.Body)
				t.Errorf("%s, TLS %t: answered %d, want %d: %s", c.what, secure, resp.StatusCode, want, b)
			}
			_ = conn.Close()
		}
	}
	f.ask("GET", "/v1/config/b", "", "").wants(404, "not_found") // no refused body is stored
}

// TestSmuggling: a request with two lengths of its body is one request, whatever it hides.
func TestSmuggling(t *testing.T) {
	t.Parallel()
	f := openFaces(t, servertest.Start(t))
	conn := f.dial(t, false)
	defer conn.Close()
	hidden := "GET /v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
	_, _ = fmt.Fprintf(conn, "PUT /v1/config/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n",
		len(hidden), hidden)
	_ = conn.(*net.TCPConn).CloseWrite()
	all, err := io.ReadAll(conn)
	if n := strings.Count(string(all), "HTTP/1.1 "); err != nil || n != 1 {
		t.Errorf("%d answers, %v: %s", n, err, all)
	}
}

// TestRefusalsOfHTTP2: the gateway refuses by HTTP/2 what it refuses by HTTP/1.1.
func TestRefusalsOfHTTP2(t *testing.T) {
	t.Parallel()
	f := openFaces(t, servertest.Start(t))
	f.url, f.web = "https://"+f.secure, f.http2
	f.ask("GET", "/v1/locks", "", "").wants(200)
	f.ask("GET", "/v1/locks", "", "", "Host: evil.example").wants(421, "misdirected")
	f.ask("GET", "/v1/locks", "", "", "Origin: https://localhost").wants(403, "browser")
	f.ask("GET", "/v1/locks/"+strings.Repeat("a", maxURL), "", "").wants(414, "uri_too_long")
	f.ask("PUT", "/v1/config/b", "", strings.Repeat("x", maxBody+1)).wants(413, "content_too_large")
	f.ask("POST", "/v1/locks/a?ttl=10s", alice, "", "Signalbox-Session: "+bob).wants(400, "bad_request")
	f.ask("OPTIONS", "/v1/locks", "", "").wants(405, "method_not_allowed")
	if a, err := f.try(t.Context(), "GET", "/v1/locks", "", "", "X-Filler: "+strings.Repeat("x", maxHeader+8<<10)); err == nil && a.status != 431 {
		t.Errorf("long headers are answered %d", a.status)
	}
	f.ask("GET", "/v1/config/b", "", "").wants(404, "not_found")
}

// TestTerraform: what the http backend of Terraform and OpenTofu sends is refused with a sentence
// at each route and elsewhere, and leaves nothing.
func TestTerraform(t *testing.T) {
	t.Parallel()
	s := openSite(t, servertest.Start(t))
	const state, lock = `{"version":4,"serial":1,"lineage":"a","outputs":{},"resources":[]}`, `{"ID":"9db590f1-b6fe","Operation":"OperationTypeApply","Info":"","Who":"ci@host","Version":"1.9.0","Created":"2026-01-02T03:04:05Z","Path":""}`
	paths := map[string]bool{"/": true, "/terraform/state": true, "/v1": true, "/v1/states/prod": true}
	for _, r := range routes {
		if paths[r.path] = true; strings.HasSuffix(r.path, "/") {
			paths[r.path+"tf/prod"] = true
		}
	}
	for path := range paths {
		for _, r := range []struct{ method, query, body string }{
			{"LOCK", "", lock}, {"UNLOCK", "", lock}, {"POST", "?ID=9db590f1-b6fe", state},
			{"POST", "", state}, {"PUT", "?ID=9db590f1-b6fe", state},
		} {
			a := s.ask(r.method, path+r.query, "", r.body, "Content-Type: application/json",
				"Content-MD5: 1B2M2Y8AsgTpgAmY7PhCfg==")
			if detail, _ := a.doc["detail"].(string); a.status != 400 && a.status != 404 && a.status != 405 ||
				detail == "" ||
				strings.HasSuffix(r.method, "LOCK") && a.status != 405 {
				t.Errorf("%s %s%s is answered %d %s", r.method, path, r.query, a.status, a.body)
			}
		}
	}
	if a := s.ask("GET", "/v1/locks", "", "").wants(200); len(a.doc["locks"].([]any)) != 0 {
		t.Errorf("it has left %s", a.body)
	}
}

// TestHostileCallers: callers that are slow, reset their connections, hold idle ones, or try tokens
// do not keep honest ones from being served, and the gateway's memory stays bounded. Slow ones are
// cut.
func TestHostileCallers(t *testing.T) {
	idle, tries := 100, sized(16, 32, 640)
	if form.Is(form.Long) {
		idle = 8000
		files := syscall.Rlimit{Cur: 30_000, Max: 30_000} // both ends of each connection are here
		if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &files) == nil {
			idle = 10_000
		}
	}
	const root = "the administrator's secret"
	srv := servertest.Start(t, servertest.RealTime(), servertest.Config(func(c *server.Config) {
		c.Auth, c.AdminToken, c.Audit = true, root, filepath.Join(t.TempDir(), "audit")
	}))
	f := openFaces(t, srv)
	honest := func() { f.ask("GET", "/v1/locks", "", "", "Authorization: Bearer "+root).wants(200) }
	honest()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	conns := make([]net.Conn, idle)
	for i := range conns {
		conns[i] = f.dial(t, false)
		if i%2 == 0 {
			_, _ = io.WriteString(conns[i], "GET /v1/locks HTTP/1.1\r\nHost: localhost\r\nX-")
		}
		defer conns[i].Close()
	}
	honest()
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for n := range tries / 16 {
				a, err := f.try(t.Context(), "GET", "/v1/locks", "", "",
					fmt.Sprintf("Authorization: Bearer wrong-%d-%d", i, n))
				if err != nil {
					t.Error(err)
				} else if a.status != 401 && a.status != 429 && a.status != 503 {
					t.Errorf("a wrong token is answered %s", a.body)
				}
			}
		})
		all.Go(func() {
			for range tries / 16 {
				conn := f.dial(t, false)
				_, _ = io.WriteString(conn, "POST /v1/locks/a?ttl=5s&wait=1m HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+root+
					"\r\nContent-Length: 100\r\nSignalbox-Session: reset-me-now\r\n\r\nhalf")
				_ = conn.(*net.TCPConn).SetLinger(0)
				_ = conn.Close()
			}
		})
	}
	honest()
	all.Wait()
	honest()
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 64<<20+int64(idle)*32<<10 {
		t.Errorf("the heap has grown by %d MiB", grown>>20)
	}
	f.ask("GET", "/v1/locks/a", "", "", "Authorization: Bearer "+root).wants(200)
	if !form.Is(form.Long) {
		return
	}
	// Those that never end their headers are cut.
	for i := 0; i < idle; i += 2 {
		_ = conns[i].SetDeadline(time.Now().Add(patience))
		if _, err := io.ReadAll(conns[i]); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Fatalf("a caller whose headers do not end keeps its connection: %v", err)
		}
	}
	slow := f.dial(t, true)
	defer slow.Close()
	_, _ = io.WriteString(slow, "PUT /v1/config/a HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+root+"\r\nContent-Length: 9\r\n\r\nslow")
	if b, err := io.ReadAll(slow); err != nil || !strings.Contains(string(b), " 400 ") {
		t.Errorf("a caller whose body does not end is answered %q, %v", b, err)
	}
}
