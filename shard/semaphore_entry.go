package shard

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/queue"
)

// entry is what one session has of one semaphore: units, or a place in the queue.
type entry struct {
	links     [2]link
	semaphore *semaphore
	session   *sessionRecord
	orderID   uint64
	count     uint64
	seq       uint64 // number of the acquire that made or last replaced it
	timeout   uint64 // ms, as asked
	since     uint64 // wall clock: of the grant, or of the request while it waits
	began     uint64 // the same in log time; 0: unknown, for it was restored or moved here
	data      []byte // never changed in place
	timer     timer  // of a waiter; of an owner at its bound
	waiting   bool
	snapMark  uint32
}

func (e *entry) timerRef() *timer { return &e.timer }

func (e *entry) deadlineKey() (kind deadlineKind, id uint64, bucket uint32) {
	kind = deadlineWaiter
	if !e.waiting {
		kind = deadlineBound
	}
	return kind, e.orderID, e.semaphore.bucket.number
}

// endInTime ends an entry whose timer is due, and does not look at the queue.
func (e *entry) endInTime(m *Machine) {
	if e.waiting {
		e.endWaiter(m)
	} else {
		endAtBound(m, e)
	}
}

// scheduleTimeout sets the timer of a waiter to the end of the time it asked for.
func (e *entry) scheduleTimeout(m *Machine) {
	if e.timeout == protocol.Forever {
		m.unschedule(e)
		return
	}
	m.schedule(e, addSaturated(m.bucketTime(e.semaphore.bucket), e.timeout))
}

// mayChange reports whether an entry may be released: those in copies that are not active stay as
// they are, unless their node is gone.
func (e *entry) mayChange() bool {
	return e.semaphore.bucket.state == bucketActive || e.semaphore.node.dropped
}

// rememberOutcome remembers what became of an entry's request, unless its client is known to have
// an answer.
func (e *entry) rememberOutcome(m *Machine, out outcome, state protocol.AcquireState) {
	p := e.session
	if p.ended || e.seq < p.low {
		return
	}
	m.touch(p)
	a := answer{seq: e.seq, bucket: e.semaphore.bucket.number, kind: CmdAcquire, outcome: out, state: state}
	if state == protocol.Acquired {
		a.value = e.orderID
	}
	p.rememberAnswer(a)
}

// grantOf is what an owner has beyond a plain one, or nil. It is inlined: most semaphores have
// nothing rare.
func (e *entry) grantOf() *queue.Grant {
	if e.semaphore.rare == nil {
		return nil
	}
	return e.rareGrant()
}

func (e *entry) rareGrant() *queue.Grant { return e.semaphore.core().Grant(e.orderID) }

func (e *entry) quotaBytes() uint64 {
	return entryBytes + uint64(len(e.data)) + e.semaphore.core().EntryBytes(e.orderID)
}

func (e *entry) setData(data []byte) {
	e.semaphore.node.bytes += uint64(len(data)) - uint64(len(e.data)) // modulo 2^64
	e.data = cloneOrNil(data)
}

// owner is the entry of an owner as clients see it.
func owner(e *entry) (o protocol.Owner) {
	fillOwner(&o, e)
	return o
}

// fillOwner is owner in the place where it is kept.
func fillOwner(o *protocol.Owner, e *entry) {
	o.OrderID, o.Session, o.Count, o.Data = e.orderID, e.session.id, e.count, e.data
	o.Description, o.Since = e.session.description, e.since
	if q := e.semaphore.queue(); q != nil {
		o.Options = q.OwnerOptions(q.Grant(e.orderID))
	}
}
