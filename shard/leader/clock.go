package leader

// clock turns the driver's monotonic time into log time.
//
// Log time is the time found at the start of the leadership, plus the advance of the monotonic
// clock since, without pauses. Of a pause only MaxExtrapolation counts, since it may have been
// stamped already; the time to drain the sockets after it does not count. So log time never runs
// faster than the monotonic clock and never goes back. A deadline in log time is at least as long
// in real time.
type clock struct {
	seen     uint64 // the newest now of any call
	paused   bool
	segments []segment // oldest first, at least one; the last one is running unless paused
}

// segment is a span in which log time ran: from log at mono until end.
type segment struct{ mono, log, end uint64 }

const never = ^uint64(0)

func (c *clock) start(now, log uint64) {
	c.seen, c.paused = now, false
	c.segments = append(c.segments[:0], segment{now, log, never})
}

// observe notes a call and reports whether the process was paused before it. Log time then stops,
// MaxExtrapolation after the previous call.
func (c *clock) observe(now uint64) (paused bool) {
	if now <= c.seen {
		return false
	}
	paused = now-c.seen > PauseGap
	if paused {
		c.pause()
	}
	c.seen = now
	return paused
}

func (c *clock) pause() {
	if c.paused {
		return
	}
	c.segments[len(c.segments)-1].end = c.at(c.seen + MaxExtrapolation)
	c.paused = true
}

func (c *clock) resume() {
	if !c.paused {
		return
	}
	if len(c.segments) == maxSegments {
		c.segments = append(c.segments[:0], c.segments[1:]...)
	}
	c.segments = append(c.segments, segment{c.seen, c.segments[len(c.segments)-1].end, never})
	c.paused = false
}

// skip moves log time forward, unless it is paused.
func (c *clock) skip(by uint64) {
	if c.paused {
		return
	}
	if len(c.segments) == maxSegments {
		c.segments = append(c.segments[:0], c.segments[1:]...)
	}
	at := c.at(c.seen)
	c.segments[len(c.segments)-1].end = at
	c.segments = append(c.segments, segment{c.seen, at + by, never})
}

// now is the log time of the newest call.
func (c *clock) now() uint64 { return c.at(c.seen) }

// at is the log time at a monotonic time. Times before the oldest segment map to its start.
func (c *clock) at(mono uint64) uint64 {
	for i := len(c.segments) - 1; i >= 0; i-- {
		r := c.segments[i]
		if mono >= r.mono {
			return min(r.log+(mono-r.mono), r.end)
		}
	}
	return c.segments[0].log
}

// pause is what has to happen after a pause before log time runs again.
type pause struct {
	barrier   uint64 // one with a higher number confirms the leadership
	since     uint64 // the first call after the pause
	ticks     int    // since then
	confirmed bool
}

// drained counts a tick, in which messages of clients are read. It reports whether the leadership
// is confirmed and there was time to read them all.
func (p *pause) drained(now uint64) bool {
	p.ticks++
	return p.confirmed && p.ticks > 1 && now-p.since >= MinPauseDrain
}
