package shard

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/queue"
)

// maxAlteredWaiters bounds the waiters that an alter moves to other lanes in one Apply.
const maxAlteredWaiters = 10_000

// applyAlter changes options of a persistent semaphore, and which of its slots are drained. Owners
// stay as they are; waiters go to the lanes of the new options, with their places and arrivals.
func applyAlter(m *Machine, c *rawCommand) {
	x := &m.batch.alter
	var r request
	if !m.decode(x, c.body) || !m.valid(x) || !r.enter(m, c, &x.Head, x.Name) {
		return
	}
	s := r.semaphore
	switch {
	case s == nil:
		r.refuse(m, outcomeNoSemaphore)
		return
	case s.ephemeral:
		r.refuse(m, outcomeIsEphemeral)
		return
	}
	a := s.core().Alter(x, s.limit)
	if out := alterRefusal(m, s, x, &a); out != outcomeOK {
		r.refuse(m, out)
		return
	}
	r.finish(m, answer{})
	if a.Changes() || len(x.Drain)+len(x.Undrain) > 0 {
		m.touch(s)
		s.ownQueue().alter(m, x, &a)
	}
}

// alterRefusal is why the alter cannot be; nothing has changed.
func alterRefusal(m *Machine, s *semaphore, x *protocol.Alter, a *queue.Alteration) outcome {
	o, q := &a.Options, s.core()
	switch {
	case o.Fit(a.Limit) != "":
		return outcomeOptions
	case q.HasSlots() != a.HasSlots() && s.owners.n+s.waiters.n > 0:
		return outcomeSlotsInUse
	case a.Preempts() && o.Preempt != protocol.PreemptOff && s.used > protocol.MaxPreemptLimit:
		return outcomeManyUnits
	case a.Relanes() && s.waiters.n > maxAlteredWaiters:
		return outcomeLongQueue
	case !a.LanesFit(q, s.waiters.orders):
		return outcomeLanesLimit
	case !a.KnowsSlots(x.Drain) || !a.KnowsSlots(x.Undrain):
		return outcomeNoSlot
	case !m.roomForBytes(s.node, growth(queue.OptionBytes(o, a.Limit), q.OptionBytes(s.limit))):
		return outcomeBytesQuota
	}
	return outcomeOK
}

// alter carries an alter out.
func (q *queued) alter(m *Machine, x *protocol.Alter, a *queue.Alteration) {
	s := q.s
	s.node.bytes += queue.OptionBytes(&a.Options, a.Limit) - q.OptionBytes(s.limit) // modulo 2^64
	was := q.Options().Preempt
	var waiters []queue.Place
	if a.Relanes() {
		for e := s.waiters.first; e != nil; e = next(e, byOrder) {
			m.touch(e)
			waiters = append(waiters, placeOf(e))
		}
	}
	q.Apply(q.entries(m), a, waiters, m.bucketTime(s.bucket))
	q.charge()
	if a.Preempts() {
		q.restartPreemption(m, was)
	}
	if !q.Drain(x.Drain, x.Undrain) && !a.Changes() {
		return
	}
	s.revision = m.applied
	if s.limit != a.Limit {
		s.limit = a.Limit
		m.emitChange(s, protocol.SemaphoreChange{Kind: protocol.ChangeLimit, Limit: s.limit})
	}
	m.emitChange(s, protocol.SemaphoreChange{Kind: protocol.ChangeOptions})
	s.updateStuck()
	s.promote(m)
	m.batch.checkHandOff(s)
}

// resizeRefusal is why a semaphore with a queue cannot have another limit.
func (q *queued) resizeRefusal(m *Machine, limit uint64) outcome {
	refusal, more := q.MayResize(limit, q.s.limit)
	switch {
	case refusal == queue.ResizeSlotsNamed:
		return outcomeSlotsNamed
	case refusal == queue.ResizeTooHigh:
		return outcomeLimitTooHigh
	case more > 0 && !m.roomForBytes(q.s.node, more):
		return outcomeBytesQuota
	}
	return outcomeOK
}

// resize gives a semaphore with numbered slots another number of them.
func (q *queued) resize(m *Machine, limit uint64) {
	q.s.node.bytes += q.OptionBytes(limit) - q.OptionBytes(q.s.limit) // modulo 2^64
	q.Resize(q.entries(m), limit)
}
