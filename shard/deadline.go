package shard

// deadlines is a heap of what happens by itself: a 4-ary heap with the position kept in each
// record, so that a cancel costs O(log n). The order is total, (log time, kind, id, bucket), so
// that what fires, and in which order, is the same on every replica however the heap was built.
type deadlines struct {
	heap []slot
}

type slot struct {
	at  uint64
	rec scheduled
}

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

func (d *deadlines) less(a, b *slot) bool {
	if a.at != b.at {
		return a.at < b.at
	}
	ak, ai, ab := a.rec.deadlineKey()
	bk, bi, bb := b.rec.deadlineKey()
	if ak != bk {
		return ak < bk
	}
	if ai != bi {
		return ai < bi
	}
	if ab != bb {
		return ab < bb
	}
	x, ok := a.rec.(*hostedObject)
	y, too := b.rec.(*hostedObject)
	return ok && too && objectLess(x, y)
}

// schedule sets or moves the record's deadline.
func (d *deadlines) schedule(rec scheduled, at uint64) {
	t := rec.timerRef()
	t.at = at
	if t.pos == 0 {
		d.heap = append(d.heap, slot{at, rec})
		t.pos = int32(len(d.heap))
		d.up(len(d.heap) - 1)
		return
	}
	i := int(t.pos) - 1
	d.heap[i].at = at
	if !d.up(i) {
		d.down(i)
	}
}

// unschedule takes the record's deadline away, if it has one.
func (d *deadlines) unschedule(rec scheduled) {
	t := rec.timerRef()
	if t.pos == 0 {
		return
	}
	i, last := int(t.pos)-1, len(d.heap)-1
	t.pos, t.at = 0, 0
	if i != last {
		d.heap[i] = d.heap[last]
		d.heap[i].rec.timerRef().pos = int32(i + 1)
	}
	d.heap[last] = slot{}
	d.heap = d.heap[:last]
	if i != last && !d.up(i) {
		d.down(i)
	}
}

func (d *deadlines) first() (at uint64, rec scheduled) {
	if len(d.heap) == 0 {
		return 0, nil
	}
	return d.heap[0].at, d.heap[0].rec
}

// head is the first slot, or none.
func (d *deadlines) head() slot {
	if len(d.heap) == 0 {
		return slot{}
	}
	return d.heap[0]
}

func (d *deadlines) up(i int) (moved bool) {
	s := d.heap[i]
	for i > 0 {
		p := (i - 1) / 4
		if !d.less(&s, &d.heap[p]) {
			break
		}
		d.set(i, d.heap[p])
		i, moved = p, true
	}
	if moved {
		d.set(i, s)
	}
	return moved
}

func (d *deadlines) down(i int) {
	s, start := d.heap[i], i
	for {
		c := i*4 + 1
		if c >= len(d.heap) {
			break
		}
		least := c
		for k := c + 1; k < c+4 && k < len(d.heap); k++ {
			if d.less(&d.heap[k], &d.heap[least]) {
				least = k
			}
		}
		if !d.less(&d.heap[least], &s) {
			break
		}
		d.set(i, d.heap[least])
		i = least
	}
	if i != start {
		d.set(i, s)
	}
}

func (d *deadlines) set(i int, s slot) {
	d.heap[i] = s
	s.rec.timerRef().pos = int32(i + 1)
}
