package shard

import (
	"math"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/queue"
)

// endWaiter ends a waiter that counts as gone, and does not look at the queue.
func (e *entry) endWaiter(m *Machine) {
	switch p := e.session; {
	case m.alive(p):
		m.emitResult(e, protocol.StatusOK, protocol.NotAcquired, "")
		e.rememberOutcome(m, outcomeOK, protocol.NotAcquired)
	case !p.ended || p.home == nil:
		m.emitResult(e, protocol.StatusSessionExpired, 0, endText(p))
	}
	e.remove(m, true, 0)
}

// promote grants from the head of the queue as long as it fits. Without lanes only the head is
// looked at: a large one blocks smaller ones behind it. A head that counts as gone is ended
// instead; when there are more of those than this Apply may end, the queue stands still until their
// timers fire.
func (s *semaphore) promote(m *Machine) {
	if s.node.dropped {
		return
	}
	if q := s.queue(); q != nil {
		q.serve(m)
		return
	}
	s.grantNext(m)
}

func (s *semaphore) grantNext(m *Machine) {
	for e := s.waiters.first; e != nil; e = s.waiters.first {
		if m.waiterEnded(e) {
			if m.batch.releaseBudget <= 0 {
				return
			}
			m.batch.releaseBudget--
			e.endWaiter(m)
			continue
		}
		if !s.fits(e.count) {
			return
		}
		e.grant(m)
		emitGranted(m, e)
		m.noteHandOff(e)
	}
}

// enqueue adds a waiter to the queue.
func (s *semaphore) enqueue(e *entry) {
	s.ownExtras().waiters.insert(e, byOrder)
	s.queueChanged()
}

// dequeue takes a waiter out, and returns its options; nil: a plain one.
func (s *semaphore) dequeue(e *entry) (a *queue.Ask) {
	s.waiters.remove(e, byOrder)
	if q := s.queue(); q != nil {
		a = q.leave(e)
	}
	s.queueChanged()
	return a
}

// queueChanged is called when a waiter came or went, and when the first one's request changed.
func (s *semaphore) queueChanged() {
	s.updateStuck()
	s.rankQueue()
}

// rankQueue is called when the number of waiters, the first of them or its request changed.
func (s *semaphore) rankQueue() {
	length, age := uint64(s.waiters.n), uint64(0)
	if head := s.waiters.first; head != nil {
		age = max(1, math.MaxUint64-head.since)
	}
	s.node.queues.Set(s, &s.places[placeQueue], length)
	s.node.waits.Set(s, &s.places[placeWait], age)
}

// cannotMove reports whether the waiter that is served next wants more than the limit. No release
// can ever serve it, nor those behind it that need what it claims. With lanes the policy says which
// waiter is next: often not the one that came first.
func (s *semaphore) cannotMove() bool {
	if q := s.queue(); q.laned() {
		return q.NextExceeds(s.limit)
	}
	return s.waiters.first != nil && s.waiters.first.count > s.limit
}

// updateStuck counts queues that cannot move. It is called whenever the waiter that is served next,
// its count or the limit may have changed.
func (s *semaphore) updateStuck() {
	switch stuck := s.cannotMove(); {
	case stuck == s.stuck:
	case stuck:
		s.stuck = true
		s.node.stuck++
	default:
		s.stuck = false
		s.node.stuck--
	}
}

// grant makes a waiter, which fits, an owner.
func (e *entry) grant(m *Machine) {
	if q := e.semaphore.queue(); q.lateTokens() {
		q.grant(m, e, nil)
		return
	}
	e.own(m, e.leaveQueue(m), nil)
}

// leaveQueue takes a waiter out of the queue, for it to become an owner.
func (e *entry) leaveQueue(m *Machine) *queue.Ask {
	s := e.semaphore
	m.touch(s)
	m.touch(e)
	m.unschedule(e)
	e.waitEnded(m, WaitGranted)
	a := s.dequeue(e)
	if s.waiters.n == 0 {
		m.formerOwners.forget(s)
	}
	e.waiting, e.since, e.began = false, m.wall, m.logTime
	s.node.waiters--
	e.session.waits--
	return a
}

// own makes an entry an owner, of these slots if units have names.
func (e *entry) own(m *Machine, a *queue.Ask, slots []uint32) {
	s := e.semaphore
	if q := s.queue(); q != nil {
		q.own(m, e, a, slots)
	}
	s.owners.insert(e, byOrder)
	s.used += e.count
	s.revision = m.applied
	m.emitOwnerChange(e, protocol.ChangeOwnerAdded)
	s.countEvent(e.session.id, countAcquire)
}

// release takes an entry out, grants to the waiters that fit now, and deletes an ephemeral
// semaphore that is empty. cause says why the hold of an owner ends.
func (e *entry) release(m *Machine, cause protocol.HoldEnd) {
	s := e.semaphore
	e.remove(m, true, cause)
	s.promote(m)
	s.reapEphemeral(m)
}

// remove takes an entry out of its semaphore and its session, and does nothing else. cause says why
// the hold of an owner ends, unless its session has ended.
func (e *entry) remove(m *Machine, notify bool, cause protocol.HoldEnd) {
	s, p := e.semaphore, e.session
	m.touch(s)
	m.touch(e)
	s.revision = m.applied
	s.node.removeEntryUsage(e)
	if e.waiting {
		outcome := WaitAborted
		if m.timedOut(e) && m.alive(p) {
			outcome = WaitTimedOut
		}
		e.waitEnded(m, outcome)
		m.unschedule(e)
		s.dequeue(e)
	} else {
		e.holdEnded(m)
		if e.timer.pos > 0 {
			m.unschedule(e)
		}
		s.owners.remove(e, byOrder)
		s.used -= e.count
		if q := s.queue(); q != nil {
			q.ended(m, e, cause)
		}
		s.countEvent(p.id, countRelease)
		if notify {
			if x := m.newChange(s, protocol.ChangeOwnerRemoved); x != nil {
				x.Owner.OrderID, x.Owner.Session = e.orderID, p.id
			}
		}
	}
	m.batch.checkHandOff(s)
	if s.waiters.n == 0 {
		m.formerOwners.forget(s)
	}
	p.dropEntry(e)
	if !p.hasReferences() && !m.atHome(p) {
		p.remoteIdle(m)
	}
	if m.snapshot == nil && len(e.data) == 0 {
		m.spares.entries.put(e)
	}
}
