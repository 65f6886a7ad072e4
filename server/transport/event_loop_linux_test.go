package transport

import (
	"bytes"
	"context"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/signalbox-dev/signalbox/server/fanout"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"golang.org/x/sys/unix"

	"github.com/signalbox-dev/signalbox/protocol"
)

// dialSocket opens the only connection, and answers both ends.
func dialSocket(t *testing.T, x *Transport) (nc net.Conn, k *gnetSocket) {
	t.Helper()
	nc = dial(t, x, 1)
	pong(t, nc)
	x.Each(func(c *Conn) { k = c.socket.(*gnetSocket) })
	return nc, k
}

// TestKeepAlive: the kernel finds out when the machine of a client is gone.
func TestKeepAlive(t *testing.T) {
	x, _ := start(t, nil)
	_, k := dialSocket(t, x)
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
	greedy, k := dialSocket(t, x)
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

// holdLoop keeps the loop of a socket busy until release.
func holdLoop(t *testing.T, k *gnetSocket) (release func()) {
	t.Helper()
	busy, free := make(chan struct{}), make(chan struct{})
	if err := k.loop.el.Execute(t.Context(), gnet.RunnableFunc(func(context.Context) error {
		close(busy)
		<-free
		return nil
	})); err != nil {
		t.Fatal(err)
	}
	<-busy
	return sync.OnceFunc(func() { close(free) })
}

// TestSocketMarkedTwice: a mark may come while the loop has not got to the one before. It writes
// all the same, and lives on.
func TestSocketMarkedTwice(t *testing.T) {
	x, _ := start(t, nil)
	nc, k := dialSocket(t, x)
	release := holdLoop(t, k)
	defer release()
	k.Append(protocol.KindPong, 7, 0, nil)
	k.markDirty(false)
	x.Flush()
	release()
	if h := pong(t, nc); h.ID != 7 {
		t.Errorf("it reads %v", h)
	}
	ping(t, nc, 1)
	pong(t, nc)
}

// silentClient takes any frame for a hello, and answers none.
type silentClient struct {
	stubClient
	taken chan struct{}
}

func (c *silentClient) Frame(Cycle, protocol.Header) {
	c.Establish()
	c.taken <- struct{}{}
}

// TestReadWithoutAnswer: where a read brought nothing to write, the loop does not wait for somebody
// else's write to the connection, and what is appended later is written.
func TestReadWithoutAnswer(t *testing.T) {
	taken := make(chan struct{}, 2)
	x, _ := start(t, func(c *Config) {
		c.NewClient = func(c *Conn) Client { return &silentClient{stubClient{Conn: c}, taken} }
	})
	nc := dial(t, x, 1)
	<-taken
	var k *gnetSocket
	x.Each(func(c *Conn) { k = c.socket.(*gnetSocket) })
	k.writing.Lock()
	release := sync.OnceFunc(k.writing.Unlock)
	defer release()
	ping(t, nc, 1)
	<-taken
	idle := make(chan struct{})
	if err := k.loop.el.Execute(t.Context(), gnet.RunnableFunc(func(context.Context) error { close(idle); return nil })); err != nil {
		t.Fatal(err)
	}
	select {
	case <-idle:
	case <-time.After(wait):
		t.Error("the loop waits for a write of somebody else")
	}
	release()
	k.Append(protocol.KindPong, 7, 0, nil)
	x.Flush()
	if h := pong(t, nc); h.ID != 7 {
		t.Errorf("it reads %v", h)
	}
}

// TestFanOutBesideTheLoop: while the loop is busy, what many connections get alike is written all the
// same, to all but the first of them; those the loop writes to.
func TestFanOutBesideTheLoop(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2)) // one loop
	const n = wakeAt + 20
	conns := make(chan *Conn, n)
	x, _ := start(t, func(c *Config) {
		c.NewClient = func(c *Conn) Client {
			conns <- c
			return &stubClient{Conn: c}
		}
	})
	var clients []net.Conn
	var list []*Conn
	for range n {
		nc := dial(t, x, 1)
		pong(t, nc)
		clients, list = append(clients, nc), append(list, <-conns)
	}
	release := holdLoop(t, list[0].socket.(*gnetSocket))
	defer release()
	frame := protocol.AppendFrame(nil, protocol.KindPong, 7, 0, nil)
	for _, c := range list {
		c.AppendShared(frame, true)
	}
	read := func(clients []net.Conn) {
		t.Helper()
		for _, nc := range clients {
			if h := pong(t, nc); h.ID != 7 {
				t.Errorf("it reads %v", h)
			}
		}
	}
	read(clients[wakeAt:])
	await.True(t, "the end of the fan-out", func() bool { return x.cfg.FanOut.Wait() == 0 })
	release()
	read(clients[:wakeAt])
}

