package leader

// clock turns the driver's monotonic time into log time.
//
// Log time is what was found at the start of the leadership plus the advance of the monotonic clock since, without the time in which it was held: a
// pause of the process but its first moments, which may have been stamped already, and the hearing-out after it. So log time never runs faster than the monotonic clock, and never goes back; everything
// that is measured in it (silence, deadlines) is at least as long in real time.
type clock struct {
	seen     uint64 // the newest now of any call
	paused   bool
	segments []segment // newest last, at least one; the last is running unless held
}

// segment is a time in which log time advanced: from log, at mono, until it reached end.
type segment struct{ mono, log, end uint64 }

const never = ^uint64(0)

func (c *clock) start(now, log uint64) {
	c.seen, c.paused = now, false
	c.segments = append(c.segments[:0], segment{now, log, never})
}

// observe notes a call, and says whether the time since the call before it was a pause. Log time then stands still, at what it was MaxExtrapolation after that
// call.
func (c *clock) observe(now uint64) (paused bool) {
	if now <= c.seen {
		return false
	}
	paused = now-c.seen > PauseGap
	if paused && !faultPauseCounts {
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

// skip moves log time on by so much, at the newest call. Held, it stands still all the same.
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

// at is the log time at a monotonic time. Times before the oldest run that is remembered are taken for its beginning.
func (c *clock) at(mono uint64) uint64 {
	for i := len(c.segments) - 1; i >= 0; i-- {
		r := c.segments[i]
		if mono >= r.mono {
			return min(r.log+(mono-r.mono), r.end)
		}
	}
	return c.segments[0].log
}
