package client

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
)

// tcpInq is TCP_INQ of linux/tcp.h: an option of a socket, and the type of the control message that
// comes with each read. The message says how many bytes are left, an end counted as one.
const tcpInq = 36

// reportsEnds: Linux counts an end that came with the last bytes since 5.1 (commit 6466e715651f).
// gVisor does not, and calls itself 4.4.
var reportsEnds = sync.OnceValue(func() bool {
	var u syscall.Utsname
	if syscall.Uname(&u) != nil {
		return false
	}
	release := make([]byte, len(u.Release))
	for i, c := range u.Release {
		release[i] = byte(c)
	}
	return atLeast(string(release), 5, 1)
})

// atLeast compares a kernel's release with a version. A release that cannot be read is none.
func atLeast(release string, major, minor int) bool {
	var a, b int
	if n, _ := fmt.Sscanf(release, "%d.%d", &a, &b); n < 2 {
		return false
	}
	return a > major || a == major && b >= minor
}

// reportLeft has the kernel say, with each read of a TCP connection, whether anything is left. It
// is nil for other connections, and for systems that do not count an end.
func reportLeft(nc net.Conn) syscall.RawConn {
	tcp, ok := nc.(*net.TCPConn)
	if !ok || !reportsEnds() {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	reports := false
	err = raw.Control(func(fd uintptr) {
		reports = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpInq, 1) == nil
	})
	if err != nil || !reports {
		return nil
	}
	return raw
}

// delayAck has the kernel acknowledge what is read next together with the next request, with every
// second read, or 40 ms after it came. By itself it acknowledges each read of bytes that no request
// follows, which takes as long as the rest of the read. It is to be called before each read: the
// kernel forgets it when the 40 ms have passed (tcp_delack_timer_handler in net/ipv4/tcp_timer.c).
func delayAck(fd uintptr) {
	// Where it is not possible the kernel acknowledges sooner.
	_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_QUICKACK, 0)
}

// drain reads a connection of reportLeft, whose descriptor is held, until nothing is left. Received
// gets the number of bytes that were read into the room, and what the kernel says: is there more,
// be it the end? It answers whether to read again, and an error to stop.
//
// Where the kernel says that nothing is left, no second read is needed to find it out: a quarter of
// the system calls of a caller that is alone on its connection. A reset that came with the last
// bytes is not reported, and the poller says it only with them: who has to know reads again.
func drain(fd uintptr, room func() []byte, received func(n int, left bool) (again bool, err error)) error {
	for {
		n, left, err := readOnce(int(fd), room())
		if err == syscall.EAGAIN {
			return nil
		}
		if err == nil {
			left, err = received(n, left)
		}
		if err != nil || !left {
			return err
		}
	}
}

// readOnce reads once. Left says that there may be more, be it the end.
func readOnce(fd int, p []byte) (n int, left bool, err error) {
	var space [32]byte // a header of 12 or 16 bytes, and a number of four
	for {
		var used int
		n, used, _, _, err = syscall.Recvmsg(fd, p, space[:], 0)
		switch {
		case err == syscall.EINTR:
		case err == syscall.EAGAIN:
			return 0, false, err
		case err != nil:
			return 0, false, os.NewSyscallError("recvmsg", err)
		case n == 0:
			return 0, false, io.EOF
		default:
			return n, mayBeLeft(space[:used]), nil
		}
	}
}

// mayBeLeft reads a control message. One that is not there or of another kind says nothing.
func mayBeLeft(message []byte) bool {
	value := syscall.CmsgLen(0) // where it begins, behind level and type
	if len(message) < value+4 {
		return true
	}
	number := func(at int) uint32 { return binary.NativeEndian.Uint32(message[at:]) }
	return number(value-8) != syscall.IPPROTO_TCP || number(value-4) != tcpInq || number(value) > 0
}
