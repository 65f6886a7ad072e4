package shard

import "github.com/signalbox-dev/signalbox/protocol"

// lapsed says whether a waiter counts as gone: its time is over, or its session is.
func (m *Machine) lapsed(e *entry) bool {
	return e.timer.pos > 0 && m.time(e.sem.bucket) > e.timer.at || !m.alive(e.party)
}

// lapse ends a waiter that counts as gone, and does not look at the queue.
func (m *Machine) lapse(e *entry) {
	switch p := e.party; {
	case m.alive(p):
		m.result(e, protocol.StatusOK, protocol.NotAcquired, "")
		m.recall(e, outOK, protocol.NotAcquired)
	case !p.gone || p.home == nil:
		m.result(e, protocol.StatusSessionExpired, 0, goneText(p))
	}
	m.take(e, true)
}

// promote grants from the head of the queue as long as it fits. Only the head is looked at: a large one blocks smaller ones behind it. A head that
// counts as gone is ended instead; when there are more of those than this Apply may end, the queue stands still until their timers fire.
func (m *Machine) promote(s *semaphore) {
	if s.node.dropped {
		return
	}
	for e := s.waiters.first; e != nil; e = s.waiters.first {
		if m.lapsed(e) {
			if m.run.released <= 0 {
				return
			}
			m.run.released--
			m.lapse(e)
			continue
		}
		if !s.fits(e.count) {
			return
		}
		m.result(e, protocol.StatusOK, protocol.Acquired, "")
		m.own(e)
	}
}

// enqueue and dequeue add a waiter to the queue, and take it out.
func (s *semaphore) enqueue(e *entry) {
	s.waiters.insert(e, byOrder)
	s.judge()
}

func (s *semaphore) dequeue(e *entry) {
	s.waiters.remove(e, byOrder)
	s.judge()
}

// judge counts queues whose head wants more than the limit: nothing that is given back can ever serve it, nor, as the
// queue is strict, anybody behind it. It is called whenever the head, its count, or the limit may have changed.
func (s *semaphore) judge() {
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

// own makes a waiter that fits, and is at the head, an owner.
func (m *Machine) own(e *entry) {
	s := e.sem
	m.touchSemaphore(s)
	m.touchEntry(e)
	m.cancel(e)
	s.dequeue(e)
	e.waiting, e.since = false, m.run.wall
	s.node.waiters--
	s.owners.insert(e, byOrder)
	s.used += e.count
	s.revision = m.applied
	m.tell(e, protocol.ChangeOwnerAdded)
	m.count(e, countAcquire)
}

// leave takes an entry out, grants to who fits now, and deletes an ephemeral semaphore with nobody left.
func (m *Machine) leave(e *entry) {
	s := e.sem
	m.take(e, true)
	m.promote(s)
	m.reap(s)
}

// take takes an entry out of its semaphore and its party, and does nothing else.
func (m *Machine) take(e *entry, tell bool) {
	s, p := e.sem, e.party
	m.touchSemaphore(s)
	m.touchEntry(e)
	s.revision = m.applied
	s.node.strike(e)
	if e.waiting {
		m.cancel(e)
		s.dequeue(e)
	} else {
		s.owners.remove(e, byOrder)
		s.used -= e.count
		m.count(e, countRelease)
		if tell {
			m.change(s, protocol.Change{Kind: protocol.ChangeOwnerRemoved, Owner: protocol.Owner{OrderID: e.orderID, Session: p.id}})
		}
	}
	p.held.remove(e, byName)
	if !p.busy() && !m.atHome(p) {
		m.touchParty(p)
		m.becameIdle(p)
	}
}

// result ends an accepted acquire.
func (m *Machine) result(e *entry, status protocol.Status, state protocol.AcquireState, text string) {
	m.run.out.List = append(m.run.out.List, Event{
		Kind: EventAcquireResult, Status: status, State: state, Session: e.party.id, Seq: e.seq, Epoch: e.party.epoch, Node: e.sem.node.id,
		OrderID: e.orderID, Name: e.sem.name, Text: text,
	})
}

// tell makes a change about an owner.
func (m *Machine) tell(e *entry, kind protocol.ChangeKind) {
	m.change(e.sem, protocol.Change{Kind: kind, Owner: owner(e)})
}

func owner(e *entry) protocol.Owner {
	return protocol.Owner{OrderID: e.orderID, Session: e.party.id, Count: e.count, Data: e.data, Description: e.party.desc, Since: e.since}
}
