package cluster

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// What may listen at an address that is configured as a peer's by mistake.
var (
	ErrClientAddress = errors.New(
		"it is an address for clients; a list of peers takes the raft addresses of the others, which --raft-advertise or --raft name")
	ErrAdminAddress = errors.New("an HTTP server answers there, like that of --admin; a list of peers takes the raft addresses of the others, which --raft-advertise or --raft name")
)

const (
	probeLimit  = time.Second
	probePeriod = 5 * time.Second // between two probes of an address: an instance takes them for strangers
	probeLen    = 4 << 10
)

// Probe connects to a TCP address where no instance answers, and returns the kind of service there:
// ErrClientAddress, ErrAdminAddress, or nil if unknown. A server for clients answers unreadable
// bytes with a goodbye, an HTTP server answers any request.
func Probe(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil
	}
	defer nc.Close()
	end, _ := ctx.Deadline()
	_ = nc.SetDeadline(end)
	if _, err := io.WriteString(nc, "GET /healthz HTTP/1.0\r\n\r\n"); err != nil {
		return nil
	}
	b, _ := io.ReadAll(io.LimitReader(nc, probeLen))
	if strings.HasPrefix(string(b), "HTTP/1.") {
		return ErrAdminAddress
	}
	frame, n, err := protocol.SplitFrame(b, probeLen)
	if n == 0 || err != nil {
		return nil
	}
	if h, err := protocol.ParseFrame(frame); err == nil && h.Kind == protocol.KindGoodbye {
		return ErrClientAddress
	}
	return nil
}
