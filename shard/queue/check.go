package queue

import (
	"errors"
	"fmt"
	"slices"
)

// Check reports an invariant that does not hold, if any. owner and waiter are the entries of the
// semaphore, whose orders are below last; partial says that some of them are not here.
func (q *Queue) Check(u Units, owners, waiters []Place, last uint64, partial bool) error {
	if q.Laned() && !q.late || q.late && !q.Laned() && len(waiters) == 0 && !partial {
		return fmt.Errorf("tokens late %v, %d waiters, lanes %v", q.late, len(waiters), q.Laned())
	}
	var sum Usage
	grants, asks, held := 0, 0, 0
	for _, w := range owners {
		g := q.grants[w.Place]
		if err := q.checkOwner(w, g, last); err != nil {
			return fmt.Errorf("owner %d: %w", w.Place, err)
		}
		if g != nil {
			grants++
			held += len(g.Slots)
			sum.Bytes += g.bytes()
			sum.Preempted += bit(g.number != 0)
			sum.Silent += bit(g.silent)
		}
	}
	for _, w := range waiters {
		a := q.asks[w.Place]
		if err := q.checkWaiter(w, a); err != nil {
			return fmt.Errorf("waiter %d: %w", w.Place, err)
		}
		if a != nil {
			asks++
			sum.Bytes += a.bytes()
		}
	}
	switch {
	case sum != q.Usage():
		return fmt.Errorf("the entries use %+v, %+v is counted", sum, q.Usage())
	case grants != len(q.grants) || asks != len(q.asks):
		return fmt.Errorf("%d owners and %d waiters have more than units, %d and %d are kept",
			grants, asks, len(q.grants), len(q.asks))
	case !q.Laned() && len(q.list) > 0, len(q.list) != len(q.order):
		return fmt.Errorf("%d lanes, %d of them in order", len(q.list), len(q.order))
	}
	if err := q.checkLanes(len(waiters), partial); err != nil {
		return err
	}
	staying := uint64(0)
	for i := range q.slots {
		x := &q.slots[i]
		held -= int(bit(x.held))
		if !x.leaving {
			staying++
		} else if !x.held && !partial {
			return fmt.Errorf("slot %q leaves and is free", x.name)
		}
	}
	if held != 0 || len(q.slots) > 0 && staying != u.Limit {
		return fmt.Errorf("owners have %d slots more than slots have owners, %d slots stay, the limit is %d",
			held, staying, u.Limit)
	}
	return nil
}

func (q *holdings) checkOwner(w Place, g *Grant, last uint64) error {
	switch {
	case g == nil && len(q.slots) > 0:
		return errors.New("it has no slots")
	case g == nil:
		return nil
	case g.isPlain() || g.Selector != "" || g.Hold != 0:
		return errors.New("it is a plain one, or keeps what belongs to a waiter")
	case len(q.slots) > 0 && (uint64(len(g.Slots)) != w.Count || !slices.IsSorted(g.Slots)):
		return fmt.Errorf("it has %d slots for %d units", len(g.Slots), w.Count)
	}
	for _, i := range g.Slots {
		if x := &q.slots[i]; !x.held || x.token != w.Place {
			return fmt.Errorf("slot %d is another's", i)
		}
	}
	p := g.preemption
	if q.rule.Preempt == 0 && p != (preemption{}) || p.number > last ||
		p.number == 0 && (p.yieldBy != 0 || p.known) || p.yieldBy != 0 && g.Expires != 0 && g.Expires <= p.yieldBy {
		return fmt.Errorf("its preemption %+v cannot be", p)
	}
	return nil
}

func (q *Queue) checkWaiter(w Place, a *Ask) error {
	switch {
	case a == nil && q.Laned():
		return errors.New("it has no lane")
	case a == nil:
		return nil
	case a.place != w.Place:
		return fmt.Errorf("its place is said to be %d", a.place)
	case !q.Laned():
		if a.lane != nil || a.Selector != "" || a.Arrival != 0 || a.Demand == plainDemand {
			return errors.New("it is a plain one, or has what belongs to a lane")
		}
		return nil
	}
	if l := a.lane; l == nil || l.class != q.policy.class(a.Level, a.Key) || l.selector != a.Selector ||
		a.Waiter != w.Waiter {
		return errors.New("it is in another lane than its own, or another waiter")
	}
	return nil
}

func (q *Queue) checkLanes(waiters int, partial bool) error {
	waiting, keys := 0, make(map[string]int)
	for i, l := range q.list {
		if at, ok := q.findLane(l.class, l.selector); !ok || at != i || !slices.Contains(q.order, l) {
			return fmt.Errorf("lane %q %q is out of place", l.class, l.selector)
		}
		waiting += l.waiters.Len()
		if l.waiters.Len() == 0 || l.first != l.waiters.First() || l.bid != q.bidOf(l.first) ||
			!slices.Equal(l.admits, q.slots.admitted(l.selector)) {
			return fmt.Errorf("lane %q %q does not know its first waiter or its slots", l.class, l.selector)
		}
		keys[l.class] += l.waiters.Len()
	}
	if q.Laned() && waiting != waiters {
		return fmt.Errorf("lanes have %d waiters of %d", waiting, waiters)
	}
	p, isFair := q.policy.(*fair)
	if !isFair {
		return nil
	}
	if len(keys) != len(p.keys) && !partial {
		return fmt.Errorf("%d keys wait, %d have shares", len(keys), len(p.keys))
	}
	for key, n := range keys { // any of them
		if k := p.keys[key]; k.waiters != n || k.start > p.virtual {
			return fmt.Errorf("key %q has %d waiters and says %d", key, n, k.waiters)
		}
	}
	return nil
}
