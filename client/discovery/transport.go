package discovery

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client"
)

// hostSuffix ends the host of a URL that names a service.
const hostSuffix = ".signalbox"

// ErrNoMembers: a service is known, and has no members that could be used.
var ErrNoMembers = errors.New("the service has no members")

// Transport sends requests to members of services. A request to http(s)://NAME.signalbox/ goes to a
// member of the service NAME: the better of two random ones of those that are used, by the requests
// in flight, the latency and the weight. One that has failed rests for a second, longer with each
// failure in a row, while there are others. A member that fails five times in a row is left out for 10
// s, and longer each time, up to 60 s; a failure is no connection, a timeout, and the statuses 502,
// 503 and 504.
//
// A request is tried once more, at another member, if no connection was made, or no handshake of TLS;
// or if the connection broke before a byte of the answer, and the method is idempotent or the request
// has an Idempotency-Key. Its body must be absent or have GetBody. At most 10 % of requests are tried
// again, with 20 in hand.
//
// The Host header is the URL's. TLS verifies the certificate for NAME.signalbox, or for ServerName,
// and never for an address. A port in such a URL is an error. Fields must not be changed once
// there was a request.
type Transport struct {
	Client *client.Client
	Node   string
	// Base is for every other host; nil is http.DefaultTransport. If it is a *http.Transport, its
	// settings are those of connections to members too, except Proxy.
	Base http.RoundTripper
	// ServerName is what members' certificates are for; empty: the URL's host.
	ServerName string
	// Options are those of Watch, such as InZone.
	Options []WatchOption

	mu       sync.Mutex
	services map[string]*httpService
	closed   bool
}

func (t *Transport) base() http.RoundTripper {
	if t.Base == nil {
		return http.DefaultTransport
	}
	return t.Base
}

// RoundTrip implements http.RoundTripper. If nothing is known of the service it waits, until the
// request's context ends.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	name, ok := strings.CutSuffix(req.URL.Host, hostSuffix)
	if host := req.URL.Hostname(); host != req.URL.Host && strings.HasSuffix(host, hostSuffix) {
		closeBody(req)
		return nil, fmt.Errorf("%q has a port; members have their own, so leave it out", req.URL.Host)
	}
	if !ok {
		return t.base().RoundTrip(req)
	}
	s, err := t.service(name)
	if err == nil {
		err = s.endpoints.Wait(req.Context())
	}
	if err != nil {
		closeBody(req)
		return nil, err
	}
	return s.roundTrip(req)
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}

// service is the service of a name, which is watched from the first request on.
func (t *Transport) service(name string) (*httpService, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, ErrClosed
	}
	if s := t.services[name]; s != nil {
		return s, nil
	}
	e, err := Watch(t.Client, t.Node, name, t.Options...)
	if err != nil {
		return nil, err
	}
	if t.services == nil {
		t.services = map[string]*httpService{}
	}
	s := &httpService{t: t, name: name, endpoints: e, balance: newBalance(), backends: map[string]*backend{}}
	t.services[name] = s
	return s, nil
}

// CloseIdleConnections closes connections that are not in use.
func (t *Transport) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.services {
		s.mu.Lock()
		for _, b := range s.backends {
			b.transport.CloseIdleConnections()
		}
		s.mu.Unlock()
	}
}

// Close ends the watches, and closes connections that are not in use. Requests fail from then on.
func (t *Transport) Close() {
	t.CloseIdleConnections()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for _, s := range t.services {
		s.endpoints.Close()
	}
}

// httpService is one service of a Transport.
type httpService struct {
	t         *Transport
	name      string
	endpoints *Endpoints

	mu       sync.Mutex
	view     *View // that backends are made of
	balance  *balance
	backends map[string]*backend // by address
}

// backend is an endpoint with connections of its own.
type backend struct {
	load
	transport *http.Transport
	gone      bool // it is not used any more
}

// follow makes the backends of the present view. Connections of those that are gone are closed
// when they are idle. mu is held.
func (s *httpService) follow() {
	v := s.endpoints.View()
	if v == s.view {
		return
	}
	s.view = v
	used := map[string]*backend{}
	s.balance.backends = s.balance.backends[:0]
	for _, e := range v.Used {
		b := s.backends[e.Addr]
		if b == nil {
			b = &backend{transport: s.newTransport(e.Addr)}
		}
		b.weight = e.weight()
		used[e.Addr] = b
		s.balance.backends = append(s.balance.backends, &b.load)
	}
	for addr, b := range s.backends {
		if used[addr] == nil {
			b.gone = true
			b.transport.CloseIdleConnections()
		}
	}
	s.backends = used
}

