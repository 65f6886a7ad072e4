//go:build !linux

package transport

import "net"

// clientWaits always returns true: waits of an accept count, up to acceptWaited.
func clientWaits(net.Listener) func() bool { return func() bool { return true } }

// keepAlive has the options of keep-alive set on each connection.
func keepAlive(lc *net.ListenConfig) {
	lc.KeepAliveConfig = net.KeepAliveConfig{Enable: true, Idle: keepAliveIdle,
		Interval: keepAliveInterval, Count: keepAliveCount}
}
