package gateway

import (
	"context"
	"net"
	"net/netip"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Headers of YDB's clients.
const (
	headerDatabase = "x-ydb-database"
	headerTicket   = "x-ydb-auth-ticket"
)

// tokenOf is the token that a call shows; empty: the caller is anonymous.
func tokenOf(ctx context.Context) string {
	if v := metadata.ValueFromIncomingContext(ctx, headerTicket); len(v) > 0 {
		return v[0]
	}
	return ""
}

// checkDatabase refuses a call for another database. A call that names none is for this one.
func (g *Gateway) checkDatabase(ctx context.Context) error {
	for _, d := range metadata.ValueFromIncomingContext(ctx, headerDatabase) {
		if d != "" && normalize(d) != g.prefix {
			return protocol.Errorf(protocol.StatusNotFound,
				"this gateway serves the database %s, not %q; name that when you connect", g.database(), d)
		}
	}
	return nil
}

// networkBits is the length of an IPv6 network, which one host may have for itself.
const networkBits = 64

// hostOf is the host that a call comes from: with IPv6, its network.
func hostOf(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		return hostOfAddress(p.Addr)
	}
	return ""
}

// hostOfAddress is the host that has an address.
func hostOfAddress(a net.Addr) string {
	address, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return a.String()
	}
	ip := address.Addr().Unmap().WithZone("")
	if ip.Is6() {
		return netip.PrefixFrom(ip, networkBits).Masked().String()
	}
	return ip.String()
}
