package shard

import (
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// applyNodeDrop drops a node: its id is unknown from now on, and its sessions and objects are gone.
// Their records are removed piece by piece, in this and the next Applies.
func (m *Machine) applyNodeDrop(c *rawCommand) {
	var x NodeDropBody
	if !x.read(c.body) || x.Node == 0 {
		m.reply(protocol.StatusBadRequest, textMalformed)
		return
	}
	m.reply(protocol.StatusOK, "")
	at, found := slices.BinarySearch(m.dropped, x.Node)
	if found {
		return
	}
	m.dropped = slices.Insert(m.dropped, at, x.Node)
	n := m.nodes[x.Node]
	if n == nil {
		return
	}
	m.touch(n)
	n.dropped = true
	delete(m.nodes, n.id)
	m.updatePeriods()
	m.dropping = append(m.dropping, n)
	m.ending = append(m.ending, m.orphaned...) // some may be of this node
	m.orphaned = nil
	m.batch.out.List = append(m.batch.out.List, Event{Kind: EventNodeDropped, Node: n.id})
	m.removeDroppedNodes()
}

// removeDroppedNodes removes what dropped nodes left: home sessions, then remote sessions, each in
// order of id, then semaphores and hosted objects in order of name.
func (m *Machine) removeDroppedNodes() {
	for len(m.dropping) > 0 && m.batch.releaseBudget > 0 {
		n := m.dropping[0]
		for s := n.homeSessions.first(); s != nil && m.batch.releaseBudget > 0; s = n.homeSessions.first() {
			m.batch.releaseBudget -= 10 // an end costs about as much as this many entries
			m.endSession(s, protocol.EndNodeDropped, textNodeEnd)
		}
		for p := n.remoteSessions.first(); p != nil && m.batch.releaseBudget > 0; p = n.remoteSessions.first() {
			m.batch.releaseBudget--
			m.releaseRemote(m.markRemoteEnded(p.id))
		}
		m.purgeEnding() // what is left of its sessions still has entries
		if n.homeSessions.n > 0 || n.remoteSessions.n > 0 || len(m.ending) > 0 {
			return
		}
		m.dropSemaphores(n)
		if !m.dropObjects(n) || n.semaphoreCount > 0 {
			return
		}
		m.touch(n)
		m.nodeIndex.remove(n, nodeLess)
		m.dropping[0] = nil
		m.dropping = m.dropping[1:]
	}
}

// dropSemaphores goes by name over all of them. The ring of recent ones is no part of the state, so
// it must not decide which are left for the next Apply.
func (m *Machine) dropSemaphores(n *node) {
	if m.batch.releaseBudget <= 0 {
		return
	}
	var list []*semaphore
	m.recent.names(n, nil, func(s *semaphore) bool {
		list = append(list, s)
		return len(list) < m.batch.releaseBudget
	})
	for _, s := range list {
		m.batch.releaseBudget--
		m.unlink(s)
	}
}
