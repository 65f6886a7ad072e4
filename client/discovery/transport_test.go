package discovery_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/discovery"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/port"
)

// web is a member that answers by HTTP.
type web struct {
	*httptest.Server
	calls atomic.Int64
	r     *discovery.Registration
}

func serveWeb(t *testing.T, srv *servertest.Server, handle http.HandlerFunc) *web {
	t.Helper()
	w := &web{}
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		w.calls.Add(1)
		if handle != nil {
			handle(rw, req)
			return
		}
		fmt.Fprintf(rw, "%s %s", req.Host, w.addr())
	}))
	t.Cleanup(w.Close)
	w.r = register(t, srv, discovery.Endpoint{Addr: w.addr()})
	return w
}

func (w *web) addr() string { return w.Listener.Addr().String() }

func httpClient(t *testing.T, tr *discovery.Transport) *http.Client {
	t.Cleanup(tr.Close)
	return &http.Client{Transport: tr}
}

func get(t *testing.T, c *http.Client, url string) string {
	t.Helper()
	resp, err := c.Get(url)
	must(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	must(t, err)
	return string(b)
}

// serving waits until a client's requests go to so many members: the view of the client's copy.
func serving(t *testing.T, c *client.Client, ok func(v *discovery.View) bool) {
	t.Helper()
	until(t, watch(t, c, "/default"), ok)
}

func count(n int) func(*discovery.View) bool {
	return func(v *discovery.View) bool { return v.Known && len(v.Used) == n }
}

// TestHTTPDrain: requests are spread over the members. One that drains gets no new ones, fails none,
// and its end fails none either. While the cluster is away, everything goes on.
func TestHTTPDrain(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	c := dial(t, srv)
	hold, held := make(chan struct{}), make(chan struct{})
	a := serveWeb(t, srv, func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/slow" {
			close(held)
			<-hold
		}
		fmt.Fprint(w, req.Host)
	})
	b := serveWeb(t, srv, nil)
	serving(t, c, count(2))
	hc := httpClient(t, &discovery.Transport{Client: c, Node: "/default"})
	t.Cleanup(func() {
		if t.Failed() {
			select {
			case <-hold:
			default:
				close(hold)
			}
		}
	})
	for range 100 {
		if got := get(t, hc, "http://api.signalbox/v1"); !strings.HasPrefix(got, "api.signalbox") {
			t.Fatalf("the Host header: %q", got)
		}
	}
	if a.calls.Load()+b.calls.Load() != 100 || a.calls.Load() == 0 || b.calls.Load() == 0 {
		t.Errorf("%d and %d calls", a.calls.Load(), b.calls.Load())
	}

	// b drains, so that the slow request is a's.
	drain, over := context.WithCancel(t.Context())
	var drained sync.WaitGroup
	drained.Go(func() { _ = b.r.Drain(drain, discovery.MaxGrace) })
	serving(t, c, count(1))
	before := b.calls.Load()
	slow := make(chan string)
	go func() {
		resp, err := hc.Get("http://api.signalbox/slow")
		if err != nil {
			slow <- err.Error()
			return
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		slow <- string(text)
	}()
	<-held
	for range 20 {
		get(t, hc, "http://api.signalbox/v1")
	}
	if n := b.calls.Load() - before; n != 0 {
		t.Errorf("a member that drains gets %d calls", n)
	}
	over() // it leaves
	drained.Wait()
	b.Close()
	serving(t, c, func(v *discovery.View) bool { return len(v.All) == 1 })
	third := serveWeb(t, srv, nil)
	serving(t, c, count(2))
	must(t, a.r.Drain(t.Context(), 0)) // its request goes on
	serving(t, c, func(v *discovery.View) bool { return len(v.All) == 1 && v.All[0].Addr == third.addr() })
	if got := get(t, hc, "http://api.signalbox/v1"); got != "api.signalbox "+third.addr() {
		t.Error(got)
	}
	close(hold)
	if got := <-slow; got != "api.signalbox" {
		t.Error(got)
	}
	srv.Unreachable()
	serving(t, c, func(v *discovery.View) bool { return !v.Live })
	for range 20 {
		get(t, hc, "http://api.signalbox/v1")
	}
}

