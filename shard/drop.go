package shard

import (
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// applyNodeDrop drops a node: from here on it is unknown, its sessions are gone and its semaphores too. The records are removed piece by piece, in
// this and the next Applies.
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
	m.touchNode(n)
	n.dropped = true
	delete(m.nodes, n.id)
	m.findPeriods()
	m.dropping = append(m.dropping, n)
	m.dying = append(m.dying, m.stranded...) // some may be of this node
	m.stranded = nil
	m.run.out.List = append(m.run.out.List, Event{Kind: EventNodeDropped, Node: n.id})
	m.dismantle()
}

// dismantle removes what dropped nodes left: sessions, then guests, each in order of id, then semaphores and processes in order of name.
func (m *Machine) dismantle() {
	for len(m.dropping) > 0 && m.run.released > 0 {
		n := m.dropping[0]
		for s := n.sessions.first(); s != nil && m.run.released > 0; s = n.sessions.first() {
			m.run.released -= 10 // an end costs about as much as this many entries
			m.endSession(s, protocol.EndNodeDropped, textNodeEnd)
		}
		for p := n.guests.first(); p != nil && m.run.released > 0; p = n.guests.first() {
			m.run.released--
			m.releaseGuest(m.condemn(p.id))
		}
		m.bury() // what is left of its sessions still has entries
		if n.sessions.n > 0 || n.guests.n > 0 || len(m.dying) > 0 {
			return
		}
		m.dropSemaphores(n)
		m.dropProcesses(n)
		m.dropTracks(n)
		if n.count > 0 || n.processes.n > 0 || n.tracks.n > 0 {
			return
		}
		m.touchNode(n)
		m.nodeIndex.remove(n, nodeLess)
		m.dropping[0] = nil
		m.dropping = m.dropping[1:]
	}
}

// dropSemaphores goes by name over all of them: who is young is no part of the state, and must not decide which are left for the next Apply.
func (m *Machine) dropSemaphores(n *node) {
	if m.run.released <= 0 {
		return
	}
	var list []*semaphore
	m.names(n, nil, func(s *semaphore) bool {
		list = append(list, s)
		return len(list) < m.run.released
	})
	for _, s := range list {
		m.run.released--
		m.unlink(s)
	}
}
