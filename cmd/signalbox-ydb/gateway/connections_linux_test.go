package gateway

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// TestUserTimeout: the kernel closes connections whose client takes nothing any more.
func TestUserTimeout(t *testing.T) {
	g, _ := serve(t, Config{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	peer, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	nc, err := (&limitedListener{l, g}).Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	c, err := nc.(followedConn).Conn.(*limitedConn).Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Control(func(fd uintptr) {
		ms, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
		if err != nil || ms != int(idlePingTimeout.Milliseconds()) {
			t.Errorf("it has %d ms, %v", ms, err)
		}
	}); err != nil {
		t.Fatal(err)
	}
}