// TestHTTPRetries: where no connection is made, or one breaks, a request is tried elsewhere once, if
// it may be sent twice.
func TestHTTPRetries(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	c := dial(t, srv)
	good := serveWeb(t, srv, func(w http.ResponseWriter, req *http.Request) {
		b, _ := io.ReadAll(req.Body)
		fmt.Fprintf(w, "%s %s", req.Method, b)
	})
	register(t, srv, discovery.Endpoint{Addr: port.ForTest(t), Weight: discovery.MaxWeight}) // nobody listens; is preferred
	serving(t, c, count(2))
	hc := httpClient(t, &discovery.Transport{Client: c, Node: "/default"})
	for range 10 {
		resp, err := hc.Post("http://api.signalbox/", "text/plain", strings.NewReader("body"))
		must(t, err)
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(b) != "POST body" {
			t.Fatalf("%q", b)
		}
	}
	if good.calls.Load() != 10 {
		t.Errorf("%d calls", good.calls.Load())
	}
	req, err := http.NewRequestWithContext(t.Context(), "POST", "http://api.signalbox/", io.MultiReader(strings.NewReader("only once")))
	must(t, err)
	for range 10 { // a body that cannot be had again is not sent again
		if resp, err := httpClient(t, &discovery.Transport{Client: c, Node: "/default"}).Do(req); err == nil {
			resp.Body.Close()
			continue
		} else if !strings.Contains(err.Error(), "connection refused") {
			t.Error(err)
		}
		return
	}
	t.Error("a request with such a body is tried again")
}

// TestHTTPSRetries: where a handshake fails nothing was sent, so any request is tried elsewhere.
func TestHTTPSRetries(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	c := dial(t, srv)
	good := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		b, _ := io.ReadAll(req.Body)
		fmt.Fprintf(w, "%s %s", req.Method, b)
	}))
	defer good.Close()
	register(t, srv, discovery.Endpoint{Addr: good.Listener.Addr().String()})
	broken, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	var refused atomic.Int64
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for conn, err := broken.Accept(); err == nil; conn, err = broken.Accept() {
			refused.Add(1)
			_ = conn.Close()
		}
	})
	defer accepting.Wait()
	defer broken.Close()
	register(t, srv, discovery.Endpoint{Addr: broken.Addr().String(), Weight: discovery.MaxWeight}) // is preferred
	serving(t, c, count(2))
	roots := x509.NewCertPool()
	roots.AddCert(good.Certificate())
	hc := httpClient(t, &discovery.Transport{Client: c, Node: "/default", ServerName: "example.com",
		Base: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}})
	for range 10 {
		resp, err := hc.Post("https://api.signalbox/", "text/plain", strings.NewReader("body"))
		must(t, err)
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(b) != "POST body" {
			t.Fatalf("%q", b)
		}
	}
	if refused.Load() == 0 {
		t.Error("the broken member was never tried")
	}
}

// TestOwnAddress: a program that is a member of the service that it calls, by one client, is called
// like any other member. A member without an address is refused.
func TestOwnAddress(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	c := dial(t, srv)
	s, err := c.Session(t.Context(), "/default")
	must(t, err)
	own := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "own") }))
	defer own.Close()
	_, err = discovery.Register(t.Context(), s, "api", discovery.Endpoint{Addr: own.Listener.Addr().String()})
	must(t, err)
	serving(t, c, count(1))
	if got := get(t, httpClient(t, &discovery.Transport{Client: c, Node: "/default"}), "http://api.signalbox/"); got != "own" {
		t.Error(got)
	}
	other, err := c.Session(t.Context(), "/default")
	must(t, err)
	if _, err := discovery.Register(t.Context(), other, "api", discovery.Endpoint{Zone: "SAS"}); err == nil || !strings.Contains(err.Error(), "addr is missing; it is host:port") {
		t.Error(err)
	}
}

