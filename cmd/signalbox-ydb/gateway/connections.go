package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/signalbox-dev/signalbox/server/logging"
)

// defaultConnections is the default of Config.MaxConnections. So many idle ones take some 210 MiB.
const defaultConnections = 10_000

// connectionBound is the limit of connections: at most half of the files that may be open, because
// each token needs one to each instance.
func connectionBound(limit int, log *slog.Logger) (int, error) {
	var files syscall.Rlimit // Go has raised it to the hard one
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return 0, fmt.Errorf("read the limit on open files: %w", err)
	}
	room := uint64(files.Cur) / 2 // int64 on FreeBSD
	if room >= uint64(limit) {
		return limit, nil
	}
	log.Info("connections are bounded by the limit on open files", "connections", room, "files", files.Cur)
	return int(room), nil
}

// limitedListener accepts connections within the gateway's limits. It sends others the reason, and
// closes them.
type limitedListener struct {
	net.Listener
	g *Gateway
}

// Accept returns the next connection within the limits.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		release, why := l.g.connections.acquire(hostOfAddress(nc.RemoteAddr()))
		if why == "" {
			setUserTimeout(nc)
			c := &limitedConn{Conn: nc, release: release}
			c.kept = l.g.memory.join(func(error) { go c.Close() })
			c.in = newInbound(c.kept)
			if l.g.cfg.TLS != nil {
				return c, nil // loggedTLS follows the decrypted bytes
			}
			c.handshakes = l.g.handshakes
			return followedConn{c, c.in}, nil
		}
		l.g.metrics.connectionsRefused.Add(1)
		if l.g.cfg.TLS == nil { // before a handshake no reason can be sent
			_ = nc.SetWriteDeadline(time.Now().Add(time.Second)) // the buffer of a new connection has room
			_, _ = nc.Write(goAway(why))
		}
		_ = nc.Close()
	}
}

// goAway is HTTP/2's frame that refuses a connection. It is sent without the settings that come
// first in HTTP/2: a client that gets them tries again at once, thousands of times a second.
func goAway(why string) []byte {
	const goAwayFrame, tooMuch = 7, 11 // GOAWAY, ENHANCE_YOUR_CALM
	n := 8 + len(why)
	b := []byte{byte(n >> 16), byte(n >> 8), byte(n), goAwayFrame, 0, 0, 0, 0, 0, // length, kind, flags, stream
		0, 0, 0, 0, 0, 0, 0, tooMuch} // last stream, code
	return append(b, why...)
}

// limitedConn is a connection that counts until it is closed.
type limitedConn struct {
	net.Conn
	release    func()
	handshakes *handshakeLog // notified of a client that speaks TLS, or nil
	begun      bool          // bytes have arrived; the reader's
	kept       *share        // of the gateway's memory: partly received messages
	in         *inbound
	names      nameOrder
}

// Read looks for a client that speaks another protocol.
func (c *limitedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if !c.begun && c.handshakes != nil && isTLS(b[:max(n, 0)]) {
		c.handshakes.warn(c.Conn.RemoteAddr(), errSpeaksTLS, hintSpeaksTLS)
	}
	c.begun = c.begun || n > 0
	return n, err
}

// RemoteAddr is the client's address. The calls find their connection by it; see connOf.
func (c *limitedConn) RemoteAddr() net.Addr { return connAddr{c.Conn.RemoteAddr(), c} }

// connAddr is the address of a connection's client.
type connAddr struct {
	net.Addr
	conn *limitedConn
}

// connOf is the connection of a call. It is an empty one if the listener is not the gateway's.
func connOf(ctx context.Context) *limitedConn {
	if p, ok := peer.FromContext(ctx); ok {
		if a, ok := p.Addr.(connAddr); ok {
			return a.conn
		}
	}
	return &limitedConn{in: newInbound(nil)}
}

// Close gives the connection's place back.
func (c *limitedConn) Close() error {
	defer c.release()
	defer c.kept.leave()
	return c.Conn.Close()
}

// connectionTable counts the clients' connections.
type connectionTable struct {
	limit, hostLimit int // in all; of one host, 0: no limit
	metrics          *Metrics

	mu    sync.Mutex
	open  int
	hosts map[string]int
}

// acquire counts a connection until release is called, which may be called twice. why says that it
// is one too many; empty: it is not.
func (t *connectionTable) acquire(host string) (release func(), why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.open >= t.limit:
		return nil, fmt.Sprintf("gateway has %d connections, its limit of connections; connect elsewhere, or later",
			t.limit)
	case t.hostLimit > 0 && t.hosts[host] >= t.hostLimit:
		return nil, fmt.Sprintf(
			"gateway has %d connections from this address, its limit for one address; share connections, or connect elsewhere",
			t.hostLimit)
	}
	t.open++
	t.hosts[host]++
	t.metrics.connections.Add(1)
	return sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.metrics.connections.Add(-1)
		t.open--
		if t.hosts[host]--; t.hosts[host] == 0 {
			delete(t.hosts, host)
		}
	}), ""
}

// handshakeLog warns of clients that cannot connect by a mistake in somebody's configuration. gRPC
// only closes their connections, and they try again until they time out.
type handshakeLog struct {
	log     *slog.Logger
	limiter logging.Limiter
}

func (h *handshakeLog) warn(remote net.Addr, err error, hint string) {
	if more, ok := h.limiter.Allow(time.Now()); ok {
		h.log.Warn("a client cannot connect", append([]any{"remote", remote.String(), "error", err, "hint", hint},
			more...)...)
	}
}

// Hints for the mistakes.
const (
	hintSpeaksTLS = "it speaks TLS, and this gateway does not: give the gateway --listen-tls-cert, or connect with grpc://"
	hintPlain     = "it does not speak TLS, which this gateway does: connect with grpcs://"
	hintAlert     = "it may not trust the authority that signed --listen-tls-cert, or the certificate has expired or is of another host"
)

var errSpeaksTLS = errors.New("the first bytes are a TLS handshake")

// isTLS reports whether the first bytes of a connection begin a handshake.
func isTLS(first []byte) bool { return len(first) >= 2 && first[0] == 0x16 && first[1] == 0x03 }

// loggedTLS logs handshakes that fail, and follows the bytes of the other connections.
type loggedTLS struct {
	credentials.TransportCredentials
	log *handshakeLog
}

// ServerHandshake implements credentials.TransportCredentials.
func (l loggedTLS) ServerHandshake(nc net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secure, info, err := l.TransportCredentials.ServerHandshake(nc)
	var plain tls.RecordHeaderError
	var op *net.OpError
	var late net.Error
	switch {
	case err == nil, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.As(err, &late) && late.Timeout():
	case errors.As(err, &plain):
		l.log.warn(nc.RemoteAddr(), err, hintPlain)
	case errors.As(err, &op) && op.Op == "remote error":
		l.log.warn(nc.RemoteAddr(), err, hintAlert)
	default:
		l.log.warn(nc.RemoteAddr(), err, "")
	}
	if a, ok := nc.RemoteAddr().(connAddr); ok && err == nil {
		secure = followedConn{secure, a.conn.in}
	}
	return secure, info, err
}
