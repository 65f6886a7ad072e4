package web

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"time"
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

// CloseWrite has the client of a request read that nothing more comes.
func CloseWrite(ctx context.Context) {
	if tcp, ok := ConnOf(ctx).(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
	}
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
