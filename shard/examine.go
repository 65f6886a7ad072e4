package shard

import (
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// examine grants to the first waiters of the lanes, in the order of the policy, until none fits:
//
//	again:  nothing is claimed
//	        for the first waiters of all lanes, in the order of the policy:
//	            it counts as gone          -> it is ended; again
//	            it fits what is unclaimed  -> it is granted; again
//	            else it claims: without slots everything, with slots those that its selector admits
//	            stop when no free unit is unclaimed
//
// So nobody is passed by on a unit that it could use, except by the policy. When there are more
// waiters that are gone than this Apply may end, the queue stands still until their timers fire.
func (q *queue) examine(m *Machine, s *semaphore) {
	for s.waiters.n > 0 {
		e, slots, fits := q.nextToServe(m, s)
		switch {
		case e == nil:
			return
		case fits:
			e.grantSlots(m, slots)
			emitGranted(m, e)
			m.noteHandOn(e)
		case m.batch.releaseBudget <= 0:
			return
		default:
			m.batch.releaseBudget--
			e.endWaiter(m)
		}
	}
}

// granted notes what an entry with this demand got, which is in no lane. tag is the one that it had
// under fair.
func (q *queue) granted(e *entry, d demand, slots []uint32, tag uint64) {
	d.selector = ""
	e.setPlace(&place{demand: d, slots: slots})
	q.slots.take(e, slots)
	if q.policy == protocol.PolicyFair {
		q.fair.granted(d.key, tag)
	}
}

// nextToServe is the waiter that is granted or ended next, nil if there is none. fits says that it
// is granted, with the slots that it gets.
func (q *laneSet) nextToServe(m *Machine, s *semaphore) (e *entry, slots []uint32, fits bool) {
	if len(q.slots.list) == 0 {
		e := q.nextLane().first
		if gone := m.waiterEnded(e); gone || s.fits(e.count) {
			return e, nil, !gone
		}
		return nil, nil, false
	}
	available := q.slots.available()
	for _, l := range q.inOrder() {
		n := uint64(available.countIn(l.admits))
		switch {
		case m.waiterEnded(l.first):
			return l.first, nil, false
		case n >= l.first.count && s.fits(l.first.count):
			return l.first, available.lowest(l.first.count, l.admits), true
		case n > 0: // else others have claimed all that it could use
			available.remove(l.admits)
		}
		if available.empty() {
			break
		}
	}
	return nil, nil, false
}

// candidate is a request that is looked at as if it waited: a new one, or a waiter that asks again.
type candidate struct {
	demand
	count   uint64
	place   uint64
	arrival uint64
	entry   *entry // of a waiter
}

// serves reports whether the candidate is what the next examination grants first, and with which
// slots.
func (q *laneSet) serves(s *semaphore, c *candidate) (slots []uint32, ok bool) {
	class := q.class(c.demand)
	mine := q.rankOf(c.level, c.arrival, q.fair.startOf(c.key), fairCost(c.count, q.weight(c.key)),
		q.fair.wasLast(c.key), c.place)
	var ahead []head
	for _, l := range q.lanes {
		h := q.headWithout(l, c.entry)
		switch {
		case h.entry == nil:
		case l.class == class && l.selector == c.selector:
			if h.entry.orderID < c.place {
				return nil, false
			}
		case h.rank.compare(mine) < 0:
			if len(q.slots.list) == 0 {
				return nil, false // it claims everything, or it is granted first
			}
			ahead = append(ahead, h)
		}
	}
	if len(q.slots.list) == 0 {
		return nil, s.fits(c.count)
	}
	slices.SortFunc(ahead, func(a, b head) int { return a.rank.compare(b.rank) })
	available, admits := q.slots.available(), q.slots.admitted(c.selector)
	for _, h := range ahead {
		if s.fits(h.entry.count) && uint64(available.countIn(h.lane.admits)) >= h.entry.count {
			return nil, false // it is granted first
		}
		available.remove(h.lane.admits)
	}
	if !s.fits(c.count) || uint64(available.countIn(admits)) < c.count {
		return nil, false
	}
	return available.lowest(c.count, admits), true
}

// head is the first waiter of a lane.
type head struct {
	lane  *lane
	entry *entry
	rank  rank
}

// headWithout is a lane's first waiter other than without; its entry is nil if there is none.
func (q *laneSet) headWithout(l *lane, without *entry) head {
	if l.first != without {
		return head{l, l.first, q.laneRank(l)}
	}
	walk := l.waiters.From(func(*entry) bool { return false })
	walk.Next()
	e := walk.Next()
	if e == nil {
		return head{}
	}
	start, cost := uint64(0), uint64(0)
	if l.key != nil {
		start, cost = l.key.start, fairCost(e.count, q.weight(l.class))
	}
	return head{l, e, q.rankOf(l.level, q.places[e].arrival, start, cost, q.fair.wasLast(l.class), e.orderID)}
}
