package shard

import "github.com/signalbox-dev/signalbox/protocol"

// heir is the waiter of the session that a release names, and the slots that it gets; nil if the
// release is an ordinary one. The waiter lives, wants no more than is given back, and fits what is
// free then.
func (q *request) heir(m *Machine, session uint64) (to *entry, slots []uint32) {
	s, e, p := q.semaphore, q.entry, m.sessions.get(session)
	if p == nil || e.waiting {
		return nil, nil
	}
	to = s.entryOf(p)
	if to == nil || !to.waiting || m.waiterEnded(to) || to.count > e.count ||
		s.used-e.count > s.limit || to.count > s.limit-(s.used-e.count) {
		return nil, nil
	}
	if x := s.queue(); x != nil {
		var ok bool
		if slots, ok = x.HeirSlots(e.orderID, to.orderID, to.count); !ok {
			return nil, nil
		}
	}
	return to, slots
}

// transfer takes the units from their owner and gives them to a waiter before anybody else is
// looked at. Where it passes somebody by, tokens are late from now on, until the queue is empty.
func (q *request) transfer(m *Machine, to *entry, slots []uint32) {
	s := q.semaphore
	q.entry.remove(m, true, protocol.HoldTransferred)
	switch x := s.queue(); {
	case !x.laned() && s.waiters.first == to:
		to.grant(m)
	default:
		m.touch(s)
		if !x.laned() {
			s.ownQueue().DrawLate()
		}
		s.queue().grant(m, to, slots)
	}
	emitGranted(m, to)
	m.noteHandOff(to)
	m.leaseTransfers++
	s.promote(m)
}
