package servertest

import (
	"net"
	"runtime"
	"syscall"
	"testing"
)

// SilentAddress is an address on loopback that answers no connection, like that of a machine that
// is off: it is not refused either. It skips the test where that cannot be had.
func SilentAddress(t testing.TB) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ignores what comes to a listener whose queue is full")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { err = syscall.Listen(int(fd), 0) }) // room for one
	}
	if err != nil {
		t.Fatal(err)
	}
	only, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = only.Close() })
	return l.Addr().String()
}
