package driver

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"

	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/client/internal/dial"
	"github.com/signalbox-dev/signalbox/client/internal/wire"
	"github.com/signalbox-dev/signalbox/protocol"
)

// configError is a mistake in the configuration: the client cannot connect with it.
type configError struct {
	text string
	err  error
	tls  bool // the two ends do not agree on TLS, so that the other instances will not do either
}

func (m *configError) Error() string        { return m.text }
func (m *configError) Unwrap() error        { return m.err }
func (m *configError) Is(target error) bool { return target == core.ErrHandshake }

// otherCluster is the error that another cluster answers at an address.
func otherCluster(address, format string, args ...any) error {
	return &configError{fmt.Sprintf("another cluster answers at %s: %s", address, fmt.Sprintf(format, args...)),
		core.ErrOtherCluster, false}
}

// disagreesOnTLS reports whether an address speaks no TLS, or wants it, or whether one end does not
// take the other's certificate.
func disagreesOnTLS(err error) bool {
	mistake, ok := errors.AsType[*configError](err)
	return ok && mistake.tls
}

// What an address answers that does not speak the client's protocol: its first bytes.
var (
	prefixHTTP     = []byte("HTTP/")
	prefixRaft     = []byte("sbxm")     // as connections between instances begin
	prefixTLSAlert = []byte{0x15, 0x03} // a record of TLS
)

// diagnose tells a mistake in the configuration from what passes: err is why the hello was
// not answered at an address, and said what came instead.
func diagnose(address string, secure bool, err error, received []byte) error {
	wrong := func(format string, args ...any) error {
		return &configError{fmt.Sprintf("%s "+format, append([]any{address}, args...)...), err, false}
	}
	wrongTLS := func(format string, args ...any) error {
		return &configError{fmt.Sprintf("%s "+format, append([]any{address}, args...)...), err, true}
	}
	var header tls.RecordHeaderError
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var untrusted *tls.CertificateVerificationError
	var op *net.OpError
	var refused *protocol.Error
	switch {
	case errors.As(err, &refused) && refused.Status == protocol.StatusPreconditionFailed: // the hello names a cluster
		return otherCluster(address, "%s", refused.Message)
	case errors.As(err, &refused) && refused.Status == protocol.StatusBadRequest && !errors.Is(err, wire.ErrNotProtocol):
		return wrong("refuses this client: %s", refused.Message)
	case errors.As(err, &header):
		received = header.RecordHeader[:]
		if bytes.HasPrefix(received, prefixHTTP) || bytes.HasPrefix(received, prefixRaft) {
			break
		}
		return wrongTLS("does not speak TLS; connect without it, or name the address for TLS")
	case errors.As(err, &unknown):
		return wrongTLS(
			"shows a certificate that no trusted authority has signed: %v; trust the authority that signed it", err)
	case errors.As(err, &name):
		return wrongTLS("shows a certificate for another name: %v; connect under a name that is in it, or set the server name to one", err)
	case errors.As(err, &untrusted):
		return wrongTLS("shows a certificate that cannot be trusted: %v", err)
	case secure && errors.As(err, &op) && op.Op == "remote error": // an alert
		return wrongTLS("does not take this client's side of TLS: %v; it may want a certificate of the client, or another one",
			op.Err)
	}
	switch {
	case bytes.HasPrefix(received, prefixHTTP):
		return wrong("speaks HTTP: it is an address for operators or for locks by HTTP, not for clients")
	case bytes.HasPrefix(received, prefixRaft):
		return wrong("is an address for other instances (raft), not for clients")
	case bytes.HasPrefix(received, prefixTLSAlert) && !secure:
		return wrongTLS("speaks TLS; turn TLS on, or name the plain address if there is one")
	case errors.Is(err, wire.ErrNotProtocol):
		return wrong("does not speak signalbox's protocol: %v", err)
	}
	return err
}

// speaksTLS reports whether an address that hangs up on a hello without TLS answers a handshake.
// Servers of other protocols, such as a gateway that ends TLS, say nothing to what they cannot read.
func (d *Driver) speaksTLS(ctx context.Context, to dial.Target) bool {
	raw, err := d.dial(ctx, to)
	if err != nil {
		return false
	}
	defer raw.Close()
	host, _, _ := net.SplitHostPort(to.Address)
	err = tls.Client(raw, &tls.Config{ServerName: host, InsecureSkipVerify: true}).HandshakeContext(ctx) // nothing is sent on it
	op, alert := errors.AsType[*net.OpError](err)
	return err == nil || alert && op.Op == "remote error"
}
