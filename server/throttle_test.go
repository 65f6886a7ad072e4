package server

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// TestThrottle: how much is served, and for how many sweeps a connection rests then.
func TestThrottle(t *testing.T) {
	t.Parallel()
	type feed struct {
		sweeps                 int // before it
		refused, pings, frames int
		rests                  uint64 // 0 for none
	}
	for name, script := range map[string][]feed{
		"few":                       {{0, 256, 0, 256, 0}, {1, 200, 56, 256, 0}},
		"many":                      {{0, 256, 0, 256, 0}, {0, 0, 1, 1, 1}},
		"at once":                   {{0, 257, 0, 257, 1}},
		"one that counts":           {{0, 1000, 0, 1001, 0}, {0, 1, 0, 1, 1}},
		"nothing in excess":         {{0, 300, 0, 300, 1}, {1, 0, 0, 10, 0}},
		"refused by the log":        {{0, 0, 0, 300, 0}, {0, 300, 0, 300, 1}},
		"again and again":           {{0, 300, 0, 300, 1}, {1, 300, 0, 300, 2}, {2, 300, 0, 300, 4}, {4, 300, 0, 300, 8}, {8, 300, 0, 300, 8}, {10, 300, 0, 300, 8}},
		"again after a while":       {{0, 300, 0, 300, 1}, {1, 300, 0, 300, 2}, {5, 300, 0, 300, 1}},
		"while others ask much":     {{0, -5000, 0, 0, 0}, {0, 1, 0, 1, 1}, {3, 256, 0, 256, 0}},
		"pings while others do":     {{0, -5000, 0, 0, 0}, {0, 0, 32, 32, 0}, {0, 0, 1, 1, 1}},
		"served beyond (beyond)":    {{0, 0, 256, 256, 0}, {0, 0, 100, 101, 0}, {0, 0, 1, 1, 1}},
		"with sessions (bound)":     {{0, 300, 0, 300, 1}, {1, 300, 0, 300, 2}, {2, 300, 0, 300, 2}, {2, 300, 0, 300, 2}},
		"with other things (bound)": {{0, 300, 0, 301, 0}, {0, 300, 0, 301, 0}},
	} {
		var all sweepCounter
		all.next()
		var e throttle
		refused := uint64(0)
		for i, f := range script {
			for range f.sweeps {
				all.next()
			}
			if f.refused < 0 { // other connections'
				all.excess.Add(int64(-f.refused))
				continue
			}
			refused += uint64(f.refused)
			pings, beyond := f.pings, 0
			if strings.HasSuffix(name, "(beyond)") {
				pings, beyond = 0, f.pings
			}
			if pause := e.classify(&all, refused, pings, beyond, f.frames, strings.HasSuffix(name, "(bound)")); pause != f.rests {
				t.Errorf("%s: after feed %d it rests for %d sweeps, want %d", name, i, pause, f.rests)
			}
		}
	}
}

// TestPause: who pings without end rests, and goes on afterwards with what was sent meanwhile. Others do not.
func TestPause(t *testing.T) {
	var clock interface{ Advance(time.Duration) }
	s := start(t, func(c *Config) { clock = manual(c) })
	healthy, greedy := connect(t, s), connect(t, s)
	sent := 0
	ping := func(n int) {
		var b []byte
		for range n {
			b = protocol.AppendFrame(b, protocol.KindPing, 1<<40, 0, nil)
		}
		greedy.write(b)
		sent += n
	}
	pause := func() (yes bool) {
		s.conns.each(func(c *conn) { yes = yes || c.paused.Load() })
		return yes
	}
	for !pause() {
		ping(64)
	}
	ping(1000)
	greedy.nextID++
	greedy.write(protocol.AppendFrame(nil, protocol.KindNodeDescribe, greedy.nextID, 0, &protocol.NodeDescribe{Path: "/default"}))
	healthy.ping()
	for !greedy.answered(greedy.nextID) { // each look at what has come may end in a rest again
		if pause() {
			clock.Advance(sweepPeriod)
			healthy.ping()
		}
	}
	pongs := 0
	for _, h := range greedy.later {
		if h.Kind == protocol.KindPong {
			pongs++
		}
	}
	if pongs != sent {
		t.Errorf("%d pongs for %d pings", pongs, sent)
	}
}

