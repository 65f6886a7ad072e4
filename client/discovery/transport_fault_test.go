package discovery_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client/discovery"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/port"
)

// closing is a member that reads requests, and closes their connections without an answer while its
// fleet is broken.
type closing struct {
	net.Listener
	requests *atomic.Int64
	broken   *atomic.Bool
	keys     chan string
}

func (m *closing) serve(conns *sync.WaitGroup) {
	for conn, err := m.Accept(); err == nil; conn, err = m.Accept() {
		conns.Go(func() {
			defer conn.Close()
			in := bufio.NewReader(conn)
			for {
				req, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, req.Body)
				m.requests.Add(1)
				if key := req.Header.Get("Idempotency-Key"); key != "" {
					m.keys <- key
				}
				if m.broken.Load() {
					return
				}
				fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n%d%d", len(req.TransferEncoding), min(req.ContentLength, 9))
			}
		})
	}
}

// closingFleet is two such members, and an HTTP client that has a connection to each.
func closingFleet(t *testing.T) (hc *http.Client, requests *atomic.Int64, broken *atomic.Bool, keys chan string) {
	srv := servertest.Start(t, servertest.RealTime())
	c := dial(t, srv)
	requests, broken, keys = new(atomic.Int64), new(atomic.Bool), make(chan string, 1000)
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		t.Cleanup(func() { _ = l.Close() })
		m := &closing{l, requests, broken, keys}
		running.Go(func() { m.serve(&running) })
		register(t, srv, discovery.Endpoint{Addr: l.Addr().String()})
	}
	serving(t, c, count(2))
	hc = httpClient(t, &discovery.Transport{Client: c, Node: "/default"})
	t.Cleanup(hc.CloseIdleConnections)
	var calls sync.WaitGroup
	for range 20 { // both have connections that were in use
		calls.Go(func() {
			if got := get(t, hc, "http://api.signalbox/"); got != "00" {
				t.Errorf("a GET has coding and length %s", got)
			}
		})
	}
	calls.Wait()
	return hc, requests, broken, keys
}

// TestHTTPSendsTwiceAtMost: members that close their connections before they answer get a request
// once each, and never again below the rules here; and no more than the retries in hand.
func TestHTTPSendsTwiceAtMost(t *testing.T) {
	hc, requests, broken, keys := closingFleet(t)
	send := func(method, key string, body io.Reader) error {
		req, err := http.NewRequestWithContext(t.Context(), method, "http://api.signalbox/", body)
		must(t, err)
		if key != "" {
			req.Header.Set("Idempotency-Key", key)
		}
		resp, err := hc.Do(req)
		if err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		return err
	}
	for _, x := range []struct {
		method, key string
		body        string
		want        int64
	}{
		{"GET", "", "", 2},
		{"HEAD", "", "", 2},
		{"OPTIONS", "", "", 2},
		{"GET", "", "body", 2},
		{"DELETE", "", "", 2},
		{"PUT", "", "body", 2},
		{"POST", "7", "body", 2},
		{"POST", "8", "", 2},
		{"POST", "", "body", 1},
		{"POST", "", "", 1},
	} {
		var body func() io.Reader = func() io.Reader { return nil }
		if x.body != "" {
			body = func() io.Reader { return strings.NewReader(x.body) }
		}
		broken.Store(false)
		for range 4 {
			must(t, send("GET", "", nil))
		}
		broken.Store(true)
		before := requests.Load()
		if err := send(x.method, x.key, body()); err == nil {
			t.Errorf("%s %q is answered", x.method, x.key)
		}
		if n := requests.Load() - before; n != x.want {
			t.Errorf("%s with key %q and body %q is sent %d times, want %d", x.method, x.key, x.body, n, x.want)
		}
	}
	if a, b := <-keys, <-keys; a != "7" || b != "7" {
		t.Errorf("the keys are %s and %s", a, b)
	}
	before := requests.Load()
	const calls = 200
	for range calls {
		_ = send("GET", "", nil)
	}
	if n := requests.Load() - before; n < calls || n > calls+20+calls/10 {
		t.Errorf("%d calls send %d requests", calls, n)
	}
}

