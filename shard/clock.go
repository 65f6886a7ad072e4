package shard

// clock is the shard's log time and what follows from it: the time of each bucket, which bucket
// copies serve, which take-overs ended attachments, and what is due. Whether a session or a waiter
// counts as gone is a question to the clock, see session_expiry.go.
type clock struct {
	logTime uint64 // Invariant: never goes back
	wall    uint64 // wall clock of the last entry, for display

	bucketTable
	takeovers takeovers
	deadlines deadlines
}

func (c *clock) bucketTime(b *bucket) uint64 {
	if b.state != bucketActive {
		return b.timeBase
	}
	return b.timeAt(c.logTime)
}

// schedule sets or moves a record's deadline, in its bucket's time.
func (c *clock) schedule(rec scheduled, at uint64) {
	b := c.timersOf(rec)
	if b == nil {
		c.deadlines.schedule(rec, at)
		return
	}
	was := b.timers.heap.First()
	b.timers.schedule(rec, at)
	if b.timers.heap.First() != was {
		c.rescheduleBucket(b)
	}
}

// unschedule takes a record's deadline away, if it has one.
func (c *clock) unschedule(rec scheduled) {
	b := c.timersOf(rec)
	if b == nil {
		c.deadlines.unschedule(rec)
		return
	}
	was := b.timers.heap.First()
	b.timers.unschedule(rec)
	if b.timers.heap.First() != was {
		c.rescheduleBucket(b)
	}
}

// rescheduleBucket keeps the bucket in the machine's deadlines at the first of its own.
func (c *clock) rescheduleBucket(b *bucket) {
	at, rec := b.timers.first()
	if rec == nil || b.state != bucketActive {
		c.deadlines.unschedule(b)
		return
	}
	c.deadlines.schedule(b, b.logTimeAt(at))
}