func (s *httpService) newTransport(addr string) *http.Transport {
	base, ok := s.t.base().(*http.Transport)
	if !ok {
		base = http.DefaultTransport.(*http.Transport)
	}
	tr := base.Clone()
	tr.Proxy = nil
	dial := tr.DialContext
	if dial == nil {
		dial = (&net.Dialer{Timeout: 10 * time.Second}).DialContext
	}
	tr.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) { return dial(ctx, network, addr) }
	tr.DialTLSContext = nil
	if name := s.t.ServerName; name != "" {
		if tr.TLSClientConfig == nil {
			tr.TLSClientConfig = &tls.Config{}
		}
		tr.TLSClientConfig.ServerName = name
	}
	return tr
}

func (s *httpService) pick(not *backend) *backend {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.follow()
	var other *load
	if not != nil {
		other = &not.load
	} else {
		s.balance.request()
	}
	l := s.balance.pick(time.Now(), rand.Float64(), rand.Float64(), other)
	for _, b := range s.backends {
		if &b.load == l {
			return b
		}
	}
	return nil
}

func (s *httpService) roundTrip(req *http.Request) (*http.Response, error) {
	b := s.pick(nil)
	if b == nil {
		closeBody(req)
		return nil, fmt.Errorf("%w: %q in %s", ErrNoMembers, s.name, s.t.Node)
	}
	resp, got, err := s.try(b, req)
	if err == nil || !mayRetry(req, got) {
		return resp, err
	}
	again := req.Clone(req.Context())
	if req.GetBody != nil {
		var bodyErr error
		if again.Body, bodyErr = req.GetBody(); bodyErr != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	allowed := s.balance.retry()
	s.mu.Unlock()
	if !allowed {
		closeBody(again)
		return nil, err
	}
	if b = s.pick(b); b == nil {
		closeBody(again)
		return nil, err
	}
	resp, _, err = s.try(b, again)
	return resp, err
}

// progress is how far a request came.
type progress uint8

const (
	connecting progress = iota // no connection was made, or no handshake of TLS
	connected
	answered // a byte of the answer came
)

// mayRetry reports whether a request that failed has had no effect, or may have it twice.
func mayRetry(req *http.Request, got progress) bool {
	switch {
	case req.Context().Err() != nil, got == answered, req.Body != nil && req.Body != http.NoBody && req.GetBody == nil:
		return false
	case got == connecting:
		return true
	}
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return req.Header.Get("Idempotency-Key") != "" || req.Header.Get("X-Idempotency-Key") != ""
}

// try sends a request to a member. came is how far it came.
func (s *httpService) try(b *backend, req *http.Request) (resp *http.Response, came progress, err error) {
	var mu sync.Mutex // of got and began
	var got progress
	began := time.Now()
	note := func(p progress) {
		mu.Lock()
		defer mu.Unlock()
		if got = p; p == connected {
			began = time.Now() // making a connection is no latency
		}
	}
	ctx := httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GetConn:              func(string) { note(connecting) }, // also when it needs another one than a broken one
		GotConn:              func(httptrace.GotConnInfo) { note(connected) },
		GotFirstResponseByte: func() { note(answered) },
	})
	resp, err = b.transport.RoundTrip(req.WithContext(ctx))
	now := time.Now()
	mu.Lock()
	came = got
	took := now.Sub(began)
	mu.Unlock()
	s.mu.Lock()
	if err == nil {
		b.answered(now, took)
	}
	if !errors.Is(err, context.Canceled) {
		s.balance.result(now, &b.load, err != nil || resp.StatusCode >= 502 && resp.StatusCode <= 504)
	} else {
		b.probing = false
	}
	s.mu.Unlock()
	if err != nil {
		s.done(b)
		return nil, came, fmt.Errorf("service %q: %w", s.name, err)
	}
	resp.Request = req
	body := &countedBody{ReadCloser: resp.Body, done: sync.OnceFunc(func() { s.done(b) })}
	if w, ok := resp.Body.(io.Writer); ok { // an upgraded connection
		resp.Body = struct {
			*countedBody
			io.Writer
		}{body, w}
	} else {
		resp.Body = body
	}
	return resp, came, nil
}

// done ends a request.
func (s *httpService) done(b *backend) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.inFlight--
	if b.gone && b.inFlight == 0 {
		b.transport.CloseIdleConnections()
	}
}

// countedBody notices the end of an answer.
type countedBody struct {
	io.ReadCloser
	done func()
}

// Read implements io.Reader.
func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.done()
	}
	return n, err
}

// Close implements io.Closer.
func (b *countedBody) Close() error {
	err := b.ReadCloser.Close()
	b.done()
	return err
}
