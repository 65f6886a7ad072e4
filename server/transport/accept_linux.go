package transport

import (
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// clientWaits says whether a client waits to be accepted.
func clientWaits(l net.Listener) (waits bool) {
	s, ok := l.(syscall.Conn)
	if !ok {
		return true
	}
	if c, err := s.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			waits = err == nil && n == 1
		})
	}
	return waits
}

// keepAlive sets the options of keep-alive on the listening socket: accepted connections have them
// from it. Set on each of them, they would cost four system calls.
func keepAlive(lc *net.ListenConfig) {
	lc.KeepAlive = -1
	lc.Control = func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) {
			for _, o := range []struct{ level, name, value int }{
				{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
				{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(keepAliveIdle / time.Second)},
				{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, int(keepAliveInterval / time.Second)},
				{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepAliveCount},
			} {
				if failed == nil {
					failed = os.NewSyscallError("setsockopt", unix.SetsockoptInt(int(fd), o.level, o.name, o.value))
				}
			}
		})
		if err == nil {
			err = failed
		}
		return err
	}
}
