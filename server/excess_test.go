package server

import (
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestExcess: how much is answered at once, and for how many sweeps the rest waits.
func TestExcess(t *testing.T) {
	t.Parallel()
	type feed struct {
		sweeps    int // before it
		n, frames int
		wait      uint64 // sweeps, 0 for none
	}
	for name, script := range map[string][]feed{
		"few":                   {{0, 256, 256, 0}, {1, 256, 256, 0}},
		"many":                  {{0, 256, 256, 0}, {0, 1, 1, 1}, {0, 500, 500, 1}},
		"at once":               {{0, 257, 257, 1}},
		"one that counts":       {{0, 1000, 1001, 0}, {0, 1, 1, 1}},
		"nothing in excess":     {{0, 300, 300, 1}, {0, 0, 10, 0}},
		"again and again":       {{0, 300, 300, 1}, {1, 300, 300, 2}, {2, 300, 300, 4}, {4, 300, 300, 8}, {8, 300, 300, 8}, {9, 300, 300, 8}},
		"again after a while":   {{0, 300, 300, 1}, {1, 300, 300, 2}, {4, 300, 300, 1}},
		"while others ask much": {{0, -5000, 0, 0}, {0, 32, 32, 0}, {0, 1, 1, 1}, {1, 256, 256, 0}},
	} {
		var all turns
		all.next()
		var e excess
		for i, f := range script {
			for range f.sweeps {
				all.next()
			}
			if f.n < 0 { // another connection's
				all.count.Add(int64(-f.n))
				continue
			}
			until := e.count(&all, f.n, f.frames)
			if until > 0 {
				until -= all.turn.Load()
			}
			if until != f.wait {
				t.Errorf("%s: feed %d waits %d sweeps, want %d", name, i, until, f.wait)
			}
		}
	}
}

// TestExcessWaits: pongs without end wait for the sweep. What others are told does not, nor what is told on the same connection beside them, and none is lost.
func TestExcessWaits(t *testing.T) {
	var clock interface{ Advance(time.Duration) }
	s := start(t, func(c *Config) { clock = manual(c) })
	healthy, greedy := connect(t, s), connect(t, s)
	ping := func(n int) {
		var b []byte
		for range n {
			b = protocol.AppendFrame(b, protocol.KindPing, 1<<40, 0, nil)
		}
		greedy.write(b)
	}
	pongs := func(n int) {
		for range n {
			greedy.find("a pong", func(h protocol.Header) bool { return h.Kind == protocol.KindPong })
		}
	}
	waiting := func() (size int) {
		s.conns.each(func(c *conn) {
			if c.tarries.Load() != 0 {
				size += c.out.waiting()
			}
		})
		return size
	}
	sent := 0
	for ; waiting() == 0; sent += 64 {
		ping(64)
	}
	// A request that is carried out has everything before it written.
	greedy.must(protocol.KindNodeDescribe, 0, &protocol.NodeDescribe{Path: "/default"}, nil)
	if len(greedy.later) != sent {
		t.Fatalf("%d pongs of %d came before the answer to what was asked after them", len(greedy.later), sent)
	}
	pongs(sent)

	ping(1000)
	one := len(protocol.AppendFrame(nil, protocol.KindPong, 1<<40, 0, nil))
	eventually(t, "all pongs to wait", func() bool { return waiting() == 1000*one })
	healthy.ping()
	for range excessMost {
		clock.Advance(sweepPeriod)
	}
	pongs(1000)
	healthy.ping()
}
