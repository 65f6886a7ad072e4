package shard

import "github.com/signalbox-dev/signalbox/protocol"

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
