package shard

import (
	"maps"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Metrics reads the machine's counters, which are not part of the state, and how many
// records there are.
type Metrics struct{ reader }

// CounterRow is one set of counters.
type CounterRow struct {
	Node      uint64
	Name      []byte
	Session   uint64 // 0: the semaphore's own set; else one owner session's, in a node with detailed counters
	Acquires  uint64 // times units were granted
	Waits     uint64 // times an acquire was queued
	Releases  uint64 // times an owner's units were given back, for any cause
	Stuck     bool   // the next waiter, by the policy, wants more than the limit; in the semaphore's own set
	Truncated bool   // the semaphore has more owner sessions than are counted apart
}

// Counters yields the counters of the semaphores there are, in order of node and name, each
// semaphore's own row before those of its owner sessions, which are in order of id and at most
// MaxSessionCounters. They start from 0 when a machine is restored.
func (r Metrics) Counters(yield func(CounterRow) bool) {
	more := true
	r.m.nodeIndex.All(func(n *node) bool {
		if n.dropped {
			return true
		}
		r.m.semaphores.names(n, nil, func(s *semaphore) bool {
			more = yield(CounterRow{
				Node: n.id, Name: s.name, Acquires: s.counters.acquires, Waits: s.counters.waits,
				Releases: s.counters.releases, Stuck: s.stuck,
				Truncated: len(s.sessionCounters()) >= MaxSessionCounters,
			})
			if len(s.sessionCounters()) > 0 && more {
				more = sessionCounterRows(s, yield)
			}
			return more
		})
		return more
	})
}

// SessionCounters yields the rows of owner sessions alone, in nodes with detailed counters. It
// looks at no more than most semaphores; cut: there are more, or a semaphore has more owner
// sessions than are counted apart.
func (r Metrics) SessionCounters(most int, yield func(CounterRow) bool) (cut bool) {
	more := true
	r.m.nodeIndex.All(func(n *node) bool {
		if n.dropped || n.config.CountersMode != protocol.CountersDetailed {
			return true
		}
		r.m.semaphores.names(n, nil, func(s *semaphore) bool {
			if most--; most < 0 {
				cut, more = true, false
				return false
			}
			cut = cut || len(s.sessionCounters()) >= MaxSessionCounters
			if len(s.sessionCounters()) > 0 {
				more = sessionCounterRows(s, yield)
			}
			return more
		})
		return more
	})
	return cut
}

func sessionCounterRows(s *semaphore, yield func(CounterRow) bool) bool {
	for _, id := range slices.Sorted(maps.Keys(s.sessionCounters())) {
		t := s.sessionCounters()[id]
		if !yield(CounterRow{Node: s.node.id, Name: s.name, Session: id,
			Acquires: t.acquires, Waits: t.waits, Releases: t.releases}) {
			return false
		}
	}
	return true
}

// Sizes are how many records a machine holds, those being removed included. Stuck are the
// semaphores of nodes that are not dropped whose next waiter, by their policy, wants more than the
// limit: their queues cannot move until the limit is raised or it leaves. Silent are their owners
// that have not said that they know by when they must yield. Contended are the semaphores that
// somebody waits for.
type Sizes struct {
	Nodes, Sessions, RemoteSessions, Semaphores, Contended, Waiters, Stuck, Silent int

	Bytes uint64 // as quotas of bytes count them
}

// Sizes counts the machine's records, in time proportional to the number of nodes.
func (r Metrics) Sizes() (z Sizes) {
	r.m.nodeIndex.All(func(n *node) bool {
		z.Nodes++
		z.Sessions += n.homeSessions.Len()
		z.RemoteSessions += n.remoteSessions.Len()
		z.Semaphores += n.semaphoreCount
		z.Contended += n.queues.Len()
		z.Waiters += int(n.waiters)
		z.Bytes += n.bytes
		if !n.dropped {
			z.Stuck += int(n.stuck)
			z.Silent += int(n.silent)
		}
		return true
	})
	return z
}

// LeaseTransfers are the leases that their owners have transferred to a waiter that they named.
// They count as LeasesLost do.
func (r Metrics) LeaseTransfers() uint64 { return r.m.leaseTransfers }

// Preemptions are what became of preemptions, by PreemptionOutcome. They count as LeasesLost do.
func (r Metrics) Preemptions() [preemptionOutcomes]uint64 { return r.m.preemptions }

// LeasesLost are the leases that their owners did not give back, by LossCause. They count from when
// the machine was made or restored, as Refusals do.
func (r Metrics) LeasesLost() [lossCauses]uint64 { return r.m.lost }

// Refusals yields the requests that quotas have refused, by Quota, of the nodes that have any and
// are not dropped, in order of id.
func (r Metrics) Refusals(yield func(node uint64, n [quotas]uint64) bool) {
	r.m.nodeIndex.All(func(n *node) bool {
		return n.dropped || n.refused == [quotas]uint64{} || yield(n.id, n.refused)
	})
}

// LevelWaits yields the waits by level of all nodes that have any, as Times does.
func (r Metrics) LevelWaits(yield func(node uint64, t *LevelWaits) bool) {
	r.m.nodeIndex.All(func(n *node) bool { return n.levelWaits == nil || yield(n.id, n.levelWaits) })
}

// Times yields the times of all nodes that have any, those being removed included, in order of id.
// They belong to the machine, and change with the next Apply.
func (r Metrics) Times(yield func(node uint64, t *Times) bool) {
	r.m.nodeIndex.All(func(n *node) bool { return n.times == nil || yield(n.id, n.times) })
}
