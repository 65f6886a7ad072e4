package shard

import (
	"math"

	"github.com/signalbox-dev/signalbox/protocol"
)

// waiterEnded says whether a waiter counts as gone: its time is over, or its session is.
func (m *Machine) waiterEnded(e *entry) bool { return m.timedOut(e) || !m.alive(e.session) }

// timedOut says whether the time of a waiter is over.
func (m *Machine) timedOut(e *entry) bool {
	return e.timer.pos > 0 && m.bucketTime(e.semaphore.bucket) > e.timer.at
}

// endWaiter ends a waiter that counts as gone, and does not look at the queue.
func (m *Machine) endWaiter(e *entry) {
	switch p := e.session; {
	case m.alive(p):
		m.emitResult(e, protocol.StatusOK, protocol.NotAcquired, "")
		m.rememberOutcome(e, outcomeOK, protocol.NotAcquired)
	case !p.ended || p.home == nil:
		m.emitResult(e, protocol.StatusSessionExpired, 0, endText(p))
	}
	m.removeEntry(e, true)
}

// promote grants from the head of the queue as long as it fits. Only the head is looked at: a large
// one blocks smaller ones behind it. A head that counts as gone is ended instead; when there are
// more of those than this Apply may end, the queue stands still until their timers fire.
func (m *Machine) promote(s *semaphore) {
	if s.node.dropped {
		return
	}
	for e := s.waiters.first; e != nil; e = s.waiters.first {
		if m.waiterEnded(e) {
			if m.batch.releaseBudget <= 0 {
				return
			}
			m.batch.releaseBudget--
			m.endWaiter(e)
			continue
		}
		if !s.fits(e.count) {
			return
		}
		m.emitResult(e, protocol.StatusOK, protocol.Acquired, "")
		m.grant(e)
		m.noteHandOn(e)
	}
}

// noteHandOn notes that a waiter was granted what it waited for.
func (m *Machine) noteHandOn(e *entry) {
	on, s := &m.batch.out.HandedOn, e.semaphore
	*on = HandedOn{}
	if s.owners.n == 1 && (s.waiters.n > 0 || !s.fits(1)) {
		*on = HandedOn{Node: s.node.id, Name: s.name, Owner: e.session.id}
	}
}

// enqueue and dequeue add a waiter to the queue, and take it out.
func (s *semaphore) enqueue(e *entry) {
	s.ownExtras().waiters.insert(e, byOrder)
	s.queueChanged()
}

func (s *semaphore) dequeue(e *entry) {
	s.waiters.remove(e, byOrder)
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
	s.node.queues.set(s, &s.places[placeQueue], length)
	s.node.waits.set(s, &s.places[placeWait], age)
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

// grant makes the first waiter, which fits, an owner.
func (m *Machine) grant(e *entry) {
	s := e.semaphore
	m.touch(s)
	m.touch(e)
	m.unschedule(e)
	m.waitEnded(e, WaitGranted)
	s.dequeue(e)
	if s.waiters.n == 0 {
		m.forgetFormerOwners(s)
	}
	e.waiting, e.since, e.began = false, m.batch.wall, m.logTime
	s.node.waiters--
	e.session.waits--
	s.owners.insert(e, byOrder)
	s.used += e.count
	s.revision = m.applied
	m.emitOwnerChange(e, protocol.ChangeOwnerAdded)
	m.countEvent(e, countAcquire)
}

// releaseEntry takes an entry out, grants to the waiters that fit now, and deletes an ephemeral
// semaphore that is empty.
func (m *Machine) releaseEntry(e *entry) {
	s := e.semaphore
	m.removeEntry(e, true)
	m.promote(s)
	m.reapEphemeral(s)
}

// removeEntry takes an entry out of its semaphore and its session, and does nothing else.
func (m *Machine) removeEntry(e *entry, notify bool) {
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
		m.waitEnded(e, outcome)
		m.unschedule(e)
		s.dequeue(e)
	} else {
		m.holdEnded(e)
		s.owners.remove(e, byOrder)
		s.used -= e.count
		m.countEvent(e, countRelease)
		if notify {
			m.emitChange(s, protocol.SemaphoreChange{Kind: protocol.ChangeOwnerRemoved,
				Owner: protocol.Owner{OrderID: e.orderID, Session: p.id}})
		}
	}
	if s.waiters.n == 0 {
		m.forgetFormerOwners(s)
	}
	p.dropEntry(e)
	if !p.hasReferences() && !m.atHome(p) {
		m.remoteIdle(p)
	}
}

// emitResult ends an accepted acquire.
func (m *Machine) emitResult(e *entry, status protocol.Status, state protocol.AcquireState, text string) {
	m.batch.out.List = append(m.batch.out.List, Event{
		Kind: EventAcquireResult, Status: status, State: state, Session: e.session.id, Seq: e.seq,
		Epoch: e.session.epoch, Node: e.semaphore.node.id,
		OrderID: e.orderID, Name: e.semaphore.name, Text: text,
	})
}

// emitOwnerChange reports a change of an owner to watches.
func (m *Machine) emitOwnerChange(e *entry, kind protocol.SemaphoreChangeKind) {
	m.emitChange(e.semaphore, protocol.SemaphoreChange{Kind: kind, Owner: owner(e)})
}

func owner(e *entry) protocol.Owner {
	return protocol.Owner{OrderID: e.orderID, Session: e.session.id, Count: e.count, Data: e.data,
		Description: e.session.description, Since: e.since}
}
