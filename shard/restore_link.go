package shard

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/queue"
)

// A link is a record that was read, with the ids of those it belongs to.
type sessionLink struct {
	session   *sessionRecord
	node      uint64
	scheduled bool
	at        uint64
	due       bool
	dueAt     uint64
	parent    uint64
}

type semaphoreLink struct {
	s    *semaphore
	node uint64
}

type entryLink struct {
	e         *entry
	serial    uint64
	session   uint64
	scheduled bool
	at        uint64
	part      *queue.Part
}

// link puts the records together.
func (x *restorer) link() error {
	for _, step := range []struct {
		name string
		do   func() bool
	}{
		{"nodes", x.linkNodes}, {"sessions", x.linkSessions}, {"semaphores", x.linkSemaphores},
		{"entries", x.linkEntries}, {"hosted objects", x.linkObjects}, {"ended sessions", x.linkEnding},
	} {
		if !step.do() {
			return damaged(step.name)
		}
	}
	m := x.m
	m.copyCount = m.countCopies()
	slices.SortFunc(x.endedCreateIDs,
		func(a, b numbered[[protocol.KeyLen]byte]) int { return cmp.Compare(a.number, b.number) })
	for _, k := range x.endedCreateIDs {
		m.endedCreateIDs.Add(k.Key, k.Until)
	}
	slices.SortFunc(x.endedRemotes, func(a, b numbered[uint64]) int { return cmp.Compare(a.number, b.number) })
	for _, k := range x.endedRemotes {
		m.endedRemotes.Add(k.Key, k.Until)
	}
	return nil
}

func (x *restorer) linkNodes() bool {
	m := x.m
	for _, id := range x.dropping {
		n := x.nodes[id]
		if n == nil || !n.dropped || slices.Contains(m.dropping, n) {
			return false
		}
		m.dropping = append(m.dropping, n)
	}
	ids := make([]uint64, 0, len(x.nodes))
	dropped := 0
	for id, n := range x.nodes {
		ids = append(ids, id)
		if n.dropped {
			dropped++
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		n := x.nodes[id]
		m.nodeIndex.Insert(n, nodeLess)
		if !n.dropped {
			m.nodes[id] = n
		}
	}
	m.updatePeriods()
	return dropped == len(m.dropping)
}

func (x *restorer) linkSessions() bool {
	m := x.m
	slices.SortFunc(x.sessions, func(a, b sessionLink) int { return cmp.Compare(a.session.id, b.session.id) })
	for _, l := range x.sessions {
		p := l.session
		if p.node = x.nodes[l.node]; p.node == nil {
			return false
		}
		p.chargeAnswers()
		switch s := p.home; {
		case p.ended:
		case s != nil:
			if m.byCreateID.get(s.createID) != nil || m.homeBucketOf(s) == nil {
				return false
			}
			m.byCreateID.add(s)
			p.node.addSession(s, l.parent)
		default:
			p.node.remoteSessions.Insert(p.id, cmp.Less)
		}
		if l.scheduled {
			m.schedule(p, l.at)
		}
		if l.due && !p.ended {
			m.schedule(p.home, l.dueAt)
		}
	}
	return true
}

func (x *restorer) linkSemaphores() bool {
	m := x.m
	slices.SortFunc(x.semaphoreLinks, func(a, b semaphoreLink) int {
		return cmp.Or(cmp.Compare(a.node, b.node), bytes.Compare(a.s.name, b.s.name))
	})
	for _, l := range x.semaphoreLinks {
		s := l.s
		if s.node = x.nodes[l.node]; s.node == nil || len(m.buckets) == 0 {
			return false
		}
		s.bucket = &m.buckets[protocol.Bucket(l.node, s.name, uint32(len(m.buckets)))]
		if m.semaphores.lookup(s.bucket, l.node, s.name) != nil {
			return false
		}
		s.link(m)
	}
	return true
}

func (x *restorer) linkEntries() bool {
	m := x.m
	slices.SortFunc(x.entries, func(a, b entryLink) int {
		return cmp.Or(cmp.Compare(a.serial, b.serial), cmp.Compare(a.e.orderID, b.e.orderID))
	})
	for i, l := range x.entries {
		e, s, p := l.e, x.semaphores[l.serial], m.sessions.get(l.session)
		if s == nil || p == nil || p.node != s.node {
			return false
		}
		if i > 0 && x.entries[i-1].serial == l.serial && x.entries[i-1].e.orderID == e.orderID {
			return false
		}
		if o := p.entries.seekName(s.name); o != nil && o.semaphore == s {
			return false
		}
		if !l.part.Fits(s.core(), e.orderID, e.count, e.waiting) {
			return false
		}
		e.semaphore, e.session = s, p
		p.addEntry(e)
		s.node.addEntryUsage(e)
		if e.waiting {
			s.enqueue(e)
			restoreEntry(m, e, l.part)
			if l.scheduled {
				m.schedule(e, l.at)
			}
			continue
		}
		bound := l.part.Bound()
		if s.waiters.n > 0 && !s.core().Late() || s.used+e.count < s.used || l.scheduled != (bound != 0) || l.at != bound {
			return false
		}
		s.owners.insert(e, byOrder)
		s.used += e.count
		restoreEntry(m, e, l.part)
	}
	for _, l := range x.semaphoreLinks {
		if q := l.s.core(); q != nil && !l.s.bucket.state.isPartial() && !q.IsWhole(l.s.waiters.n) {
			return false
		}
	}
	return true
}

func (x *restorer) linkEnding() bool {
	m := x.m
	seen := make(map[uint64]bool, len(x.ending))
	for i, id := range slices.Concat(x.ending, x.orphaned) {
		p := m.sessions.get(id)
		if p == nil || !p.ended || seen[id] {
			return false
		}
		seen[id] = true
		if i < len(x.ending) {
			m.ending = append(m.ending, p)
		} else {
			m.orphaned = append(m.orphaned, p)
		}
	}
	gone := 0
	for _, l := range x.sessions {
		if l.session.ended {
			gone++
		}
	}
	return gone == len(m.ending)+len(m.orphaned)
}
