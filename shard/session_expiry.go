package shard

// A session or a waiter whose deadline has passed counts as gone at once, for every request and
// every queue, even if its deadline has not fired yet.

// alive reports whether a session exists: it has not ended and, at home, is not overdue.
func (c *clock) alive(p *sessionRecord) bool {
	if p.ended || p.node.dropped {
		return false
	}
	return !c.atHome(p) || !c.overdue(p.home)
}

// atHome reports whether the session's home is active here. While the home copy here is not active,
// the session is a remote one.
func (c *clock) atHome(p *sessionRecord) bool {
	return p.home != nil && c.homeBucketOf(p.home).state == bucketActive
}

// detached reports whether a session is detached or has ended, so that another session may take its
// instance's id. A home that is active here decides by its own record, any other shard by the last
// report of the home.
func (c *clock) detached(p *sessionRecord) bool {
	if !c.alive(p) {
		return true
	}
	if c.atHome(p) {
		attached, _ := c.attached(p.home)
		return !attached
	}
	return p.detached
}

// attached reports whether a session is attached under the present leader, and otherwise the last
// moment of its bucket's time at which it exists.
//
// That moment never moves while the session is not attached again, under any leader: its client
// believes in the session for less than the timeout after it sent what a leader answered, and each
// answer rests on what the log had then. An attach is answered when the log has it. A pong is
// answered behind a barrier that began after the ping arrived, so the sending is before any later
// take-over. An attach that is answered ahead of the log (leader.MayAttachUnlogged) is only
// answered where the deadline in the log is far enough away. Log time is never faster than real
// time, and stands still in between two leaders. So a take-over sets a deadline only for attached
// sessions.
func (c *clock) attached(s *homeSession) (attached bool, deadline uint64) {
	if !s.attached || s.generation == c.takeovers.generation {
		return s.attached, s.timer.at
	}
	b := c.homeBucketOf(s)
	if b.state != bucketActive {
		return true, 0 // as it is when its bucket is activated
	}
	o := c.takeovers.endedBy(s, b)
	if o == nil {
		return true, 0
	}
	deadline = addSaturated(b.timeAt(o.at), uint64(s.timeout))
	if !o.planned || s.timeout == 0 { // which would leave no time at all to come back in
		deadline = addSaturated(deadline, s.node.grace(o.generation, o.at))
	}
	return false, deadline
}

// overdue reports whether a session has passed its deadline, fired or not.
func (c *clock) overdue(s *homeSession) bool {
	attached, deadline := c.attached(s)
	return !attached && c.bucketTime(c.homeBucketOf(s)) > deadline
}

// entryEnded reports whether an entry counts as gone for its own session, which lives.
func (c *clock) entryEnded(e *entry) bool { return e.waiting && c.waiterEnded(e) || c.overBound(e) }

// waiterEnded reports whether a waiter counts as gone: its time is over, or its session is.
func (c *clock) waiterEnded(e *entry) bool { return c.timedOut(e) || !c.alive(e.session) }

// timedOut reports whether the time of a waiter is over.
func (c *clock) timedOut(e *entry) bool {
	return e.timer.pos > 0 && c.bucketTime(e.semaphore.bucket) > e.timer.at
}
