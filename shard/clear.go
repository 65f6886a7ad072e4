package shard

import "math"

// clearing is the sweep that removes what dropped copies hold, a bounded piece an Apply: first the
// sessions at home there, node by node in order of id, then what is in the copies, bucket by bucket
// in order of key. It begins again when another copy is dropped meanwhile; when it has come to the
// end, all of them are empty.
type clearing struct {
	on      bool
	homes   bool   // the sessions are done
	node    uint64 // sessions: at this node
	session uint64 // sessions: behind this one
}

// drop begins the removal of a copy. The epoch is what stays. homes: sessions may be at home in it.
func (m *Machine) drop(b *bucket, epoch uint64, homes bool) {
	b.epoch, b.pending = epoch, 0
	switch {
	case b.state == bucketAbsent || b.state == bucketDropping:
		return
	case len(b.semaphores)+len(b.processes)+len(b.tracks) == 0 && !homes:
		b.state = bucketAbsent
		m.copies = m.countCopies()
	default:
		b.state = bucketDropping
		m.clearing = clearing{on: true}
	}
}

// clear goes on with the removal.
func (m *Machine) clear() {
	c := &m.clearing
	if c.on && !c.homes {
		c.homes = m.clearHomes()
	}
	if c.on && c.homes && m.clearCopies() {
		m.cleared()
	}
}

// clearHomes has the sessions in dropped copies go; false: the work of this Apply is used up.
func (m *Machine) clearHomes() bool {
	c := &m.clearing
	looks := 10 * m.work.released // nodes passed by cost less than records removed
	dropped := m.idRanges(func(is bucketState) bool { return is == bucketDropping })
	for m.run.released > 0 && looks > 0 {
		looks -= 5
		n := m.nodeFrom(c.node)
		if n == nil {
			return true
		}
		if n.id != c.node {
			c.node, c.session = n.id, 0
		}
		if !m.clearSessions(n, dropped) {
			return false
		}
		if n.id == math.MaxUint64 {
			return true
		}
		c.node, c.session = n.id+1, 0
	}
	return false
}

// clearCopies has what is in dropped copies go; false: the work of this Apply is used up.
func (m *Machine) clearCopies() bool {
	for i := range m.buckets {
		b := &m.buckets[i]
		if b.state != bucketDropping {
			continue
		}
		if !clearCopy(m, b.semaphores, m.discard) || !clearCopy(m, b.processes, m.clearProcess) || !clearCopy(m, b.tracks, m.clearTrack) {
			return false
		}
	}
	return true
}

// clearCopy has things of a copy go in order of key. remove takes one out of the map, and is false
// if it could not in this Apply. Nobody leaves or is told by that: they are elsewhere.
func clearCopy[T any](m *Machine, things map[string]T, remove func(T) bool) bool {
	for len(things) > 0 {
		if m.run.released <= 0 {
			return false
		}
		keys, _ := keysFrom(things, nil)
		for _, key := range keys {
			if m.run.released <= 0 || !remove(things[key]) {
				return false
			}
		}
	}
	return true
}

// nodeFrom is the first node whose id is not below id.
func (m *Machine) nodeFrom(id uint64) (n *node) {
	m.nodeIndex.ascend(func(o *node) bool { return o.id < id }, func(o *node) bool {
		n = o
		return false
	})
	return n
}

// cleared ends the sweep.
func (m *Machine) cleared() {
	m.clearing = clearing{}
	for i := range m.buckets {
		if b := &m.buckets[i]; b.state == bucketDropping {
			b.state, b.semaphores, b.processes, b.tracks = bucketAbsent, nil, nil, nil
		}
	}
	m.copies = m.countCopies()
	kept := m.stranded[:0]
	for _, p := range m.stranded {
		if p.busy() {
			kept = append(kept, p)
			continue
		}
		m.touchParty(p)
		delete(m.parties, p.id)
	}
	clear(m.stranded[len(kept):])
	m.stranded = kept
}

// clearSessions has the node's sessions in dropped copies go; false: the work of this Apply is used up.
func (m *Machine) clearSessions(n *node, dropped []idRange) bool {
	c := &m.clearing
	for {
		s := n.sessionIn(dropped, c.session)
		if s == nil {
			return true
		}
		if m.run.released <= 0 {
			return false
		}
		m.run.released--
		c.session = s.id
		m.depart(s)
	}
}

// sessionBehind is the node's first session with an id above id.
func (n *node) sessionBehind(id uint64) (s *session) {
	n.sessions.ascend(func(o *session) bool { return o.id <= id }, func(o *session) bool {
		s = o
		return false
	})
	return s
}

// depart takes a session's home out of this shard. What the shard's semaphores know of the session stays, as a guest.
func (m *Machine) depart(s *session) {
	p := s.party
	m.forgetHome(p)
	if !p.busy() && p.answers.len() == 0 && p.low <= 1 {
		delete(m.parties, p.id)
		p.gone = true // and has no answers
		return
	}
	p.node.guests.insert(p, partyLess)
	if !p.busy() {
		m.arm(p, addSaturated(p.used, Retention))
	}
}

// forgetHome makes a party whose home copy is here, and not active, one without a home here.
func (m *Machine) forgetHome(p *party) {
	m.touchParty(p)
	s := p.home
	m.cancel(s)
	m.cancel(p)
	delete(m.creates, s.create)
	p.node.removeSession(s)
	p.home, p.used = nil, m.logTime // used is part of the state of a guest only
}

// discard removes a semaphore of a dropped copy with its entries: nothing is released or told by that, the semaphore is elsewhere.
func (m *Machine) discard(s *semaphore) bool {
	for _, t := range []*treap{&s.owners, &s.waiters} {
		for e := t.first; e != nil; e = t.first {
			if m.run.released <= 0 {
				return false
			}
			m.run.released--
			m.touchSemaphore(s)
			m.touchEntry(e)
			m.cancel(e)
			t.remove(e, byOrder)
			s.judge()
			s.node.strike(e)
			if !e.waiting {
				s.used -= e.count
			}
			p := e.party
			p.held.remove(e, byName)
			if !p.busy() && !p.gone && !m.atHome(p) {
				m.touchParty(p)
				m.becameIdle(p)
			}
		}
	}
	if m.run.released <= 0 {
		return false
	}
	m.run.released--
	m.unlink(s)
	return true
}
