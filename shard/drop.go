package shard

import (
	"cmp"
	"iter"
	"maps"
	"math"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/container"
)

// clearState is the sweep that removes dropped copies, a bounded piece in each Apply. It removes
// the sessions at home there, node by node in order of id, then the contents of the copies, bucket
// by bucket in order of key. It restarts when another copy is dropped. When it is through, all
// dropped copies are empty.
type clearState struct {
	active    bool
	homesDone bool   // the sessions are done
	node      uint64 // sessions: at this node
	session   uint64 // sessions: behind this one
}

// drop begins the removal of a copy and keeps its epoch. homes: sessions may be at home in it.
func (b *bucket) drop(m *Machine, epoch uint64, homes bool) {
	b.epoch, b.moveEpoch = epoch, 0
	switch {
	case b.state == bucketAbsent || b.state == bucketDropping:
		return
	case b.empty() && !homes:
		b.state = bucketAbsent
		m.copyCount = m.countCopies()
	default:
		b.state = bucketDropping
		m.clearing = clearState{active: true}
	}
}

func (c *clearState) advance(m *Machine) {
	if c.active && !c.homesDone {
		c.homesDone = c.clearHomeSessions(m)
	}
	if c.active && c.homesDone && clearCopies(m) {
		c.finish(m)
	}
}

// clearHomeSessions removes the sessions at home in dropped copies. It is false if the work of this
// Apply is used up.
func (c *clearState) clearHomeSessions(m *Machine) bool {
	looks := 10 * m.work.releases // nodes passed by cost less than records removed
	dropped := m.homeIDRanges(func(is bucketState) bool { return is == bucketDropping })
	for m.batch.releaseBudget > 0 && looks > 0 {
		looks -= 5
		n := m.nodeFrom(c.node)
		if n == nil {
			return true
		}
		if n.id != c.node {
			c.node, c.session = n.id, 0
		}
		if !c.clearNode(m, n, dropped) {
			return false
		}
		if n.id == math.MaxUint64 {
			return true
		}
		c.node, c.session = n.id+1, 0
	}
	return false
}

// clearNode removes the node's sessions in dropped copies. It is false if the work of this Apply is
// used up.
func (c *clearState) clearNode(m *Machine, n *node, dropped []idRange) bool {
	for {
		s := n.homeSessionIn(dropped, c.session)
		if s == nil {
			return true
		}
		if m.batch.releaseBudget <= 0 {
			return false
		}
		m.batch.releaseBudget--
		c.session = s.id
		s.remove(m)
	}
}

func (c *clearState) finish(m *Machine) {
	*c = clearState{}
	for i := range m.buckets {
		if b := &m.buckets[i]; b.state == bucketDropping {
			b.state, b.semaphores, b.objects = bucketAbsent, container.HashSet[semaphore]{},
				[kindCount]map[string]*hostedObject{}
		}
	}
	m.copyCount = m.countCopies()
	m.sessionTable.forgetReleased(m)
}

// clearCopies removes the contents of dropped copies. It is false if the work of this Apply is used
// up.
func clearCopies(m *Machine) bool {
	for i := range m.buckets {
		b := &m.buckets[i]
		if b.state != bucketDropping || b.empty() {
			continue
		}
		if m.batch.releaseBudget <= 0 || !clearCopy(m, m.semaphores.in(b), clearSemaphore) {
			return false
		}
		for _, objects := range b.objects {
			if !clearCopy(m, maps.Values(objects), clearObject) {
				return false
			}
		}
	}
	return true
}

// clearCopy removes objects of a copy in order of key, without events: they live on in another
// shard. remove takes one out of the copy; it is false if it could not in this Apply.
func clearCopy[T keyed](m *Machine, objects iter.Seq[T], remove func(*Machine, T) bool) bool {
	for more := true; more; {
		var list []T
		list, more = keyedFrom(objects, nil)
		for _, x := range list {
			if m.batch.releaseBudget <= 0 || !remove(m, x) {
				return false
			}
		}
	}
	return true
}

// remove removes a session's home from this shard. If its record is still needed, it stays as a
// remote session's.
func (s *homeSession) remove(m *Machine) {
	p := s.sessionRecord
	s.unlink(m)
	if !p.hasReferences() && p.answers.len() == 0 && p.low <= 1 {
		m.sessions.remove(p)
		p.ended = true // and has no answers
		return
	}
	p.node.remoteSessions.Insert(p.id, cmp.Less)
	if !p.hasReferences() {
		m.schedule(p, addSaturated(p.lastSeen, Retention))
	}
}

// unlink removes the home copy, which is not active, from its session record.
func (s *homeSession) unlink(m *Machine) {
	p := s.sessionRecord
	m.touch(p)
	m.unschedule(s)
	m.byCreateID.remove(s)
	p.node.removeSession(s)
	p.home, p.lastSeen = nil, m.logTime
}

