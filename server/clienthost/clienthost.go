// Package clienthost says which host a client comes from, for what is counted or bounded for each
// host.
//
// Of is the key of such counts: limits of connections, attempts to log in, the delay after refused
// credentials. Logs show the whole address instead.
package clienthost

import (
	"net"
	"net/netip"
)

// nat64 has the IPv4 addresses of clients behind a translator (RFC 6052).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// Of is the host of a remote address with its port: the part that strangers cannot have many of.
// That is an IPv4 address, or an IPv6 network of 64 bits, which one machine may have for itself.
// Text that is no address is its own host.
func Of(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	ip = ip.Unmap().WithZone("")
	if nat64.Contains(ip) {
		b := ip.As16()
		ip = netip.AddrFrom4([4]byte(b[12:]))
	}
	if ip.Is6() {
		ip = netip.PrefixFrom(ip, 64).Masked().Addr()
	}
	return ip.String()
}
