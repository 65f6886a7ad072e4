package shard

import (
	"errors"
	"fmt"
	"math"
)

// busiest are the rankings of a node.
type busiest struct {
	queues  ranking[semaphore]     // that have waiters, by their number
	waits   ranking[semaphore]     // the same, by the age of the first waiter's request
	holders ranking[sessionRecord] // sessions with entries, by their number
}

// Places of a semaphore in the rankings of its node.
const (
	placeQueue = iota
	placeWait
	places
)

// check walks the rankings of a node, for Check.
func (b *busiest) check(n *node, m *Machine) error {
	queues, holders := 0, 0
	for s := range m.semaphores.all(m.buckets) {
		if s.node != n {
			continue
		}
		if s.waiters.n > 0 {
			queues++
		}
		if rankedAs(s, &b.queues, placeQueue) != uint64(s.waiters.n) ||
			(s.waiters.n == 0) != (rankedAs(s, &b.waits, placeWait) == 0) {
			return fmt.Errorf("semaphore %q is out of place in a ranking", s.name)
		}
		if head := s.waiters.first; head != nil &&
			rankedAs(s, &b.waits, placeWait) != max(1, math.MaxUint64-head.since) {
			return fmt.Errorf("semaphore %q is ranked by another wait", s.name)
		}
	}
	for p := range m.sessions.all() {
		if p.node != n {
			continue
		}
		waits := 0
		for e := p.entries.first; e != nil; e = next(e, byName) {
			if e.waiting {
				waits++
			}
		}
		if p.entries.n > 0 {
			holders++
		}
		if waits != int(p.waits) || (p.place == 0) != (p.entries.n == 0) ||
			p.place > 0 && b.holders.heap[p.place-1] != (ranked[sessionRecord]{uint64(p.entries.n), &p.place, p}) {
			return fmt.Errorf("session %d has %d entries, %d of them wait, and its ranking says otherwise",
				p.id, p.entries.n, waits)
		}
	}
	if len(b.queues.heap) != queues || len(b.waits.heap) != queues || len(b.holders.heap) != holders {
		return fmt.Errorf("%d queues and %d sessions with entries are ranked as %d, %d and %d",
			queues, holders, len(b.queues.heap), len(b.waits.heap), len(b.holders.heap))
	}
	if !b.queues.ordered() || !b.waits.ordered() || !b.holders.ordered() {
		return errors.New("a ranking is out of order")
	}
	return nil
}

// rankedAs is the semaphore's key in a ranking, 0 if it is not there.
func rankedAs(s *semaphore, r *ranking[semaphore], place int) uint64 {
	at := s.places[place]
	if at == 0 || int(at) > len(r.heap) || r.heap[at-1].record != s {
		return 0
	}
	return r.heap[at-1].key
}
