package shard

import (
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// counterSet counts what happened on a semaphore, or to one owner session of it, since this machine
// was made or restored. Counters serve the metrics page alone: they are not part of the state, and
// in no snapshot.
type counterSet struct{ acquires, waits, releases uint64 }

type counterKind uint8

const (
	countAcquire counterKind = iota
	countWait
	countRelease
)

func (t *counterSet) add(c counterKind) {
	switch c {
	case countAcquire:
		t.acquires++
	case countWait:
		t.waits++
	case countRelease:
		t.releases++
	}
}

// MaxSessionCounters bounds the owner sessions that are counted apart for one semaphore.
const MaxSessionCounters = 1_000

func (m *Machine) countEvent(e *entry, c counterKind) {
	s := e.semaphore
	s.counters.add(c)
	if c == countAcquire {
		m.hot.granted(s)
	}
	if s.node.config.CountersMode != protocol.CountersDetailed {
		s.sessionCounters = nil
		return
	}
	t := s.sessionCounters[e.session.id]
	if t == nil {
		if len(s.sessionCounters) >= MaxSessionCounters {
			return
		}
		if s.sessionCounters == nil {
			s.sessionCounters = make(map[uint64]*counterSet)
		}
		t = new(counterSet)
		s.sessionCounters[e.session.id] = t
	}
	t.add(c)
}

// CounterRow is one set of counters.
type CounterRow struct {
	Node      uint64
	Name      []byte
	Session   uint64 // 0: the semaphore's own set; else one owner session's, in a node with detailed counters
	Acquires  uint64 // times units were granted
	Waits     uint64 // times an acquire was queued
	Releases  uint64 // times an owner's units were given back, for any cause
	Stuck     bool   // the first waiter wants more than the limit: no waiter can be granted; in the semaphore's own set
	Truncated bool   // the semaphore has more owner sessions than are counted apart
}

// Counters yields the counters of the semaphores there are, in order of node and name, each
// semaphore's own row before those of its owner sessions, which are in order of id and at most
// MaxSessionCounters. They start from 0 when a machine is restored.
func (m *Machine) Counters(yield func(CounterRow) bool) {
	more := true
	m.nodeIndex.all(func(n *node) bool {
		if n.dropped {
			return true
		}
		m.names(n, nil, func(s *semaphore) bool {
			more = yield(CounterRow{
				Node: n.id, Name: s.name, Acquires: s.counters.acquires, Waits: s.counters.waits,
				Releases: s.counters.releases, Stuck: s.stuck,
				Truncated: len(s.sessionCounters) >= MaxSessionCounters,
			})
			if len(s.sessionCounters) > 0 && more {
				more = s.sessionCounterRows(yield)
			}
			return more
		})
		return more
	})
}

// SessionCounters yields the rows of owner sessions alone, in nodes with detailed counters. It
// looks at no more than most semaphores; cut: there are more, or a semaphore has more owner
// sessions than are counted apart.
func (m *Machine) SessionCounters(most int, yield func(CounterRow) bool) (cut bool) {
	more := true
	m.nodeIndex.all(func(n *node) bool {
		if n.dropped || n.config.CountersMode != protocol.CountersDetailed {
			return true
		}
		m.names(n, nil, func(s *semaphore) bool {
			if most--; most < 0 {
				cut, more = true, false
				return false
			}
			cut = cut || len(s.sessionCounters) >= MaxSessionCounters
			if len(s.sessionCounters) > 0 {
				more = s.sessionCounterRows(yield)
			}
			return more
		})
		return more
	})
	return cut
}

func (s *semaphore) sessionCounterRows(yield func(CounterRow) bool) bool {
	ids := make([]uint64, 0, len(s.sessionCounters))
	for id := range s.sessionCounters {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		t := s.sessionCounters[id]
		if !yield(CounterRow{Node: s.node.id, Name: s.name, Session: id, Acquires: t.acquires, Waits: t.waits, Releases: t.releases}) {
			return false
		}
	}
	return true
}

// Sizes are how many records a machine holds, those being removed included. Stuck are the
// semaphores of nodes that are not dropped whose first waiter wants more than the limit: their
// queues cannot move until the limit is raised or it leaves.
// Contended are the semaphores that somebody waits for.
type Sizes struct {
	Nodes, Sessions, RemoteSessions, Semaphores, Contended, Stuck int

	Bytes uint64 // as quotas of bytes count them
}

// Sizes counts the machine's records, in time proportional to the number of nodes.
func (m *Machine) Sizes() (z Sizes) {
	m.nodeIndex.all(func(n *node) bool {
		z.Nodes++
		z.Sessions += n.homeSessions.n
		z.RemoteSessions += n.remoteSessions.n
		z.Semaphores += n.semaphoreCount
		z.Contended += len(n.queues.heap)
		z.Bytes += n.bytes
		if !n.dropped {
			z.Stuck += int(n.stuck)
		}
		return true
	})
	return z
}
