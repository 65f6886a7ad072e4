package web

import (
	"context"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// SetUserTimeout has the kernel break a request's connection whose client acknowledges nothing that
// it is sent for d.
func SetUserTimeout(ctx context.Context, d time.Duration) {
	control(ctx, func(fd int) {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
	})
}

// Acknowledged reports whether the client's kernel has all bytes that its connection was sent.
func Acknowledged(ctx context.Context) (all bool) {
	control(ctx, func(fd int) {
		n, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
		all = err == nil && n == 0
	})
	return all
}

// Gone reports whether the client has reset the connection of a request: it has closed it, and reads
// nothing more.
func Gone(ctx context.Context) (gone bool) {
	control(ctx, func(fd int) {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		// A connection that the kernel gave up has retransmitted.
		gone = err == nil && info.State == unix.BPF_TCP_CLOSE && info.Retransmits == 0
	})
	return gone && !Lost(ctx)
}

// control calls f with the socket of a request's connection.
func control(ctx context.Context, f func(fd int)) {
	tcp, ok := ConnOf(ctx).(*net.TCPConn)
	if !ok {
		return
	}
	if c, err := tcp.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { f(int(fd)) })
	}
}