// clearSemaphore removes a semaphore of a dropped copy with its entries, without events: it lives
// on in another shard.
func clearSemaphore(m *Machine, s *semaphore) bool {
	for _, t := range []*treap{&s.owners, &s.waiters} {
		for e := t.first; e != nil; e = t.first {
			if m.batch.releaseBudget <= 0 {
				return false
			}
			m.batch.releaseBudget--
			m.touch(s)
			m.touch(e)
			m.unschedule(e)
			s.node.removeEntryUsage(e)
			if e.waiting {
				s.dequeue(e)
			} else {
				t.remove(e, byOrder)
				s.used -= e.count
				s.queue().disown(m, e)
			}
			p := e.session
			p.dropEntry(e)
			if !p.hasReferences() && !p.ended && !m.atHome(p) {
				p.remoteIdle(m)
			}
		}
	}
	if m.batch.releaseBudget <= 0 {
		return false
	}
	m.batch.releaseBudget--
	s.unlink(m)
	return true
}

// clearObject removes an object of a dropped copy. It is true.
func clearObject(m *Machine, x *hostedObject) bool {
	m.spendWork(1 + len(x.state.sessions(nil)))
	x.unlink(m)
	return true
}

// applyNodeDrop drops a node: its id is unknown from now on, and its sessions and objects are gone.
// Their records are removed piece by piece, in this and the next Applies.
func applyNodeDrop(m *Machine, c *rawCommand) {
	var x NodeDropBody
	if !readBody(c.body, x.fields) || x.Node == 0 {
		m.reply(protocol.StatusBadRequest, textMalformed)
		return
	}
	m.reply(protocol.StatusOK, "")
	if !m.addDropped(x.Node) {
		return
	}
	n := m.nodes[x.Node]
	if n == nil {
		return
	}
	m.touch(n)
	n.dropped = true
	delete(m.nodes, n.id)
	m.updatePeriods()
	m.dropping = append(m.dropping, n)
	m.retryOrphaned() // some may be of this node
	m.batch.out.List = append(m.batch.out.List, Event{Kind: EventNodeDropped, Node: n.id})
	m.nodeTable.removeDropped(m)
}

// removeDropped removes what dropped nodes left, as far as the work of this Apply goes.
func (t *nodeTable) removeDropped(m *Machine) {
	for len(t.dropping) > 0 && m.batch.releaseBudget > 0 {
		n := t.dropping[0]
		if !removeNodeRecords(m, n) {
			return
		}
		m.touch(n)
		t.nodeIndex.Remove(n, nodeLess)
		t.dropping[0] = nil
		t.dropping = t.dropping[1:]
	}
}

// removeNodeRecords removes the records of a dropped node: home sessions, then remote sessions,
// each in order of id, then semaphores and hosted objects in order of name. It is false while some
// are left.
func removeNodeRecords(m *Machine, n *node) bool {
	for s := n.homeSessions.First(); s != nil && m.batch.releaseBudget > 0; s = n.homeSessions.First() {
		m.batch.releaseBudget -= 10 // an end costs about as much as this many entries
		s.end(m, protocol.EndNodeDropped, textNodeEnd)
	}
	for id := n.remoteSessions.First(); id != 0 && m.batch.releaseBudget > 0; id = n.remoteSessions.First() {
		m.batch.releaseBudget--
		p := m.sessions.get(id)
		markRemoteEnded(m, id)
		p.releaseRemote(m)
	}
	m.sessionTable.purgeEnding(m) // its last sessions still have entries
	if n.homeSessions.Len() > 0 || n.remoteSessions.Len() > 0 || len(m.ending) > 0 {
		return false
	}
	dropSemaphores(m, n)
	return dropObjects(m, n) && n.semaphoreCount == 0
}

// dropSemaphores goes by name over all of them. Which are in the ring is no part of the state, so
// it must not decide which are left for the next Apply.
func dropSemaphores(m *Machine, n *node) {
	if m.batch.releaseBudget <= 0 {
		return
	}
	var list []*semaphore
	m.semaphores.names(n, nil, func(s *semaphore) bool {
		list = append(list, s)
		return len(list) < m.batch.releaseBudget
	})
	for _, s := range list {
		m.batch.releaseBudget--
		s.delete(m)
	}
}

// dropObjects removes the objects of a dropped node, kind by kind in order of name. It is false if
// the work of this Apply is used up.
func dropObjects(m *Machine, n *node) bool {
	for kind := range n.objects {
		for x := n.objects[kind].First(); x != nil; x = n.objects[kind].First() {
			if m.batch.releaseBudget <= 0 {
				return false
			}
			m.batch.releaseBudget--
			x.delete(m)
		}
	}
	return true
}
