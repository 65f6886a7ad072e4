package transport

import (
	"bytes"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"golang.org/x/sys/unix"

	"github.com/signalbox-dev/signalbox/protocol"
)

// openConn stands for gnet's connection where only its being there counts.
type openConn struct{ gnet.Conn }

// TestDirectWriteKeepsUnsentBytes fills a socket from the goroutine that appends. What does not fit
// goes out later, in front of what is appended then.
func TestDirectWriteKeepsUnsentBytes(t *testing.T) {
	x, _ := start(t, nil)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	k := &gnetSocket{fd: pair[0], gc: openConn{}}
	if !k.open(x, k, "test") {
		t.Fatal("no room")
	}
	defer x.conns.remove(&k.Conn)
	var (
		b         writeBatch
		want, got []byte
		buf       = make([]byte, 1<<16)
		refused   int
	)
	read := func() {
		for {
			n, err := unix.Read(pair[1], buf)
			if n <= 0 || err != nil {
				return
			}
			got = append(got, buf[:n]...)
		}
	}
	for i := range 5000 {
		m := &protocol.Failure{Message: string(bytes.Repeat([]byte{byte('a' + i%26)}, 400+i%100))}
		want = protocol.AppendFrame(want, protocol.KindGoodbye, uint64(i), 0, m)
		if _, _, mark := k.append(protocol.KindGoodbye, uint64(i), 0, m); !mark {
			t.Fatalf("message %d told nobody", i)
		}
		if k.writeDirect(&b) {
			continue
		}
		refused++
		// The loop's part.
		k.out.take(&b)
		for _, seg := range b.segs {
			for len(seg) > 0 {
				sent, err := unix.Write(pair[0], seg)
				if err != nil {
					read()
					continue
				}
				seg = seg[sent:]
			}
		}
		b.release()
	}
	read()
	if !bytes.Equal(got, want) {
		t.Errorf("%d bytes were read, not the %d that were written, or in another order", len(got), len(want))
	}
	if refused == 0 {
		t.Error("the socket was never full")
	}
	if k.Waiting() != 0 {
		t.Errorf("%d bytes wait", k.Waiting())
	}
	k.detachConn()
	if k.append(protocol.KindGoodbye, 1, 0, nil); !k.writeDirect(&b) || k.Waiting() == 0 {
		t.Error("a closed socket was written to")
	}
}

// TestKeepAlive: the kernel finds out when the machine of a client is gone.
func TestKeepAlive(t *testing.T) {
	x, _ := start(t, nil)
	pong(t, dial(t, x, 1))
	var k *gnetSocket
	x.Each(func(c *Conn) { k = c.socket.(*gnetSocket) })
	for _, o := range []struct{ level, name, want int }{
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(keepAliveIdle / time.Second)},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, int(keepAliveInterval / time.Second)},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepAliveCount},
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
	} {
		if n, err := unix.GetsockoptInt(k.fd, o.level, o.name); err != nil || n != o.want {
			t.Errorf("option %d of level %d is %d (%v), want %d", o.name, o.level, n, err, o.want)
		}
	}
}

// TestPauseKeepsTheLoopAsleep: while a connection is paused, the kernel wakes nobody for a little
// that comes on it, and afterwards for every byte again.
func TestPauseKeepsTheLoopAsleep(t *testing.T) {
	x, clock := start(t, nil)
	greedy := dial(t, x, 1)
	pong(t, greedy)
	var k *gnetSocket
	x.Each(func(c *Conn) { k = c.socket.(*gnetSocket) })
	option := func(name int) int {
		n, err := unix.GetsockoptInt(k.fd, unix.SOL_SOCKET, name)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	size := option(unix.SO_RCVBUF)
	if n := option(unix.SO_RCVLOWAT); n > 1 {
		t.Fatalf("the mark is %d bytes before any pause", n)
	}
	ping(t, greedy, unwantedPerConn+1)
	await.True(t, "a pause", func() bool { return k.Paused() && option(unix.SO_RCVLOWAT) == pausedLowWater })
	if n := option(unix.SO_RCVBUF); n > size {
		t.Errorf("the socket's buffer grew from %d to %d bytes", size, n)
	}
	if _, err := greedy.Write(protocol.AppendFrame(nil, protocol.KindPing, 1<<41, 0, nil)); err != nil {
		t.Fatal(err)
	}
	clock.advance(SweepPeriod)
	x.Sweep()
	await.True(t, "the end of the pause", func() bool { return option(unix.SO_RCVLOWAT) == 1 })
	for pong(t, greedy).ID != 1<<41 {
	}
}
