package transport

import (
	"fmt"
	"math"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/replica/beat"
)

// SweepPeriod is the period of the sweep over the connections. It bounds how late an overdue one is
// found.
const SweepPeriod = 500 * time.Millisecond

// A sweep ends at most maxClosesPerBurst connections at once, and then pauses for sweepPause.
const (
	maxClosesPerBurst = 32
	sweepPause        = 4 * time.Millisecond
)

func (t *Transport) sweepLoop() {
	for beat.Sleep(t.ctx, beat.Next(SweepPeriod)) {
		t.sweep()
	}
}

// Sweep does all that is due by the clock. The owner of a manual clock calls it.
func (t *Transport) Sweep() {
	t.sweep()
	t.paused.resume(math.MaxInt, math.MaxInt)
}

// sweep ends the connections that take too long over something.
func (t *Transport) sweep() {
	t.cfg.OnSweep()
	now := t.cfg.Clock.Now()
	t.sweeps.next()
	l := &t.cfg.Limits
	defer t.Flush()
	ended := 0
	t.conns.each(func(c *Conn) {
		if ended >= maxClosesPerBurst && !t.cfg.ManualClock {
			// Those that came together are not ended together: each costs its loop the time of
			// several requests.
			ended = 0
			time.Sleep(sweepPause)
		}
		since := func(ns int64) time.Duration { return now - time.Duration(ns) }
		if c.ending.Load() {
			if since(c.endedAt.Load()) > LingerTimeout {
				ended++
				c.Close(Immediate, 0, "")
			}
			return
		}
		// A machine or a network that stood still passes, so the goodbye is one that a client tries
		// again after.
		if !c.Established() && now-c.opened > l.Hello {
			ended++
			if c.Close(Graceful, protocol.StatusUnavailable, fmt.Sprintf("no hello came within %v", l.Hello)) {
				t.Metrics.NoHello.Inc()
			}
			return
		}
		if began := c.frameSince.Load(); began != 0 && !c.Paused() && since(began) > l.Frame {
			ended++
			if c.Close(Graceful, protocol.StatusUnavailable, fmt.Sprintf("a frame took longer than %v to come", l.Frame)) {
				t.Metrics.SlowFrame.Inc()
			}
			return
		}
		if since(c.lastReceived.Load()) > max(l.Idle, time.Duration(c.keepAlive.Load())) {
			ended++
			if c.Close(Graceful, protocol.StatusUnavailable, "nothing was heard for too long; send pings") {
				t.Metrics.Idle.Inc()
			}
			return
		}
		if c.out.unsent.Load() > 0 && c.out.tooOld(now, l.OutAge) {
			c.closeSlow()
		}
	})
}
