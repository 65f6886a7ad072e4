package transport

import (
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// clientWaits returns a function that reports whether a client waits to be accepted. It is for one
// goroutine, and allocates nothing.
func clientWaits(l net.Listener) func() bool {
	s, ok := l.(syscall.Conn)
	if !ok {
		return func() bool { return true }
	}
	c, err := s.SyscallConn()
	if err != nil {
		return func() bool { return false }
	}
	var waits bool
	poll := make([]unix.PollFd, 1)
	look := func(fd uintptr) {
		poll[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
		n, err := unix.Poll(poll, 0)
		waits = err == nil && n == 1
	}
	return func() bool {
		waits = false
		_ = c.Control(look)
		return waits
	}
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
