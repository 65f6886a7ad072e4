package shard

import "slices"

// heir is the waiter of the session that a release names, and the slots that it gets; nil if the
// release is an ordinary one. The waiter lives, wants no more than is given back, and fits what is
// free then: slots that are given back come before other free ones, and of those the lowest.
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
	if !s.hasSlots() {
		return to, nil
	}
	list := &s.rare.queue.slots
	free, given := list.available(), newSlotSet(len(list.list))
	for _, i := range e.place().slots {
		if x := &list.list[i]; !x.drained && !x.leaving {
			given.add(int(i))
		}
	}
	admits := list.admitted(to.demand().selector)
	slots = given.lowest(to.count, admits)
	slots = append(slots, free.lowest(to.count-uint64(len(slots)), admits)...)
	if uint64(len(slots)) < to.count {
		return nil, nil
	}
	slices.Sort(slots)
	return to, slots
}

// handOver takes the units from their owner and gives them to a waiter before anybody else is looked
// at. Where it passes somebody by, tokens are late from now on, until the queue is empty.
func (q *request) handOver(m *Machine, to *entry, slots []uint32) {
	s := q.semaphore
	q.entry.remove(m, true)
	if state := s.queue(); state != nil {
		state.history.transferred()
	}
	switch {
	case s.hasLanes():
		to.grantSlots(m, slots)
	case s.waiters.first == to:
		to.grant(m)
	default:
		m.touch(s)
		s.ownQueue().late = true
		to.grantSlots(m, nil)
	}
	emitGranted(m, to)
	m.noteHandOn(to)
	m.handovers++
	s.promote(m)
}
