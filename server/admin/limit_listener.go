package admin

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"

	"github.com/signalbox-dev/signalbox/server/clienthost"
	"github.com/signalbox-dev/signalbox/server/web"
)

const (
	// MaxConnections is the usual limit of LimitListener.
	MaxConnections = 128

	// reservedConnections is how many more there may be, for health and readiness alone.
	reservedConnections = 16
)

// LimitListener accepts at most n connections at a time, and a few more for health and readiness.
// Its connections are for a server that [Server] made, which tracks what they do.
//
// While the listener is full, a new connection replaces the one that has waited longest for a
// request, or for the rest of a header: of the client host that has the most. If all connections
// are being served, or those of one host have three quarters of the limit, the new one may ask
// for health and readiness only. So neither idle connections nor slow requests keep a probe out,
// and a client that fills the listener takes no descriptors from other clients.
func LimitListener(l net.Listener, n int) net.Listener {
	return &limitedListener{Listener: l, limit: n, hostLimit: max(1, n*3/4), open: make(map[*limitedConn]bool)}
}

type limitedListener struct {
	net.Listener
	limit, hostLimit int // of all places; of those of one host

	mu   sync.Mutex
	open map[*limitedConn]bool
	seq  uint64
}

type limitedConn struct {
	net.Conn
	listener *limitedListener
	host     string

	checked bool // the first byte was checked; owned by the reading goroutine

	// The listener's mutex guards these.
	reserved bool   // it is in the reserve
	busy     bool   // a request of it is being served
	seq      uint64 // order of the last changes of busy
}

// Accept returns the next connection within the limits.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		p := &limitedConn{Conn: c, listener: l, host: clienthost.Of(c.RemoteAddr().String())}
		evicted, ok := l.admit(p)
		if evicted != nil {
			_ = evicted.Conn.Close() // the server notices, and closes it as well
		}
		if ok {
			return p, nil
		}
		web.Refuse(c, http.StatusServiceUnavailable, "too many connections; close some first")
		_ = c.Close()
	}
}

// admit admits a connection, if need be in the place of another one, which the caller closes.
func (l *limitedListener) admit(p *limitedConn) (evicted *limitedConn, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	places, own, spare := 0, 0, 0
	for o := range l.open {
		switch {
		case o.reserved:
			spare++
		default:
			places++
			if o.host == p.host {
				own++
			}
		}
	}
	if places >= l.limit || own >= l.hostLimit {
		host := ""
		if own >= l.hostLimit {
			host = p.host
		}
		evicted = l.longestIdle(false, host)
		p.reserved = evicted == nil
	}
	if p.reserved && spare >= reservedConnections {
		if evicted = l.longestIdle(true, ""); evicted == nil {
			return nil, false
		}
	}
	if evicted != nil {
		delete(l.open, evicted)
	}
	l.seq++
	p.seq = l.seq
	l.open[p] = true
	return evicted, true
}

// longestIdle is the connection that has been idle longest: of one host, or, if host is empty, of
// the host that has the most; nil if all are busy. The caller has the mutex.
func (l *limitedListener) longestIdle(reserve bool, host string) (found *limitedConn) {
	count := make(map[string]int)
	for o := range l.open {
		if o.reserved == reserve {
			count[o.host]++
		}
	}
	for o := range l.open {
		if o.reserved != reserve || o.busy || host != "" && o.host != host {
			continue
		}
		if found == nil || count[o.host] > count[found.host] || count[o.host] == count[found.host] && o.seq < found.seq {
			found = o
		}
	}
	return found
}

// setState records what a connection does. A connection whose header is incomplete is not busy.
func (l *limitedConn) setState(s http.ConnState) {
	b := l.listener
	b.mu.Lock()
	defer b.mu.Unlock()
	l.busy = s == http.StateActive
	b.seq++
	l.seq = b.seq
}

// isReserved reports whether a connection may ask for health and readiness only.
func (l *limitedConn) isReserved() bool {
	l.listener.mu.Lock()
	defer l.listener.mu.Unlock()
	return l.reserved
}

// Close frees the connection's place.
func (l *limitedConn) Close() error {
	l.listener.mu.Lock()
	delete(l.listener.open, l)
	l.listener.mu.Unlock()
	return l.Conn.Close()
}

type connKey struct{}

// trackConnections has a server report the state of its connections to a limited listener, and lets
// handlers find a request's connection.
func trackConnections(s *http.Server) {
	s.ConnState = func(c net.Conn, state http.ConnState) {
		if p, ok := c.(*limitedConn); ok && (state == http.StateActive || state == http.StateIdle) {
			p.setState(state)
		}
	}
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) }
}

// isReserved reports whether a request came over a reserved connection.
func isReserved(r *http.Request) bool {
	p, ok := r.Context().Value(connKey{}).(*limitedConn)
	return ok && p.isReserved()
}

// Read checks the first byte. A client of the coordination protocol or of TLS with the wrong address
// is told: the HTTP server would wait for the end of a line.
func (l *limitedConn) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if n > 0 && !l.checked {
		l.checked = true
		if b[0] < 'A' || b[0] > 'Z' {
			web.Refuse(l.Conn, http.StatusBadRequest, "this is the address for operators; it takes HTTP")
			return 0, io.EOF
		}
	}
	return n, err
}
