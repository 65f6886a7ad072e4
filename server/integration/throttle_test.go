package integration

import (
	"slices"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/request"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/transport"
)

// As in server/transport.
const (
	framesPerCheck    = 512
	pausedBufferLimit = 2 * protocol.MaxFrameLen
)

// TestPause: who pings without end rests, and goes on afterwards with what was sent meanwhile.
// Others do not.
func TestPause(t *testing.T) {
	t.Parallel()
	var clock interface{ Advance(time.Duration) }
	s := start(t, func(c *server.Config) { clock = manual(c) })
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
		s.Requests.EachClient(func(c *request.Client) { yes = yes || c.Paused() })
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
			clock.Advance(transport.SweepPeriod)
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

// TestPauseEnds: the server ends a connection whose client is rejected and goes on sending, without
// ever waiting.
func TestPauseEnds(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *server.Config) { manual(c) }) // which nobody advances: a rest never ends
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

// TestPauseOfForbidden: a client that asks on and on for what it may not do rests too, although
// each refusal waits until the map is confirmed.
func TestPauseOfForbidden(t *testing.T) {
	t.Parallel()
	s := guarded(t, func(c *server.Config) { manual(c) }) // which nobody advances: a rest never ends
	stranger := as(t, s, issue(t, adminClient(t, s, rootSecret), "stranger"))
	pause := func() (yes bool) {
		s.Requests.EachClient(func(c *request.Client) { yes = yes || c.Paused() })
		return yes
	}
	for sent := 0; !pause(); sent += 16 {
		if sent > 1024 {
			t.Fatalf("%d requests were refused without a rest", sent)
		}
		for range 16 {
			stranger.send(protocol.KindNodeDelete, 0, &protocol.NodeDelete{Path: "/default", Force: true, Reason: "test"})
		}
		for !stranger.answered(stranger.nextID) && !pause() {
		}
	}
}

// answered reads what is there without waiting long, keeps it, and reports whether a reply is among
// it.
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

// TestBurstInParts: of a burst of thousands that are refused no more is served at once than shows
// what it is, and the rest of it after a rest, without another byte.
func TestBurstInParts(t *testing.T) {
	t.Parallel()
	var clock interface{ Advance(time.Duration) }
	s := start(t, func(c *server.Config) { clock = manual(c) })
	greedy := connect(t, s)
	var only *request.Client
	s.Requests.EachClient(func(c *request.Client) { only = c })
	const burst = 5000
	var b []byte
	for i := range burst {
		b = protocol.AppendFrame(b, protocol.KindRelease, uint64(1000+i), 0,
			&protocol.Release{Head: protocol.Head{Session: 1 << 40, Seq: 1, Low: 1}, Name: []byte("x")})
	}
	greedy.write(b)
	pause := 0
	for !greedy.answered(1000 + burst - 1) {
		if only.Ending() {
			t.Fatal("the connection was ended")
		}
		if only.Paused() {
			pause++
			clock.Advance(transport.SweepPeriod)
		}
	}
	if pause < burst/framesPerCheck/2 {
		t.Errorf("it has rested %d times", pause)
	}
	refused := 0
	for _, h := range greedy.later {
		if h.Kind == protocol.KindRelease|protocol.KindReply && protocol.Status(h.Arg) == protocol.StatusSessionExpired {
			refused++
		}
	}
	if refused != burst {
		t.Errorf("%d of %d were refused as they should", refused, burst)
	}
}

// TestBadLengthBehindABurst: what a rest leaves unread is not taken for a frame that is to come,
// whatever its first bytes say.
func TestBadLengthBehindABurst(t *testing.T) {
	t.Parallel()
	var clock interface{ Advance(time.Duration) }
	s := start(t, func(c *server.Config) { clock = manual(c) })
	healthy, bad := connect(t, s), connect(t, s)
	var b []byte
	for range framesPerCheck {
		b = protocol.AppendFrame(b, protocol.KindPing, 1<<40, 0, nil)
	}
	bad.write(append(append(b, 0xff, 0xff, 0xff, 0xff), make([]byte, 1000)...))
	pause := func() (yes bool) {
		s.Requests.EachClient(func(c *request.Client) { yes = yes || c.Paused() })
		return yes
	}
	await.True(t, "a rest", pause)
	clock.Advance(transport.SweepPeriod)
	if g := bad.closed(); g == nil || g.Status != protocol.StatusBadRequest {
		t.Errorf("goodbye is %+v", g)
	}
	healthy.ping()
}
