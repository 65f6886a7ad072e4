package transport

import (
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/signalbox-dev/signalbox/server/logging"
)

// handshakeLog warns of handshakes that fail by a mistake in somebody's configuration.
type handshakeLog struct{ limiter logging.Limiter }

// failed logs a failure: as a warning, unless the client has only gone, or was silent.
func (h *handshakeLog) failed(log *slog.Logger, conn uint64, remote string, err error, now time.Time) {
	var late net.Error
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, errBusy) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.As(err, &late) && late.Timeout() {
		log.Debug("TLS handshake failed", "conn", conn, "remote", remote, "error", err)
		return
	}
	more, ok := h.limiter.Allow(now)
	if !ok {
		return
	}
	args := append([]any{"conn", conn, "remote", remote, "error", err}, more...)
	if hint := handshakeHint(err); hint != "" {
		args = append(args, "hint", hint)
	}
	log.Warn("TLS handshake failed", args...)
}

// handshakeHint returns the usual cause of a handshake error; empty if the error names it.
func handshakeHint(err error) string {
	var alert *net.OpError
	var plain tls.RecordHeaderError
	switch {
	case strings.Contains(err.Error(), "didn't provide a certificate"):
		return "the client has no certificate, or keeps back one that no authority in --listen-tls-client-ca has signed"
	case errors.As(err, &plain):
		return "the client does not speak TLS; it has to turn it on, or connect to the address of --listen"
	case errors.As(err, &alert) && alert.Op == "remote error":
		return "the client refused; it may not trust the authority that signed --listen-tls-cert, or the certificate has expired or is of another host"
	}
	return ""
}
