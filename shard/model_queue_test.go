package shard

import "github.com/signalbox-dev/signalbox/protocol"

func (s *modelSemaphore) entryOf(of *modelSession) *modelEntry {
	for _, r := range s.entries {
		if r.session == of {
			return r
		}
	}
	return nil
}

func (s *modelSemaphore) used() (sum uint64) {
	for _, r := range s.entries {
		if r.owner {
			sum += r.count
		}
	}
	return sum
}

// fits reports whether so many units are free; counts never overflow.
func (s *modelSemaphore) fits(count uint64) bool {
	return s.used() <= s.limit && count <= s.limit-s.used()
}

// head is the first waiter.
func (s *modelSemaphore) head() *modelEntry {
	for _, r := range s.entries {
		if !r.owner {
			return r
		}
	}
	return nil
}

func (s *modelSemaphore) waiters() (n int) {
	for _, r := range s.entries {
		if !r.owner {
			n++
		}
	}
	return n
}

// overdue reports whether a waiter counts as gone.
func (m *model) overdue(r *modelEntry) bool {
	return r.timed && m.now > r.deadline || !m.alive(r.session)
}

// process looks at the head of the queue until it does not fit, and deletes an ephemeral semaphore
// with nobody left. It does nothing to a semaphore nothing has happened to.
func (m *model) process(s *modelSemaphore) {
	if m.node(s.node) == nil {
		return
	}
	m.grantNext(s)
	m.updatePreempted(s, nil)
}

func (m *model) grantNext(s *modelSemaphore) {
	if s.laned() {
		m.examine(s)
		return
	}
	for {
		r := s.head()
		switch {
		case r == nil || !m.overdue(r) && !s.fits(r.count):
			if s.ephemeral && len(s.entries) == 0 {
				m.countRule("ephemeral deleted")
				m.sems = without(m.sems, s)
				m.deleted(s)
				m.change(s, protocol.SemaphoreChange{Kind: protocol.ChangeDeleted})
			}
			return
		case m.overdue(r):
			m.countRule("head of the queue is overdue")
			m.endWaiter(s, r)
		default:
			m.countRule("waiter granted")
			if s.queue != nil && s.queue.late {
				m.countRule("late token without lanes")
				m.grantFrom(s, r, nil)
			} else {
				m.grant(s, r)
			}
			m.result(s, r, protocol.StatusOK, protocol.Acquired)
		}
	}
}

// endWaiter ends a waiter that counts as gone.
func (m *model) endWaiter(s *modelSemaphore, r *modelEntry) {
	if m.alive(r.session) {
		m.result(s, r, protocol.StatusOK, protocol.NotAcquired)
		m.recall(r, Event{State: protocol.NotAcquired})
	} else {
		m.result(s, r, protocol.StatusSessionExpired, 0)
	}
	m.remove(s, r, true)
}

func (m *model) grant(s *modelSemaphore, r *modelEntry) {
	r.owner, r.timed, r.since = true, false, m.wall
	if r.want = (modelPreemption{}); s.queue != nil && s.queue.o.Preempt != protocol.PreemptOff {
		r.want.granted = m.now
	}
	m.bind(s, r)
	s.left()
	m.change(s, protocol.SemaphoreChange{Kind: protocol.ChangeOwnerAdded, Owner: s.asOwner(r)})
	m.count(s, r, 0)
}

// count counts an acquire (0), a wait (1) or a release (2).
func (m *model) count(s *modelSemaphore, r *modelEntry, what int) {
	s.counts[what]++
	if n := m.node(s.node); n == nil || n.config.CountersMode != protocol.CountersDetailed {
		s.detail = nil
		return
	}
	if s.detail == nil {
		s.detail = map[uint64]*[3]uint64{}
	}
	if s.detail[r.session.id] == nil {
		s.detail[r.session.id] = new([3]uint64)
	}
	s.detail[r.session.id][what]++
}

// remove takes an entry out.
func (m *model) remove(s *modelSemaphore, r *modelEntry, notify bool) {
	s.entries = without(s.entries, r)
	s.revision = m.index
	if r.owner {
		m.count(s, r, 2)
		m.keepHold(s, r)
		s.give(s.slotsOf(r))
	} else {
		s.left()
	}
	if r.owner && notify {
		m.change(s, protocol.SemaphoreChange{Kind: protocol.ChangeOwnerRemoved,
			Owner: protocol.Owner{OrderID: r.order, Session: r.session.id}})
	}
	if g := r.session; !g.home && m.idle(g) {
		g.used = m.now
		m.emit(Event{Kind: EventRemoteIdle, Session: g.id, Node: g.node, Epoch: g.epoch})
	}
}

// result ends an queued acquire.
func (m *model) result(s *modelSemaphore, r *modelEntry, st protocol.Status, state protocol.AcquireState) {
	m.emit(Event{
		Kind: EventAcquireResult, Status: st, State: state, Session: r.session.id,
		Seq: r.seq, Epoch: r.session.epoch, Node: s.node, OrderID: r.order,
		Name: s.name, Grant: m.resultGrant(s, r, state),
	})
}

// grantOf is what an entry has beyond plain units, with what its client needs to know of bounds.
func (m *model) grantOf(s *modelSemaphore, r *modelEntry) *protocol.Grant {
	names := s.slotNames(r)
	switch {
	case r.want.number != 0, r.ask.flags&protocol.KnowsBounds != 0:
		return &protocol.Grant{Slots: names, Now: m.now, Until: r.bound(), Preemption: r.want.number}
	case len(names) > 0:
		return &protocol.Grant{Slots: names}
	}
	return nil
}

// resultGrant is grantOf for a result: only a grant has one.
func (m *model) resultGrant(s *modelSemaphore, r *modelEntry, state protocol.AcquireState) *protocol.Grant {
	if state != protocol.Acquired {
		return nil
	}
	return m.grantOf(s, r)
}

func (s *modelSemaphore) asOwner(r *modelEntry) protocol.Owner {
	o := protocol.Owner{OrderID: r.order, Session: r.session.id, Count: r.count,
		Data: r.data, Description: r.session.desc, Since: r.since}
	if s.placeBytes(r) > 0 {
		o.Options = &protocol.OwnerOptions{Slots: s.slotNames(r), Priority: r.ask.level + 1, Key: []byte(r.ask.key)}
	}
	return o
}
