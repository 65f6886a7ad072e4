package gateway

import (
	"net"
	"testing"

	"google.golang.org/grpc/peer"
)

// TestHosts: an IPv6 host is its network, and may use any address of it.
func TestHosts(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.7:1": "192.0.2.7", "[::ffff:192.0.2.7]:1": "192.0.2.7",
		"[2001:db8:1:2:3:4:5:6]:1": "2001:db8:1:2::/64", "[fe80::1%eth0]:1": "fe80::/64",
	} {
		a, err := net.ResolveTCPAddr("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if got := hostOf(peer.NewContext(t.Context(), &peer.Peer{Addr: a})); got != want {
			t.Errorf("%s is the host %s, want %s", address, got, want)
		}
	}
}
