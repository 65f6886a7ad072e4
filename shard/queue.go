package shard

import (
	"math"

	"github.com/signalbox-dev/signalbox/protocol"
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
	e.remove(m, true)
}

// promote grants from the head of the queue as long as it fits. Only the head is looked at: a large
// one blocks smaller ones behind it. A head that counts as gone is ended instead; when there are
// more of those than this Apply may end, the queue stands still until their timers fire.
func (s *semaphore) promote(m *Machine) {
	if s.node.dropped {
		return
	}
	s.grantNext(m)
	if s.rare != nil {
		updateWanted(m, s)
	}
}

func (s *semaphore) grantNext(m *Machine) {
	if s.hasLanes() {
		s.rare.queue.examine(m, s)
		return
	}
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
		m.noteHandOn(e)
	}
}

// enqueue and dequeue add a waiter to the queue, and take it out.
func (s *semaphore) enqueue(e *entry) {
	s.ownExtras().waiters.insert(e, byOrder)
	if s.hasLanes() {
		s.rare.queue.join(e)
	}
	s.queueChanged()
}

func (s *semaphore) dequeue(e *entry) {
	s.waiters.remove(e, byOrder)
	if q := s.queue(); q != nil {
		if q.laned() {
			q.leave(e)
		}
		q.late = q.late && (s.waiters.n > 0 || q.laned())
	}
	s.queueChanged()
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

// updateStuck counts queues whose first waiter wants more than the limit. No release can ever serve
// it or, as the queue is strict, any waiter behind it. It is called whenever the head, its count or
// the limit may have changed.
func (s *semaphore) updateStuck() {
	head := s.waiters.first
	switch stuck := head != nil && head.count > s.limit; {
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
	if e.semaphore.lateTokens() {
		e.grantSlots(m, nil)
		return
	}
	e.leaveQueue(m)
	e.own(m)
}

// grantSlots is grant where tokens are late. The token is above all that were granted before.
func (e *entry) grantSlots(m *Machine, slots []uint32) {
	s, q := e.semaphore, e.semaphore.rare.queue
	m.touch(s)
	d := e.demand()
	tag := q.tag(d, e.count)
	e.leaveQueue(m)
	s.bucket.orderCounter++
	e.session.renumber(e, s.bucket.orderCounter)
	q.granted(e, d, slots, tag)
	e.own(m)
}

// leaveQueue takes a waiter out of the queue, for it to become an owner.
func (e *entry) leaveQueue(m *Machine) {
	s := e.semaphore
	m.touch(s)
	m.touch(e)
	m.unschedule(e)
	e.waitEnded(m, WaitGranted)
	s.dequeue(e)
	if s.waiters.n == 0 {
		m.formerOwners.forget(s)
	}
	e.waiting, e.since, e.began = false, m.wall, m.logTime
	s.node.waiters--
	e.session.waits--
}

// own makes an entry an owner.
func (e *entry) own(m *Machine) {
	s := e.semaphore
	if s.rare != nil {
		startHold(m, e)
	}
	s.owners.insert(e, byOrder)
	s.used += e.count
	s.revision = m.applied
	m.emitOwnerChange(e, protocol.ChangeOwnerAdded)
	s.countEvent(e.session.id, countAcquire)
	m.hot.granted(s)
}

// release takes an entry out, grants to the waiters that fit now, and deletes an ephemeral
// semaphore that is empty.
func (e *entry) release(m *Machine) {
	s := e.semaphore
	e.remove(m, true)
	s.promote(m)
	s.reapEphemeral(m)
}

// remove takes an entry out of its semaphore and its session, and does nothing else.
func (e *entry) remove(m *Machine, notify bool) {
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
		wantEnded(m, e)
		s.owners.remove(e, byOrder)
		s.used -= e.count
		if q := s.queue(); q != nil {
			q.history.keep(m, e)
		}
		s.countEvent(p.id, countRelease)
		if notify {
			if x := m.newChange(s, protocol.ChangeOwnerRemoved); x != nil {
				x.Owner.OrderID, x.Owner.Session = e.orderID, p.id
			}
		}
	}
	if s.rare != nil {
		e.dropPlace(m)
	}
	m.batch.checkHandOn(s)
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
