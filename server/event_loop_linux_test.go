package server

import (
	"bytes"
	"testing"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// openConn stands for gnet's connection where only its being there counts.
type openConn struct{ gnet.Conn }

// TestDirectWriteKeepsUnsentBytes fills a socket from the goroutine that appends. What does not fit goes out later, in front of what is appended then.
func TestDirectWriteKeepsUnsentBytes(t *testing.T) {
	s := start(t, nil)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	k := &gnetSocket{fd: pair[0], gc: openConn{}}
	if !k.open(s, k, "test") {
		t.Fatal("no room")
	}
	defer s.conns.remove(&k.conn)
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
		if _, _, push := k.append(protocol.KindGoodbye, uint64(i), 0, m); !push {
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
	if k.out.waiting() != 0 {
		t.Errorf("%d bytes wait", k.out.waiting())
	}
	k.detachConn()
	if k.append(protocol.KindGoodbye, 1, 0, nil); !k.writeDirect(&b) || k.out.waiting() == 0 {
		t.Error("a closed socket was written to")
	}
}

// TestPauseKeepsTheLoopAsleep: while a connection rests, the kernel wakes nobody for a little that comes on it, and afterwards for every byte again.
func TestPauseKeepsTheLoopAsleep(t *testing.T) {
	var clock *replica.ManualClock
	s := start(t, func(c *Config) { clock = manual(c) })
	greedy := connect(t, s)
	var k *gnetSocket
	s.conns.each(func(c *conn) { k = c.transport.(*gnetSocket) })
	mark := func() int {
		n, err := unix.GetsockoptInt(k.fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	size, err := unix.GetsockoptInt(k.fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err != nil {
		t.Fatal(err)
	}
	if n := mark(); n > 1 {
		t.Fatalf("the mark is %d bytes before any rest", n)
	}
	var b []byte
	for range excessPerConn + 1 {
		b = protocol.AppendFrame(b, protocol.KindPing, 1<<40, 0, nil)
	}
	greedy.write(b)
	eventually(t, "a rest", func() bool { return k.paused.Load() && mark() == pausedLowWater })
	if n, err := unix.GetsockoptInt(k.fd, unix.SOL_SOCKET, unix.SO_RCVBUF); err != nil || n > size {
		t.Errorf("the socket's buffer grew from %d to %d bytes (%v)", size, n, err)
	}
	greedy.write(protocol.AppendFrame(nil, protocol.KindPing, 1<<41, 0, nil))
	clock.Advance(sweepPeriod)
	eventually(t, "the end of the rest", func() bool { return mark() == 1 })
	greedy.find("the pong", func(h protocol.Header) bool { return h.Kind == protocol.KindPong && h.ID == 1<<41 })
}