// TestPausedBufferLimit: what may wait of a connection that rests, and one byte more. While much waits of all connections it is less.
func TestPausedBufferLimit(t *testing.T) {
	s := start(t, func(c *Config) { manual(c) })
	for name, c := range map[string]struct {
		others, n int
		stays     bool
	}{
		"little": {0, 100, true}, "as much as may be": {0, pausedBufferLimit - 1, true}, "one more": {0, pausedBufferLimit, false},
		"little, beside others": {64<<20 + 1, pausedLowWater - 1, true}, "more, beside others": {64<<20 + 1, pausedLowWater, false}, "beside fewer others": {64 << 20, pausedLowWater, true},
		"more than all may hold": {256 << 20, pausedLowWater - 1, false},
	} {
		f := feedTo(t, s)
		if f.bufferPaused(c.n) {
			t.Errorf("%s: rests before it is told to", name)
		}
		f.pause(1, 0, false)
		s.unfinished.Add(int64(c.others))
		if stays := f.bufferPaused(c.n); stays != c.stays || f.ending.Load() == stays {
			t.Errorf("%s: stays is %v, ending is %v", name, stays, f.ending.Load())
		}
		f.onClosed()
		s.unfinished.Add(int64(-c.others))
		if n := s.unfinished.Load(); n != 0 {
			t.Errorf("%s: %d bytes are counted afterwards", name, n)
		}
	}
	if n := s.metrics.throttledClosed.Get(); n != 2 {
		t.Errorf("%d connections were cut for it, want 2", n)
	}
}

// TestPauseEnds: who is told no and goes on sending, without ever waiting, is told goodbye.
func TestPauseEnds(t *testing.T) {
	s := start(t, func(c *Config) { manual(c) }) // which nobody advances: a rest never ends
	healthy, greedy := connect(t, s), connect(t, s)
	var b []byte
	for range 1024 {
		b = protocol.AppendFrame(b, protocol.KindPing, 1<<40, 0, nil)
	}
	for n := 0; n < 4*pausedBufferLimit; n += len(b) {
		if greedy.writeErr(b) != nil {
			break // it is closed
		}
	}
	if g := greedy.closed(); g == nil || g.Status != protocol.StatusOverloaded {
		t.Errorf("goodbye is %+v", g)
	}
	healthy.ping()
}

// TestPausedConnsResumeInTurn: of those whose rest is over so many go on at a time, and those that have sessions do not wait for the others.
func TestPausedConnsResumeInTurn(t *testing.T) {
	var clock *replica.ManualClock
	s := start(t, func(c *Config) { clock = manual(c) })
	r := newPausedConns(s)
	now := clock.Now()
	var plain, bound []*fed
	for i := range 10 {
		f := feedTo(t, s)
		f.paused.Store(true)
		if i%2 == 0 {
			plain = append(plain, f)
		} else {
			bound = append(bound, f)
		}
		r.add(&f.conn, now+time.Duration(i)*time.Millisecond, i%2 == 1)
	}
	rest := func(list []*fed) (n int) {
		for _, f := range list {
			if f.paused.Load() {
				n++
			}
		}
		return n
	}
	clock.Advance(time.Second)
	for _, want := range [][2]int{{3, 2}, {1, 0}, {0, 0}} {
		left := r.resume(2, 3)
		if rest(plain) != want[0] || rest(bound) != want[1] || left != (want[0]+want[1] > 0) {
			t.Fatalf("%d without and %d with sessions rest, want %v; %v", rest(plain), rest(bound), want, left)
		}
	}
}

