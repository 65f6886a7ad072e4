//go:build !linux

package gateway

import "net"

// setUserTimeout does nothing: pings find clients that are gone, a little later.
func setUserTimeout(net.Conn) {}
