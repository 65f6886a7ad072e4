package transport

import (
	"context"
	"io"
	"net"
	"runtime"
	"testing"

	"github.com/panjf2000/gnet/v2"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/fanout"
)

// TestIdleLoopRests: an event loop without traffic feels one beat in five, one with traffic or
// without a sign of life each of them.
func TestIdleLoopRests(t *testing.T) {
	var l eventLoop
	felt := func(beats int, before func()) (n int) {
		for range beats {
			before()
			if !l.rests() {
				n++
			}
		}
		return n
	}
	if n := felt(20, func() {}); n != 4 {
		t.Errorf("an idle loop felt %d of 20 beats, want 4", n)
	}
	if n := felt(20, l.noteTraffic); n != 20 {
		t.Errorf("a loop with traffic felt %d of 20 beats", n)
	}
	if n := felt(20, func() { l.missedBeats.Add(1) }); n != 20 {
		t.Errorf("a loop without a sign of life felt %d of 20 beats", n)
	}
	if l.missedBeats.Store(0); felt(20, func() {}) != 4 {
		t.Error("a loop that is idle again does not rest")
	}
}

// TestLoopSilence: the loop that misses most beats counts, and one beat is no silence.
func TestLoopSilence(t *testing.T) {
	var l Transport
	if d := l.LoopSilence(); d != 0 {
		t.Errorf("silent for %v without event loops", d)
	}
	l.plain = newGnetListener(&l, nil)
	loops := []*eventLoop{{}, {}, {}}
	l.plain.loops.Store(&loops)
	for i, missed := range []int64{0, 8, 1} {
		if d := l.LoopSilence(); (d != 0) != (i == 2) {
			t.Errorf("silent for %v", d)
		}
		loops[i].missedBeats.Store(missed)
	}
	if d := l.LoopSilence(); d != 7*beatPeriod {
		t.Errorf("silent for %v, want 7s", d)
	}
}

// TestProcessorsStayFreeOfLoops: however many processors the runtime has, the shards have some that
// no event loop waits on.
func TestProcessorsStayFreeOfLoops(t *testing.T) {
	for _, c := range []struct{ processors, loops int }{{1, 1}, {2, 1}, {3, 2}, {4, 3}, {8, 6}, {32, 24}, {96, maxLoops}} {
		if n := loopCount(c.processors); n != c.loops {
			t.Errorf("%d event loops for %d processors, want %d", n, c.processors, c.loops)
		}
	}
}

// TestWhoWrites: the goroutine that answered some commands writes where there is little, and where
// each answer has a socket of its own. Else the loop does, which nobody has woken before.
func TestWhoWrites(t *testing.T) {
	for _, c := range []struct{ sockets, commands, taken int }{
		{1, 1, 1}, {1, 8, 1}, {8, 1, 8}, {8, 8, 8},
		{9, 8, 0}, {8, 9, 0}, {1, 9, 0}, {5000, 1, 0}, {0, 9, 0},
		{9, 9, 9}, {2 * wakeAt, 2 * wakeAt, 2 * wakeAt}, {99, 100, 0}, {100, 99, 0},
	} {
		var l eventLoop
		for range c.sockets {
			l.markDirty(&gnetSocket{}, false)
		}
		list := l.takeDirty(nil, c.commands)
		if len(list) != c.taken || len(l.dirty) != c.sockets-c.taken || l.needsWake.Load() != (len(l.dirty) > 0) {
			t.Errorf("%d sockets with answers of %d commands: %d were taken, %d are left, wake %v",
				c.sockets, c.commands, len(list), len(l.dirty), l.needsWake.Load())
		}
	}
}

// TestAnswersGoBeforeTheFanOut: what only one connection gets is for the loop, even if the connection is
// marked for the goroutine that writes to thousands.
func TestAnswersGoBeforeTheFanOut(t *testing.T) {
	l := &eventLoop{fanOutWake: make(chan struct{}, 1), fanOutPace: fanout.New(nil).Writer()}
	l.shared.Store(wakeAt)
	k := &gnetSocket{loop: l}
	k.markDirty(true)
	if len(l.fanOut) != 1 || len(l.dirty) != 0 || l.needsWake.Load() {
		t.Errorf("%d sockets are for the fan-out and %d for the loop", len(l.fanOut), len(l.dirty))
	}
	k.hasten()
	k.hasten()
	if len(l.dirty) != 1 || !l.needsWake.Load() {
		t.Errorf("%d sockets are for the loop after an answer", len(l.dirty))
	}
	if list := l.takeFanOut(nil); len(list) != 1 || l.fanOutPace.Begin() {
		t.Errorf("%d sockets are taken for the fan-out", len(list))
	}
	if list := l.takeFanOut(nil); len(list) != 0 || !l.fanOutPace.Begin() {
		t.Errorf("%d sockets are taken for a fan-out that is over", len(list))
	}
}

// TestLoopWritesBeforeAllIsMarked: what is for many connections is written without waiting for
// Flush, which comes when it is appended to the last of them.
func TestLoopWritesBeforeAllIsMarked(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2)) // one loop
	const n = wakeAt
	conns := make(chan *Conn, n)
	x, _ := start(t, func(c *Config) {
		c.Limits.Connections = n
		c.NewClient = func(c *Conn) Client {
			conns <- c
			return &stubClient{Conn: c}
		}
	})
	pong := protocol.AppendFrame(nil, protocol.KindPong, 0, 0, nil)
	clients := make([]net.Conn, n)
	read := func(nc net.Conn) {
		t.Helper()
		if _, err := io.ReadFull(nc, make([]byte, len(pong))); err != nil {
			t.Fatal(err)
		}
	}
	for i := range clients {
		clients[i] = dial(t, x, 1)
		read(clients[i])
	}
	// Only when the loop has done all that it has, it flushes no more marks by the way.
	for _, l := range *x.plain.loops.Load() {
		idle := make(chan struct{})
		_ = l.el.Execute(t.Context(), gnet.RunnableFunc(func(context.Context) error { close(idle); return nil }))
		<-idle
	}
	for range clients {
		(<-conns).AppendShared(pong, false)
	}
	for _, nc := range clients {
		read(nc)
	}
}
