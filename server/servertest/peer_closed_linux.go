package servertest

import (
	"net"

	"golang.org/x/sys/unix"
)

// peerClosed reports whether the other end has closed the connection, even while there is data to
// be read first. Over loopback this is so as soon as its close returned.
func peerClosed(c *net.TCPConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	const established = 1 // TCP_ESTABLISHED
	up := false
	err = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		up = err == nil && info.State == established
	})
	return err != nil || !up
}
