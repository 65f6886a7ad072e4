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
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/client"
)

// hostSuffix ends the host of a URL that names a service.
const hostSuffix = ".signalbox"

// ErrNoMembers: a service is known, and has no members that could be used.
var ErrNoMembers = errors.New("the service has no members")

// Transport sends requests to members of services. A request to http(s)://NAME.signalbox/ goes to a
// member of the service NAME: the better of two random ones of those that are used, by the requests
// in flight, the latency and the weight. It looks at 64 random ones to find these two. One that has
// failed rests for a second, longer with each failure in a row, while there are others. A member
// that fails five times in a row is left out for 10 s, and longer each time, up to 60 s; a failure
// is no connection, a timeout, and the statuses 502, 503 and 504.
//
// A connection that cannot be made, or its handshake of TLS, is no try, since nothing was sent: each
// member that is used may be connected to once for a request, while its context lasts. A request is
// tried once more, at another member if there is one, over a new connection, if its connection broke
// before a byte of the answer, and the method is idempotent or the request has an Idempotency-Key.
// At most 10 % of requests are tried again so, with 20 in hand. In both cases the body must be absent
// or have GetBody. Below that, net/http sends no request twice.
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
	// ServerName is the name that members' certificates must be valid for; empty: the URL's host.
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
	unpooled  *http.Transport // makes a connection for each request; nil: there was no need yet
	proto     int             // HTTP's version in its last answer; 0: unknown
	gone      bool            // it is not used any more
}

// mayUseHTTP2 reports whether its connections without TLS may be HTTP/2.
func (b *backend) mayUseHTTP2() bool {
	p := b.transport.Protocols
	return p != nil && p.UnencryptedHTTP2()
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
			b.backend = b
		}
		b.weight = e.weight()
		used[e.Addr] = b
		s.balance.backends = append(s.balance.backends, &b.load)
	}
	all := s.balance.backends // neighbours of the list may fail together, and a request looks at some in a row
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
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
	tr.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &countedConn{Conn: conn}, nil
	}
	tr.DialTLSContext = nil
	if name := s.t.ServerName; name != "" {
		if tr.TLSClientConfig == nil {
			tr.TLSClientConfig = &tls.Config{}
		}
		tr.TLSClientConfig.ServerName = name
	}
	return tr
}

// pick chooses a member for a request: with failed, another one than these, to which the request was
// not sent or whose answer did not come. It is nil if there is none.
func (s *httpService) pick(failed []*load) *backend {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.follow()
	if len(failed) == 0 {
		s.balance.request()
	}
	l := s.balance.pick(time.Now(), rand.Float64(), rand.Float64(), rand.Float64(), failed)
	if l == nil {
		return nil
	}
	return l.backend
}

// again chooses a member once more. It is nil if the member is not used any more.
func (s *httpService) again(b *backend) *backend {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.follow(); b.gone {
		return nil
	}
	b.choose()
	return b
}

func (s *httpService) mayRetry() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.balance.retry()
}

// roundTrip sends a request to one member after the other, until one has got it.
func (s *httpService) roundTrip(req *http.Request) (*http.Response, error) {
	b := s.pick(nil)
	if b == nil {
		closeBody(req)
		return nil, fmt.Errorf("%w: %q in %s", ErrNoMembers, s.name, s.t.Node)
	}
	var failed []*load
	fresh, retried := false, false
	for next := req; ; {
		resp, got, err := s.try(b, next, fresh)
		if err == nil || !maySendAgain(req, got) || got == sent && (retried || !s.mayRetry()) {
			return resp, err
		}
		was := b
		if got != stale { // of a stale connection, only that one is known to have ended
			failed = append(failed, &b.load)
			b = s.pick(failed)
		}
		if b == nil && got == sent || got == stale {
			b = s.again(was) // the only one is better than none
		}
		fresh, retried = fresh || got != connecting, retried || got == sent
		if b == nil {
			return nil, err
		}
		next = req.Clone(req.Context())
		if req.GetBody != nil {
			var bodyErr error
			if next.Body, bodyErr = req.GetBody(); bodyErr != nil {
				s.done(b)
				return nil, err
			}
		}
	}
}

// progress is how far a request came.
type progress uint8

const (
	connecting progress = iota // no connection was made, or no handshake of TLS
	stale                      // a connection that was there had ended, and nothing was written to it
	sent                       // something was, or may have been
	answered                   // a byte of the answer came
)

