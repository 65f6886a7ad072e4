//go:build !linux

package transport

import "net"

// keepAlive has the options of keep-alive set on each connection.
func keepAlive(lc *net.ListenConfig) {
	lc.KeepAliveConfig = net.KeepAliveConfig{Enable: true, Idle: keepAliveIdle, Interval: keepAliveInterval, Count: keepAliveCount}
}
