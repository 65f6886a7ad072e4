package shard

import "github.com/signalbox-dev/signalbox/shard/container"

// deadlines is what happens by itself. The order is total, (log time, kind, id, bucket), so what
// fires, and in which order, is the same on every replica however the heap was built.
type deadlines struct {
	heap container.Heap[due]
}

// due is a record in deadlines, at its log time.
type due struct{ scheduled }

// timer is a record's deadline. It is due when the log time is above at. It is scheduled while
// pos > 0. Only deadlines changes the fields.
//
// A deadline may be earlier than the event that it stands for: the record is then scheduled again
// when it is due. Each deadline that fires counts against the work of an Apply, so at is part of
// the state.
type timer struct {
	at  uint64
	pos int32 // place in the heap plus 1
}

type deadlineKind uint8

const (
	deadlineSession deadlineKind = 1 // a detached session expires; id is the session's
	deadlineWaiter  deadlineKind = 2 // an acquire times out; id is the order id
	deadlineRemote  deadlineKind = 3 // an idle remote session's record goes; id is the session's
	deadlineProcess deadlineKind = 4 // a process has something to do; id is the node's
	deadlineTrack   deadlineKind = 5 // a track has; id is the node's
	deadlineLimit   deadlineKind = 6 // a deleted rate limit goes; id is the node's
	deadlineBound   deadlineKind = 7 // a hold ends at its bound; id is the order id
)

// scheduled is a record with a timer.
type scheduled interface {
	timerRef() *timer
	deadlineKey() (kind deadlineKind, id uint64, bucket uint32)
}

// Position implements container.Item.
func (a due) Position() *int32 { return &a.timerRef().pos }

// Before implements container.Item.
func (a due) Before(b due) bool {
	ak, ai, ab := a.deadlineKey()
	bk, bi, bb := b.deadlineKey()
	if ak != bk {
		return ak < bk
	}
	if ai != bi {
		return ai < bi
	}
	if ab != bb {
		return ab < bb
	}
	x, ok := a.scheduled.(*hostedObject)
	y, too := b.scheduled.(*hostedObject)
	return ok && too && objectLess(x, y)
}

// schedule sets or moves the record's deadline.
func (d *deadlines) schedule(rec scheduled, at uint64) {
	rec.timerRef().at = at
	d.heap.Set(due{rec}, at)
}

// unschedule takes the record's deadline away, if it has one.
func (d *deadlines) unschedule(rec scheduled) {
	if t := rec.timerRef(); t.pos > 0 {
		d.heap.Remove(due{rec})
		t.at = 0
	}
}

// first is what happens next; rec is nil if there is nothing.
func (d *deadlines) first() (at uint64, rec scheduled) {
	s := d.heap.First()
	return s.Key, s.Item.scheduled
}

// clock is the shard's log time and what follows from it: the time of each bucket, which bucket
// copies serve, which take-overs ended attachments, and what is due. Whether a session or a waiter
// counts as gone is a question to the clock, see session_expiry.go.
type clock struct {
	logTime uint64 // Invariant: never goes back
	wall    uint64 // wall clock of the last entry, for display

	stood, stoodAt uint64 // for how long, in ms, a leader stood still last, and the log time of its end

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