// maySendAgain reports whether a request that failed has had no effect, or may have it twice.
func maySendAgain(req *http.Request, got progress) bool {
	switch {
	case req.Context().Err() != nil, got == answered, req.Body != nil && req.Body != http.NoBody && req.GetBody == nil:
		return false
	case got == connecting, got == stale:
		return true
	}
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return hasKey(req)
}

func hasKey(req *http.Request) bool {
	return req.Header.Get("Idempotency-Key") != "" || req.Header.Get("X-Idempotency-Key") != ""
}

// once makes net/http send a request that it takes for idempotent only once: it would repeat it at
// the same member, beside the rules here, when a connection that was in use before breaks. It does
// not repeat what has a body without GetBody; an empty body of unknown length leaves no trace in
// HTTP/1. Nor does it know a key whose name is in lower case, which is the same name to a server.
// Over HTTP/2 it repeats only what the member has said not to have looked at.
func once(req *http.Request, http1 bool) *http.Request {
	if req.Body != nil && req.Body != http.NoBody {
		req.GetBody = nil
		return req
	}
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions:
		if http1 {
			req.Body, req.GetBody = emptyBody{}, nil
			return req
		}
	}
	if hasKey(req) {
		req.Header = req.Header.Clone()
		for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
			if values, ok := req.Header[name]; ok {
				delete(req.Header, name)
				req.Header[strings.ToLower(name)] = values
			}
		}
	}
	return req
}

// emptyBody is empty, and not the body that net/http knows to be.
type emptyBody struct{}

func (emptyBody) Read([]byte) (int, error) { return 0, io.EOF }
func (emptyBody) Close() error             { return nil }

// countedConn counts the bytes that are written.
type countedConn struct {
	net.Conn
	written atomic.Int64
}

// Write implements io.Writer.
func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.written.Add(int64(n))
	return n, err
}

// ReadFrom implements io.ReaderFrom, so that files are sent without a copy where the system can.
func (c *countedConn) ReadFrom(r io.Reader) (int64, error) {
	n, err := io.Copy(c.Conn, r)
	c.written.Add(n)
	return n, err
}

// attempt is a request at one member, as net/http's hooks see it, which run on several goroutines.
type attempt struct {
	mu      sync.Mutex
	got     progress
	began   time.Time
	conn    *countedConn // one that was there; nil: a new one
	written int64        // to it before
}

func (a *attempt) trace() *httptrace.ClientTrace {
	note := func(p progress) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.got = p
	}
	return &httptrace.ClientTrace{
		GetConn: func(string) { note(connecting) },
		GotConn: func(info httptrace.GotConnInfo) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.got, a.began = sent, time.Now() // making a connection is no latency
			a.conn = nil
			conn := info.Conn
			if secure, ok := conn.(*tls.Conn); ok {
				conn = secure.NetConn()
			}
			if counted, ok := conn.(*countedConn); ok && info.Reused {
				a.conn, a.written = counted, counted.written.Load()
			}
		},
		GotFirstResponseByte: func() { note(answered) },
	}
}

// outcome is how far the request came, and since when its connection was there.
func (a *attempt) outcome() (progress, time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.got == sent && a.conn != nil && a.conn.written.Load() == a.written {
		return stale, a.began
	}
	return a.got, a.began
}

// try sends a request to a member, over a new connection if fresh. came is how far it came.
func (s *httpService) try(b *backend, req *http.Request, fresh bool) (resp *http.Response, came progress, err error) {
	a := &attempt{began: time.Now()}
	s.mu.Lock()
	transport := b.transport
	if fresh {
		if b.unpooled == nil {
			b.unpooled = b.transport.Clone()
			b.unpooled.DisableKeepAlives = true
		}
		transport = b.unpooled
	}
	http1 := b.proto == 1 || b.proto == 0 && req.URL.Scheme == "http" && !b.mayUseHTTP2()
	s.mu.Unlock()
	own := once(req.WithContext(httptrace.WithClientTrace(req.Context(), a.trace())), http1)
	resp, err = transport.RoundTrip(own)
	now := time.Now()
	came, began := a.outcome()
	s.mu.Lock()
	if err == nil {
		b.answered(now, now.Sub(began))
		b.proto = resp.ProtoMajor
	}
	if errors.Is(err, context.Canceled) || err != nil && came == stale { // it says nothing of the member
		b.probing = false
	} else {
		s.balance.result(now, &b.load, err != nil || resp.StatusCode >= 502 && resp.StatusCode <= 504)
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
