package gateway

import (
	"net"

	"golang.org/x/sys/unix"
)

// setUserTimeout has the kernel close a connection whose client takes nothing for idlePingTimeout.
// gRPC does so only with a *net.TCPConn, which limitedConn is not.
func setUserTimeout(nc net.Conn) {
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		return
	}
	if c, err := tcp.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(idlePingTimeout.Milliseconds()))
		})
	}
}