// TestFanOutRests: the pace is told how long a fan-out took.
func TestFanOutRests(t *testing.T) {
	var reads atomic.Int32 // of the clock
	x, clock := start(t, func(c *Config) {
		now := c.Clock.Now
		c.FanOut = fanout.New(func() time.Duration {
			defer reads.Add(1)
			return now()
		})
	})
	_, k := dialSocket(t, x)
	l := k.loop
	l.mu.Lock()
	l.fanOut = append(l.fanOut, k)
	l.fanOutPace.Begin()
	wake(l.fanOutWake)
	await.True(t, "its beginning", func() bool { return reads.Load() >= 2 })
	clock.advance(100 * time.Millisecond)
	l.mu.Unlock()
	await.True(t, "its end", func() bool { return l.fanOutPace.Begin() })
	l.fanOutPace.End()
	if clock.advance(300*time.Millisecond - 1); x.cfg.FanOut.Wait() == 0 {
		t.Error("the rest is too short")
	}
	if clock.advance(1); x.cfg.FanOut.Wait() > 0 {
		t.Error("the rest is too long")
	}
}

// TestManySegments: more shared frames than one vectored write may have come in order.
func TestManySegments(t *testing.T) {
	x, _ := start(t, func(c *Config) { c.Limits.OutSoft, c.Limits.OutHard = 8<<20, 16<<20 })
	nc, k := dialSocket(t, x)
	release := holdLoop(t, k)
	defer release()
	var want []byte
	for i := range 2*maxSegments + 100 {
		frame := protocol.AppendFrame(nil, protocol.KindGoodbye, uint64(i), 0,
			&protocol.Failure{Message: string(bytes.Repeat([]byte{byte('a' + i%26)}, sharedSize))})
		want = append(want, frame...)
		if !k.AppendShared(frame, false) {
			t.Fatalf("frame %d is not taken", i)
		}
	}
	x.Flush()
	release()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(nc, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d of %d bytes were read (%v), or others", n, len(want), err)
	}
}

// TestGoodbyeOfDrainedReader: a slow client reads the rest of what the kernel did not take at once,
// while its connection is being closed. It reads what came last, and the goodbye, before the end.
func TestGoodbyeOfDrainedReader(t *testing.T) {
	x, _ := start(t, func(c *Config) { c.Limits.OutSoft, c.Limits.OutHard = 32<<20, 64<<20 })
	nc, k := dialSocket(t, x)
	frame := protocol.AppendFrame(nil, protocol.KindGoodbye, 1, 0, &protocol.Failure{Message: string(make([]byte, 1<<20))})
	sent := 0
	for k.out.unsent.Load() == 0 {
		k.AppendShared(frame, false)
		sent += len(frame)
		x.Flush()
		await.True(t, "the writing", func() bool { k.out.mu.Lock(); defer k.out.mu.Unlock(); return k.out.size == 0 })
	}
	checked := make(chan struct{})
	if err := k.loop.el.Execute(t.Context(), gnet.RunnableFunc(func(context.Context) error {
		defer close(checked)
		for rest := sent; rest > 0; {
			n, err := io.CopyN(io.Discard, nc, int64(min(rest, 64<<10)))
			if rest -= int(n); err != nil {
				t.Error(err)
				return err
			}
			_ = k.gc.Flush() // as gnet does when the socket has room
		}
		k.Close(Graceful, protocol.StatusUnavailable, "the end")
		k.loop.checkStuck()
		return nil
	})); err != nil {
		t.Fatal(err)
	}
	<-checked
	x.Flush()
	if h := pong(t, nc); h.Kind != protocol.KindGoodbye {
		t.Errorf("it reads %v", h.Kind)
	}
	if _, err := nc.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("behind the goodbye: %v", err)
	}
}
