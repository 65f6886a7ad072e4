package shard

import (
	"errors"
	"fmt"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// check says which invariant of a semaphore's queue does not hold, if any.
func (q *queue) check(m *Machine, s *semaphore) error {
	partial := s.bucket.state.isPartial()
	if q.laned() && !q.late || q.late && !q.laned() && s.waiters.n == 0 && !partial {
		return fmt.Errorf("tokens late %v, %d waiters, lanes %v", q.late, s.waiters.n, q.laned())
	}
	placed, held, wants := 0, 0, uint64(0)
	for _, t := range []*treap{&s.owners, &s.waiters} {
		for e := t.first; e != nil; e = next(e, byOrder) {
			p := q.places[e]
			if p != nil {
				placed++
				wants += bit(p.want.number != 0)
				if err := q.checkWant(p, s); err != nil {
					return fmt.Errorf("entry %d: %w", e.orderID, err)
				}
			}
			if err := q.checkEntry(e, p); err != nil {
				return fmt.Errorf("entry %d: %w", e.orderID, err)
			}
			if !e.waiting && len(q.slots.list) > 0 {
				held += len(p.slots)
			}
		}
	}
	switch {
	case wants != q.wants:
		return fmt.Errorf("%d owners are wanted, %d are counted", wants, q.wants)
	case placed != len(q.places):
		return fmt.Errorf("%d entries have places, %d are kept", placed, len(q.places))
	case !q.laned() && len(q.lanes) > 0, len(q.lanes) != len(q.order):
		return fmt.Errorf("%d lanes, %d of them in order", len(q.lanes), len(q.order))
	}
	if err := q.checkLanes(s); err != nil {
		return err
	}
	staying := uint64(0)
	for i := range q.slots.list {
		x := &q.slots.list[i]
		if x.owner != nil {
			held--
		}
		if !x.leaving {
			staying++
		} else if x.owner == nil && !partial {
			return fmt.Errorf("slot %q leaves and is free", x.name)
		}
	}
	if held != 0 || len(q.slots.list) > 0 && staying != s.limit {
		return fmt.Errorf("owners have %d slots more than slots have owners, %d slots stay, the limit is %d",
			held, staying, s.limit)
	}
	if q.laned() && s.waiters.n > 0 && s.bucket.state == bucketActive && !s.node.dropped {
		if e, _, fits := q.nextToServe(m, s); fits {
			return fmt.Errorf("waiter %d fits and waits", e.orderID)
		}
	}
	return nil
}

func (q *laneSet) checkEntry(e *entry, p *place) error {
	switch {
	case p == nil && (q.laned() && e.waiting || len(q.slots.list) > 0 && !e.waiting):
		return errors.New("it has no place")
	case p == nil:
		return nil
	case q.laned() && e.waiting:
		if l := p.lane; l == nil || l.class != q.class(p.demand) || l.selector != p.selector {
			return errors.New("it is in another lane than its own")
		}
		return nil
	case p.isPlain() || p.lane != nil || p.arrival != 0 || p.selector != "":
		return errors.New("its place has what belongs to a lane")
	case len(p.slots) > 0 && (uint64(len(p.slots)) != e.count || !slices.IsSorted(p.slots)):
		return fmt.Errorf("it has %d slots for %d units", len(p.slots), e.count)
	}
	for _, i := range p.slots {
		if q.slots.list[i].owner != e {
			return fmt.Errorf("slot %d is another's", i)
		}
	}
	return nil
}

func (q *laneSet) checkLanes(s *semaphore) error {
	waiting, waiters := 0, make(map[*fairKey]int)
	for i, l := range q.lanes {
		if at, ok := q.findLane(l.class, l.selector); !ok || at != i || !slices.Contains(q.order, l) {
			return fmt.Errorf("lane %q %q is out of place", l.class, l.selector)
		}
		waiting += l.waiters.Len()
		if l.waiters.Len() == 0 || l.first != l.waiters.First() || l.arrival != q.places[l.first].arrival ||
			!slices.Equal(l.admits, q.slots.admitted(l.selector)) {
			return fmt.Errorf("lane %q %q does not know its first waiter or its slots", l.class, l.selector)
		}
		if l.key != nil {
			waiters[l.key] += l.waiters.Len()
			if l.cost != fairCost(l.first.count, q.weight(l.class)) || q.fair.keys[l.class] != l.key {
				return fmt.Errorf("lane of the key %q has another cost or key", l.class)
			}
		}
	}
	if q.laned() && waiting != s.waiters.n || len(waiters) != len(q.fair.keys) && !s.bucket.state.isPartial() {
		return fmt.Errorf("lanes have %d waiters of %d, and %d keys of %d",
			waiting, s.waiters.n, len(waiters), len(q.fair.keys))
	}
	for k, n := range waiters { // any of them
		if k.waiters != n || k.start > q.fair.virtual {
			return fmt.Errorf("a key has %d waiters and says %d", n, k.waiters)
		}
	}
	return nil
}

// boundHolds reports whether an owner's timer is at its bound, and the owner knows of it.
func boundHolds(e *entry) bool {
	p := e.place()
	at, _ := p.bound()
	return e.timer.at == at && (e.timer.pos > 0) == (at != 0) && (at == 0 || p.hold == 0) && (p == nil || p.until == 0 || p.knowsBounds())
}

func (q *queue) checkWant(p *place, s *semaphore) error {
	w := p.want
	if q.wanted.mode == protocol.WantedOff && w != (wantState{}) || w.number > s.bucket.orderCounter ||
		w.number == 0 && (w.until != 0 || w.known) || w.until != 0 && p.until != 0 && p.until <= w.until {
		return fmt.Errorf("its want %+v cannot be", w)
	}
	return nil
}