// TestHTTPConnectsToEachOnce: a connection that is refused is no try. Each member is connected to once,
// while the time of the request lasts, whatever its method and however few retries are in hand.
func TestHTTPConnectsToEachOnce(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	c := dial(t, srv)
	const dead = 20
	for range dead {
		register(t, srv, discovery.Endpoint{Addr: port.ForTest(t), Weight: discovery.MaxWeight})
	}
	serving(t, c, count(dead))
	var mu sync.Mutex
	dialled := map[string]int{}
	transport := func() *http.Client {
		return httpClient(t, &discovery.Transport{Client: c, Node: "/default", Base: &http.Transport{
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				mu.Lock()
				dialled[addr]++
				mu.Unlock()
				return new(net.Dialer).DialContext(ctx, network, addr)
			},
		}})
	}
	if resp, err := transport().Post("http://api.signalbox/", "text/plain", strings.NewReader("body")); err == nil {
		resp.Body.Close()
		t.Error("answered by nobody")
	}
	if len(dialled) != dead {
		t.Errorf("%d of %d members are connected to", len(dialled), dead)
	}
	for addr, n := range dialled {
		if n != 1 {
			t.Errorf("%s is connected to %d times", addr, n)
		}
	}
	good := serveWeb(t, srv, nil)
	serving(t, c, count(dead+1))
	for range 30 { // more than the retries in hand, all from nothing
		resp, err := transport().Post("http://api.signalbox/", "text/plain", strings.NewReader("body"))
		must(t, err)
		resp.Body.Close()
	}
	if n := good.calls.Load(); n != 30 {
		t.Errorf("%d calls", n)
	}
	// A request whose time is over connects no further.
	ctx, cancel := context.WithCancel(t.Context())
	clear(dialled)
	hc := httpClient(t, &discovery.Transport{Client: c, Node: "/default", Base: &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			if dialled["any"]++; dialled["any"] == 3 {
				cancel()
			}
			return nil, io.ErrUnexpectedEOF
		},
	}})
	req, err := http.NewRequestWithContext(ctx, "GET", "http://api.signalbox/", nil)
	must(t, err)
	if resp, err := hc.Do(req); err == nil {
		resp.Body.Close()
		t.Error("answered")
	}
	mu.Lock()
	defer mu.Unlock()
	if dialled["any"] != 3 {
		t.Errorf("connected %d times", dialled["any"])
	}
}

// backendsEnv makes the test binary a process of HTTP servers at these addresses.
const backendsEnv = "SIGNALBOX_TEST_BACKENDS"

// runBackends says "ready" when all listen, and answers until standard input ends.
func runBackends(addresses string) error {
	for _, address := range strings.Fields(addresses) {
		l, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		go func() {
			_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }))
		}()
	}
	fmt.Println("ready")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// TestHTTPManyKilled: 50 of 200 members are killed at once, in the middle of calls from everywhere.