// TestHTTPBreaks: a connection that breaks before the answer is tried elsewhere only for what may
// be done twice.
func TestHTTPBreaks(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	c := dial(t, srv)
	var broken atomic.Int64
	for range 2 {
		serveWeb(t, srv, func(w http.ResponseWriter, _ *http.Request) {
			if broken.Add(-1) >= 0 {
				panic(http.ErrAbortHandler)
			}
		})
	}
	serving(t, c, count(2))
	hc := httpClient(t, &discovery.Transport{Client: c, Node: "/default", Base: &http.Transport{DisableKeepAlives: true}})
	do := func(method, key string) error {
		broken.Store(1)
		req, err := http.NewRequestWithContext(t.Context(), method, "http://api.signalbox/", nil)
		must(t, err)
		if key != "" {
			req.Header.Set("Idempotency-Key", key)
		}
		resp, err := hc.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	if err := do("GET", ""); err != nil {
		t.Error(err)
	}
	if err := do("POST", "7"); err != nil {
		t.Error(err)
	}
	if err := do("POST", ""); err == nil {
		t.Error("a POST is sent twice")
	}
}

// TestHTTPWithoutMembers: each reason is said.
func TestHTTPWithoutMembers(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	c := dial(t, srv)
	hc := httpClient(t, &discovery.Transport{Client: c, Node: "/default"})
	other := httpClient(t, &discovery.Transport{Client: c, Node: "/none"})
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "plain") }))
	defer plain.Close()
	if got := get(t, hc, plain.URL); got != "plain" {
		t.Error(got)
	}
	for _, x := range []struct {
		c         *http.Client
		url, want string
	}{
		{hc, "http://api.signalbox/", `the service has no members: "api" in /default`},
		{hc, "http://api.signalbox:80/", `"api.signalbox:80" has a port`},
		{hc, "http://.signalbox/", "the service's name is empty"},
		{other, "http://api.signalbox/", "node"},
	} {
		_, err := x.c.Get(x.url)
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v", x.url, err)
		}
	}
	if _, err := hc.Get("http://api.signalbox/"); !errors.Is(err, discovery.ErrNoMembers) {
		t.Error(err)
	}
	if _, err := other.Get("http://api.signalbox/"); !errors.Is(err, client.ErrNotFound) {
		t.Error(err)
	}
	far := dial(t, srv)
	srv.Unreachable()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", "http://api.signalbox/", nil)
	must(t, err)
	if _, err := httpClient(t, &discovery.Transport{Client: far, Node: "/default"}).Do(req); err == nil || !strings.Contains(err.Error(), "nothing is known") {
		t.Error(err)
	}
}

// TestHTTPS: a certificate is for the name of the service, or for ServerName, never for the address
// that httptest's is for as well.
func TestHTTPS(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	c := dial(t, srv)
	w := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { fmt.Fprint(w, req.Host, " ", req.Proto) }))
	w.EnableHTTP2 = true
	w.Config.ErrorLog = nil
	w.StartTLS()
	defer w.Close()
	register(t, srv, discovery.Endpoint{Addr: w.Listener.Addr().String()})
	serving(t, c, count(1))
	roots := x509.NewCertPool()
	roots.AddCert(w.Certificate())
	base := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	if got := get(t, httpClient(t, &discovery.Transport{Client: c, Node: "/default", Base: base, ServerName: "example.com"}), "https://api.signalbox/"); got != "api.signalbox HTTP/2.0" {
		t.Error(got)
	}
	_, err := httpClient(t, &discovery.Transport{Client: c, Node: "/default", Base: base}).Get("https://api.signalbox/")
	if err == nil || !strings.Contains(err.Error(), "api.signalbox") || !strings.Contains(err.Error(), "certificate") {
		t.Error(err)
	}
}
