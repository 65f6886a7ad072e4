package console

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/server/clienthost"
)

const (
	maxConnections = 128
	requestTimeout = 5 * time.Second  // for a request to arrive
	writeTimeout   = 30 * time.Second // for an answer to be taken; a stream's is for each update
)

// Server serves a console with limits that hold against slow and hostile clients. The caller
// listens, calls Serve with a LimitListener, and closes it.
func Server(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: requestTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    maxHeader,
		ConnContext:       connContext,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// LimitListener accepts at most 128 connections at a time. One more takes the place of a connection
// on which nobody is shown a page now: of one that never was shown a page, if there is one, and of
// the host with the most of them. If there is none, it is answered 503 and closed. So strangers
// cannot keep people out by connections alone.
func LimitListener(l net.Listener) net.Listener { return &limitListener{Listener: l} }

type limitListener struct {
	net.Listener

	mu   sync.Mutex
	open []*limitedConn // the oldest first
}

// limitedConn is a connection that counts.
type limitedConn struct {
	net.Conn
	listener *limitListener
	host     string

	// Guarded by listener.mu.
	pages int  // that are shown on it now, streams too
	known bool // a page was shown on it
}

const fullText = "the console has too many connections; close some tabs first"

var fullResponse = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\n" +
	"Content-Length: " + strconv.Itoa(len(fullText)) + "\r\nConnection: close\r\n\r\n" + fullText

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
		_, _ = io.WriteString(conn, fullResponse)
		_ = conn.Close()
	}
}

// add counts a connection, and closes another one if there are too many; nil: there is no place.
func (l *limitListener) add(conn net.Conn) *limitedConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) >= maxConnections {
		idle := slices.DeleteFunc(slices.Clone(l.open), func(c *limitedConn) bool { return c.pages > 0 })
		strangers := slices.DeleteFunc(slices.Clone(idle), func(c *limitedConn) bool { return c.known })
		if len(strangers) > 0 {
			idle = strangers
		}
		if len(idle) == 0 {
			return nil
		}
		c := idle[crowded(idle, func(c *limitedConn) string { return c.host })]
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

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	c.listener.mu.Lock()
	c.listener.remove(c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// keep counts the pages that are shown on a connection: by 1 when one begins, by -1 when it ends.
func (c *limitedConn) keep(by int) {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.pages += by
	c.known = true
}

type connKey struct{}

// connContext has a request's connection in its context.
func connContext(ctx context.Context, conn net.Conn) context.Context {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	return context.WithValue(ctx, connKey{}, conn)
}

// keepConnection keeps the place of a request's connection until the page that is served has ended.
func keepConnection(ctx context.Context) (end func()) {
	c, ok := ctx.Value(connKey{}).(*limitedConn)
	if !ok {
		return func() {}
	}
	c.keep(1)
	return func() { c.keep(-1) }
}
