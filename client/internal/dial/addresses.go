package dial

import (
	"context"
	"fmt"
	"net"
	"net/netip"
)

// addressesOf is what to dial for an address, host:port: the address itself, or each IP address
// that its host has. It has at least one. The families alternate, as one of them may lead nowhere.
func addressesOf(
	ctx context.Context, address string, lookup func(context.Context, string) ([]netip.Addr, error),
) ([]string, error) {
	host, port, err := net.SplitHostPort(address)
	if lookup == nil || err != nil || host == "" {
		return []string{address}, nil // what is wrong with it is said when it is dialled
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return []string{address}, nil
	}
	found, err := lookup(ctx, host)
	if err != nil {
		return nil, err
	}
	var preferred, others []string
	for _, ip := range found {
		a := net.JoinHostPort(ip.Unmap().String(), port)
		if ip.Unmap().Is4() == found[0].Unmap().Is4() {
			preferred = append(preferred, a)
		} else {
			others = append(others, a)
		}
	}
	var list []string
	for i := range max(len(preferred), len(others)) {
		if i < len(preferred) {
			list = append(list, preferred[i])
		}
		if i < len(others) {
			list = append(list, others[i])
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s has no IP address", host)
	}
	return list, nil
}
