package gateway

import (
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"syscall"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/signalbox-dev/signalbox/server/logging"
)

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

// loggedTLS logs handshakes that fail, and follows what comes on the other connections.
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