// TestClosedBeforeOpened: a connection that was too many gives nothing back.
func TestClosedBeforeOpened(t *testing.T) {
	s := start(t, func(c *Config) { c.Limits.MaxConnectionsPerAddress = 1 })
	feedTo(t, s)
	var c conn
	if c.open(s, new(stubWire), "127.0.0.1:2") {
		t.Fatal("one too many was let in")
	}
	c.onClosed()
	if c.open(s, new(stubWire), "127.0.0.1:3") {
		t.Fatal("one too many was let in afterwards")
	}
}

// answered reads what is there without waiting long, keeps it, and says whether a reply is among it.
func (c *raw) answered(id uint64) bool {
	c.t.Helper()
	chunk := make([]byte, 64<<10)
	for {
		_ = c.nc.SetReadDeadline(time.Now().Add(time.Millisecond))
		n, err := c.nc.Read(chunk)
		c.buf = append(c.buf, chunk[:n]...)
		if err != nil && !isTimeout(err) {
			c.t.Fatal(err)
		}
		for {
			frame, n, err := protocol.SplitFrame(c.buf, 64<<20)
			if err != nil {
				c.t.Fatal(err)
			}
			if n == 0 {
				break
			}
			h, err := protocol.ParseFrame(append([]byte(nil), frame...))
			if err != nil {
				c.t.Fatal(err)
			}
			c.buf = c.buf[n:]
			c.later = append(c.later, h)
		}
		if err != nil {
			return slices.ContainsFunc(c.later, func(h protocol.Header) bool { return h.Kind.IsReply() && h.ID == id })
		}
	}
}

// TestBurstInParts: of a burst of thousands that are refused no more is served at once than shows what it is, and the rest of it after a rest, without another byte.
func TestBurstInParts(t *testing.T) {
	var clock interface{ Advance(time.Duration) }
	s := start(t, func(c *Config) { clock = manual(c) })
	greedy := connect(t, s)
	var only *conn
	s.conns.each(func(c *conn) { only = c })
	const burst = 5000
	var b []byte
	for i := range burst {
		b = protocol.AppendFrame(b, protocol.KindRelease, uint64(1000+i), 0, &protocol.Release{Head: protocol.Head{Session: 1 << 40, Seq: 1, Low: 1}, Name: []byte("x")})
	}
	greedy.write(b)
	pause := 0
	for !greedy.answered(1000 + burst - 1) {
		if only.ending.Load() {
			t.Fatal("the connection was ended")
		}
		if only.paused.Load() {
			pause++
			clock.Advance(sweepPeriod)
		}
	}
	if pause < burst/framesPerCheck/2 {
		t.Errorf("it has rested %d times", pause)
	}
	refused := 0
	for _, h := range greedy.later {
		if h.Kind == protocol.KindRelease|protocol.KindReply && protocol.Status(h.Arg) == protocol.StatusBadSession {
			refused++
		}
	}
	if refused != burst {
		t.Errorf("%d of %d were refused as they should", refused, burst)
	}
}

// TestBadLengthBehindABurst: what a rest leaves unread is not taken for a frame that is to come, whatever its first bytes say.
func TestBadLengthBehindABurst(t *testing.T) {
	var clock interface{ Advance(time.Duration) }
	s := start(t, func(c *Config) { clock = manual(c) })
	healthy, bad := connect(t, s), connect(t, s)
	var b []byte
	for range framesPerCheck {
		b = protocol.AppendFrame(b, protocol.KindPing, 1<<40, 0, nil)
	}
	bad.write(append(append(b, 0xff, 0xff, 0xff, 0xff), make([]byte, 1000)...))
	pause := func() (yes bool) {
		s.conns.each(func(c *conn) { yes = yes || c.paused.Load() })
		return yes
	}
	eventually(t, "a rest", pause)
	clock.Advance(sweepPeriod)
	if g := bad.closed(); g == nil || g.Status != protocol.StatusBadRequest {
		t.Errorf("goodbye is %+v", g)
	}
	healthy.ping()
}
