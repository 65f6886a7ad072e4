package web

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/signalbox-dev/signalbox/server/clienthost"
)

// Timeouts bound how long a client may take.
type Timeouts struct {
	Header time.Duration // for the header of a request to arrive
	Read   time.Duration // for the whole request
	Write  time.Duration // to take an answer; a handler may set another one for each write
	Idle   time.Duration // between two requests
}

// Server serves a handler with limits that hold against slow and hostile clients. maxHeader bounds
// the headers of a request, in bytes. The caller listens, calls Serve with a LimitListener, and
// closes it.
func Server(h http.Handler, t Timeouts, maxHeader int, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: t.Header,
		ReadTimeout:       t.Read,
		WriteTimeout:      t.Write,
		IdleTimeout:       t.Idle,
		MaxHeaderBytes:    maxHeader,
		ConnContext:       connContext,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// LimitListener accepts at most limit connections at a time. One more takes the place of a
// connection that KeepConnection does not keep now: of one that it never kept, if there is one, and
// of the host with the most of them. If there is none, it is answered 503 with the sentence full,
// and closed. So strangers cannot keep others out by connections alone.
func LimitListener(l net.Listener, limit int, full string) net.Listener {
	return &limitListener{Listener: l, limit: limit,
		full: "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\n" +
			"Content-Length: " + strconv.Itoa(len(full)) + "\r\nConnection: close\r\n\r\n" + full}
}

type limitListener struct {
	net.Listener
	limit int
	full  string // the answer to one connection too many

	mu   sync.Mutex
	open []*limitedConn // the oldest first
}

// limitedConn is a connection that counts.
type limitedConn struct {
	net.Conn
	listener *limitListener
	host     string
	lost     atomic.Bool // it broke otherwise than by a close or a reset of the client

	// Guarded by listener.mu.
	kept  int  // requests that keep it now
	known bool // one kept it
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
		_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = io.WriteString(conn, l.full)
		_ = conn.Close()
	}
}

// add counts a connection, and closes another one if there are too many; nil: there is no place.
func (l *limitListener) add(conn net.Conn) *limitedConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) >= l.limit {
		idle := slices.DeleteFunc(slices.Clone(l.open), func(c *limitedConn) bool { return c.kept > 0 })
		strangers := slices.DeleteFunc(slices.Clone(idle), func(c *limitedConn) bool { return c.known })
		if len(strangers) > 0 {
			idle = strangers
		}
		if len(idle) == 0 {
			return nil
		}
		c := idle[Crowded(idle, func(c *limitedConn) string { return c.host })]
		l.remove(c)
		_ = c.Conn.Close()
	}
	c := &limitedConn{Conn: conn, listener: l, host: clienthost.Of(conn.RemoteAddr().String())}
	l.open = append(l.open, c)
	return c
}

// remove forgets a connection. The lock is held.
func (l *limitListener) remove(c *limitedConn) {
	if i := slices.Index(l.open, c); i >= 0 {
		l.open = slices.Delete(l.open, i, i+1)
	}
}

// Read implements net.Conn.
func (c *limitedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
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
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.kept += by
	c.known = true
}

// Lost reports whether the connection of a request broke in a way that says nothing of its client,
// as when that does not acknowledge what it is sent. False: it stands, or the client has closed or
// reset it.
func Lost(ctx context.Context) bool {
	c, ok := accepted(ctx).(*limitedConn)
	return ok && c.lost.Load()
}

type connKey struct{}

// connContext has a request's connection in its context.
func connContext(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// ConnOf is the connection of a request to a Server, below TLS and a LimitListener; nil: unknown.
func ConnOf(ctx context.Context) net.Conn {
	conn := accepted(ctx)
	if c, ok := conn.(*limitedConn); ok {
		return c.Conn
	}
	return conn
}

// accepted is a request's connection as its listener accepted it.
func accepted(ctx context.Context) net.Conn {
	conn, _ := ctx.Value(connKey{}).(net.Conn)
	if secure, ok := conn.(*tls.Conn); ok {
		return secure.NetConn()
	}
	return conn
}

// KeepConnection keeps the place of a request's connection until end is called.
func KeepConnection(ctx context.Context) (end func()) {
	c, ok := accepted(ctx).(*limitedConn)
	if !ok {
		return func() {}
	}
	c.keep(1)
	return func() { c.keep(-1) }
}

// Crowded is the index of the first element of the host with the most, of a list that is not empty
// and has the oldest first.
func Crowded[T any](list []T, host func(T) string) int {
	count := make(map[string]int)
	for _, x := range list {
		count[host(x)]++
	}
	first := 0
	for i, x := range list {
		if count[host(x)] > count[host(list[first])] {
			first = i
		}
	}
	return first
}
