package shard

import (
	"errors"
	"fmt"
	"math"

	"github.com/signalbox-dev/signalbox/shard/container"
)

// busiest are the rankings of a node.
type busiest struct {
	queues  container.Ranking[semaphore]     // that have waiters, by their number
	waits   container.Ranking[semaphore]     // the same, by the age of the first waiter's request
	holders container.Ranking[sessionRecord] // sessions with entries, by their number
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
		if b.queues.Key(s, s.places[placeQueue]) != uint64(s.waiters.n) ||
			(s.waiters.n == 0) != (b.waits.Key(s, s.places[placeWait]) == 0) {
			return fmt.Errorf("semaphore %q is out of place in a ranking", s.name)
		}
		if head := s.waiters.first; head != nil &&
			b.waits.Key(s, s.places[placeWait]) != max(1, math.MaxUint64-head.since) {
			return fmt.Errorf("semaphore %q is ranked by another wait", s.name)
		}
	}
	for p := range m.sessions.All() {
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
			b.holders.Key(p, p.place) != uint64(p.entries.n) {
			return fmt.Errorf("session %d has %d entries, %d of them wait, and its ranking says otherwise",
				p.id, p.entries.n, waits)
		}
	}
	if b.queues.Len() != queues || b.waits.Len() != queues || b.holders.Len() != holders {
		return fmt.Errorf("%d queues and %d sessions with entries are ranked as %d, %d and %d",
			queues, holders, b.queues.Len(), b.waits.Len(), b.holders.Len())
	}
	return errors.Join(b.queues.Check(), b.waits.Check(), b.holders.Check())
}
