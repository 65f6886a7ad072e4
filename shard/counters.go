package shard

import "github.com/signalbox-dev/signalbox/protocol"

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

// countEvent counts what happened to the entry of a session.
func (s *semaphore) countEvent(session uint64, c counterKind) {
	s.counters.add(c)
	if s.node.config.CountersMode != protocol.CountersDetailed {
		if s.rare != nil {
			s.rare.sessionCounters = nil
		}
		return
	}
	t := s.sessionCounters()[session]
	if t == nil {
		r := s.ownRare()
		if len(r.sessionCounters) >= MaxSessionCounters {
			return
		}
		if r.sessionCounters == nil {
			r.sessionCounters = make(map[uint64]*counterSet)
		}
		t = new(counterSet)
		r.sessionCounters[session] = t
	}
	t.add(c)
}