// Their registrations stay for the time of their sessions, and no call fails. A call of the moment in
// which the process ends may be sent to two of its members, whose listeners go one after the other, and
// is not sent a third time.
func TestHTTPManyKilled(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	c := dial(t, srv)
	const processes, each = 4, 50
	var killed *exec.Cmd
	for range processes {
		var addresses []string
		for range each { // nobody else gets them when the process is killed
			addresses = append(addresses, port.ForTest(t))
		}
		p := exec.CommandContext(t.Context(), os.Args[0])
		p.Env = append(os.Environ(), backendsEnv+"="+strings.Join(addresses, " "))
		p.Stderr = os.Stderr
		in, err := p.StdinPipe()
		must(t, err)
		out, err := p.StdoutPipe()
		must(t, err)
		must(t, p.Start())
		t.Cleanup(func() {
			_ = in.Close()
			_ = p.Process.Kill()
			_ = p.Wait()
		})
		if lines := bufio.NewScanner(out); !lines.Scan() {
			t.Fatal("a process of backends has ended: ", lines.Err())
		}
		for _, address := range addresses {
			s, err := c.Session(t.Context(), "/default")
			must(t, err)
			_, err = discovery.Register(t.Context(), s, "api", discovery.Endpoint{Addr: address})
			must(t, err)
		}
		killed = p
	}
	all := discovery.Subset(0)
	until(t, watch(t, c, "/default", all), count(processes*each))
	hc := httpClient(t, &discovery.Transport{Client: c, Node: "/default", Options: []discovery.WatchOption{all}})
	t.Cleanup(hc.CloseIdleConnections)
	var calls, met atomic.Int64
	const ( // of the process
		alive = iota
		ending
		gone
	)
	var process atomic.Int64
	var callers sync.WaitGroup
	stop := make(chan struct{})
	for range 8 {
		callers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				began := process.Load()
				req, err := http.NewRequestWithContext(ctx, "GET", "http://api.signalbox/", nil)
				if err == nil {
					var resp *http.Response
					if resp, err = hc.Do(req); err == nil {
						_, err = io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
					}
				}
				switch cancel(); {
				case err == nil:
				case began != gone && process.Load() != alive:
					met.Add(1)
				default:
					t.Error(err)
				}
				calls.Add(1)
			}
		})
	}
	more := func(n int64) {
		for end := calls.Load() + n; calls.Load() < end; {
			time.Sleep(time.Millisecond)
		}
	}
	more(1000) // each has connections by then
	process.Store(ending)
	must(t, killed.Process.Kill())
	_ = killed.Wait()
	process.Store(gone)
	more(2000)
	close(stop)
	callers.Wait()
	t.Logf("%d calls, %d of them met the process twice", calls.Load(), met.Load())
	if met.Load() > each/2 { // without a second try, a call fails for each of its members
		t.Error("too many calls met the process twice")
	}
}

// endedConn is a connection that takes one request, and no byte of the next one.
type endedConn struct {
	net.Conn
	writes atomic.Int64
}

func (c *endedConn) Write(p []byte) (int, error) {
	if c.writes.Add(1) > 1 {
		return 0, io.ErrClosedPipe
	}
	return c.Conn.Write(p)
}

// TestHTTPStaleConnection: where a connection of an earlier request turns out to have ended before a
// byte was written to it, any request goes to the same member by a new one, and takes no retry.
func TestHTTPStaleConnection(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	c := dial(t, srv)
	only := serveWeb(t, srv, nil)
	serving(t, c, count(1))
	hc := httpClient(t, &discovery.Transport{Client: c, Node: "/default", Base: &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return &endedConn{Conn: conn}, err
		},
	}})
	t.Cleanup(hc.CloseIdleConnections)
	for range 30 {
		get(t, hc, "http://api.signalbox/")
		resp, err := hc.Post("http://api.signalbox/", "text/plain", strings.NewReader("body"))
		must(t, err)
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	if n := only.calls.Load(); n != 60 {
		t.Errorf("%d calls", n)
	}
}

// TestHTTP2: requests without a body have none over HTTP/2 either.
func TestHTTP2(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	c := dial(t, srv)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		fmt.Fprint(w, req.Proto, " ", req.ContentLength)
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	register(t, srv, discovery.Endpoint{Addr: s.Listener.Addr().String()})
	serving(t, c, count(1))
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	hc := httpClient(t, &discovery.Transport{Client: c, Node: "/default", ServerName: "example.com",
		Base: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}})
	t.Cleanup(hc.CloseIdleConnections)
	for range 3 {
		if got := get(t, hc, "https://api.signalbox/"); got != "HTTP/2.0 0" {
			t.Error(got)
		}
	}
}
