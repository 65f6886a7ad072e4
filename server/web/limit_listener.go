package web

import (
	"container/list"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/signalbox-dev/signalbox/server/clienthost"
	"github.com/signalbox-dev/signalbox/shard/container"
)

// LimitListener accepts at most limit connections at a time. One more takes the place of a
// connection that KeepConnection does not keep now: of one that it never kept, if there is one, and
// of the host with the most of them. If there is none, it is answered 503 with the sentence full,
// and closed. So strangers cannot keep others out by connections alone.
func LimitListener(l net.Listener, limit int, full string) net.Listener {
	return &limitListener{Listener: l, limit: limit, full: full}
}

// PlainLimitListener is LimitListener for a server without TLS.
func PlainLimitListener(l net.Listener, limit int, full string) net.Listener {
	return &limitListener{Listener: l, limit: limit, full: full, plain: true}
}

// Refuse answers a connection that is not served, with a status of HTTP and a sentence. The buffer of
// a new connection has room for it. The caller closes it.
func Refuse(conn net.Conn, status int, text string) {
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n"+
		"Connection: close\r\n\r\n%s", status, http.StatusText(status), len(text), text)
}

type limitListener struct {
	net.Listener
	limit int
	full  string // the sentence for one connection too many
	plain bool   // the server has no TLS

	mu    sync.Mutex
	open  int
	idle  container.Heap[*group] // by order
	group map[groupKey]*group
}

// limitedConn is a connection that counts.
type limitedConn struct {
	net.Conn
	listener *limitListener
	host     string
	begun    bool        // the first byte was checked; owned by the reading goroutine
	lost     atomic.Bool // it broke otherwise than by a close or a reset of the client

	// Guarded by listener.mu.
	kept   int           // requests that keep it now
	known  bool          // one kept it
	closed bool          // it does not count any more
	place  *list.Element // in its group. Invariant: nil while it is kept, and when it is closed
}

// group is the connections of one host that nothing keeps: those that were kept before, or the others.
type group struct {
	groupKey
	conns list.List // of *limitedConn; the one that is idle for longest first
	place int32     // in the heap of idle ones
}

// order is that in which groups lose a connection: strangers first, then the host with the most.
func (g *group) order() uint64 {
	order := uint64(math.MaxInt32 - g.conns.Len())
	if g.known {
		order |= 1 << 32
	}
	return order
}

func (g *group) Position() *int32   { return &g.place }
func (g *group) Before(*group) bool { return false }

type groupKey struct {
	host  string
	known bool
}

// Accept implements net.Listener.
func (l *limitListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.add(conn); c != nil {
			return c, nil
		}
		Refuse(conn, http.StatusServiceUnavailable, l.full)
		_ = conn.Close()
	}
}

// add counts a connection, and closes another one if there are too many; nil: there is no place.
func (l *limitListener) add(conn net.Conn) *limitedConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open >= l.limit {
		if l.idle.Len() == 0 {
			return nil
		}
		c := l.idle.First().Item.conns.Front().Value.(*limitedConn)
		l.remove(c)
		_ = c.Conn.Close()
	}
	c := &limitedConn{Conn: conn, listener: l, host: clienthost.Of(conn.RemoteAddr().String())}
	l.open++
	l.join(c)
	return c
}

// remove forgets a connection. The lock is held.
func (l *limitListener) remove(c *limitedConn) {
	if !c.closed {
		c.closed = true
		l.open--
		l.leave(c)
	}
}

// join has a connection in its group: nothing keeps it. The lock is held.
func (l *limitListener) join(c *limitedConn) {
	key := groupKey{c.host, c.known}
	g := l.group[key]
	if g == nil {
		if l.group == nil {
			l.group = make(map[groupKey]*group)
		}
		g = &group{groupKey: key}
		l.group[key] = g
	}
	c.place = g.conns.PushBack(c)
	l.idle.Set(g, g.order())
}

// leave takes a connection from its group. The lock is held.
func (l *limitListener) leave(c *limitedConn) {
	if c.place == nil {
		return
	}
	g := l.group[groupKey{c.host, c.known}]
	g.conns.Remove(c.place)
	c.place = nil
	if g.conns.Len() > 0 {
		l.idle.Set(g, g.order())
		return
	}
	l.idle.Remove(g)
	delete(l.group, g.groupKey)
}

// tlsHandshake is the first byte of a connection in TLS.
const tlsHandshake = 0x16

// Read implements net.Conn. It refuses what begins with a byte that neither HTTP nor TLS begins
// with, or a plain server has no use for, such as a client of the coordination protocol: the server
// would wait for the end of a line.
func (c *limitedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && !c.begun {
		c.begun = true
		if b[0] < ' ' && b[0] != '\r' && b[0] != '\n' && (b[0] != tlsHandshake || c.listener.plain) {
			Refuse(c.Conn, http.StatusBadRequest, "this address takes HTTP")
			return 0, io.EOF
		}
	}
	ended := err == nil || errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)
	if own := errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed); !ended && !own {
		c.lost.Store(true)
	}
	return n, err
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	c.listener.mu.Lock()
	c.listener.remove(c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// keep counts the requests that keep a connection: by 1 when one begins, by -1 when it ends.
func (c *limitedConn) keep(by int) {
	l := c.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	c.kept += by
	l.leave(c)
	if c.known = true; c.kept == 0 && !c.closed {
		l.join(c)
	}
}
