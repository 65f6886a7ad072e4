package queue

import (
	"cmp"
	"slices"

	"github.com/signalbox-dev/signalbox/shard/container"
)

// lane is the waiters of a semaphore that have one class and one selector, strictly by place.
type lane struct {
	class    string
	selector string
	waiters  container.Index[*Ask]
	admits   slotSet // of the selector; nil: any slot

	first *Ask // of waiters
	bid   bid  // of the first
	rank  rank // of the first, when the lanes were examined last
}

// lanes is the waiters of a semaphore: their demands beyond units, and where there are lanes the
// order in which they are served.
type lanes struct {
	policy policy
	asks   map[uint64]*Ask // by place
	list   []*lane         // by class and selector
	order  []*lane         // the same, in the order of the policy when they were examined last
	bytes  uint64          // of the asks
	probe  bid             // buffer for a bid to rank
}

// maxLanes bounds the lanes of a semaphore.
const maxLanes = 1024

func byPlace(a, b *Ask) bool { return a.place < b.place }

// setAsk replaces the ask of a waiter that is in no lane; nil removes it.
func (q *lanes) setAsk(place uint64, a *Ask) {
	q.bytes += a.bytes() - q.asks[place].bytes() // modulo 2^64
	if a == nil {
		delete(q.asks, place)
		return
	}
	a.place = place
	q.asks[place] = a
}

// findLane finds a lane, or where it belongs.
func (q *lanes) findLane(class, selector string) (at int, ok bool) {
	return slices.BinarySearchFunc(q.list, lane{class: class, selector: selector}, func(a *lane, b lane) int {
		return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(a.selector, b.selector))
	})
}

// join puts a waiter into its lane.
func (q *lanes) join(a *Ask, slots slotList) {
	class := q.policy.class(a.Level, a.Key)
	at, ok := q.findLane(class, a.Selector)
	if !ok {
		l := &lane{class: class, selector: a.Selector, admits: slots.admitted(a.Selector)}
		q.list = slices.Insert(q.list, at, l)
		q.order = append(q.order, l)
	}
	a.lane = q.list[at]
	q.policy.joined(a.Key)
	a.lane.waiters.Insert(a, byPlace)
	q.refresh(a.lane)
}

// leave takes a waiter out of its lane.
func (q *lanes) leave(a *Ask) {
	l := a.lane
	q.probe = q.bidOf(a)
	a.lane, a.tag = nil, q.policy.tag(&q.probe)
	l.waiters.Remove(a, byPlace)
	q.policy.left(a.Key)
	if l.waiters.Len() == 0 {
		at, _ := q.findLane(l.class, l.selector)
		q.list = slices.Delete(q.list, at, at+1)
		at = slices.Index(q.order, l)
		q.order = slices.Delete(q.order, at, at+1)
		return
	}
	q.refresh(l)
}

// refresh is called when the first waiter of a lane, or its count, may have changed.
func (q *lanes) refresh(l *lane) {
	l.first = l.waiters.First()
	l.bid = q.bidOf(l.first)
}

func (q *lanes) bidOf(a *Ask) bid { return q.policy.bid(a.Level, a.Key, a.Count, a.Arrival, a.place) }

// HasLaneFor reports whether a request has a lane, or may have one more. A waiter that asks again
// may leave one; token is 0 for a new request.
func (q *lanes) HasLaneFor(d Demand, token uint64) bool {
	n := len(q.list)
	if a := q.asks[token]; a != nil && a.lane.waiters.Len() == 1 {
		n--
	}
	if n < maxLanes {
		return true
	}
	_, ok := q.findLane(q.policy.class(d.Level, d.Key), d.Selector)
	return ok
}

// nextLane returns the lane whose first waiter is looked at first; nil without waiters.
func (q *lanes) nextLane() (best *lane) {
	for _, l := range q.list {
		l.rank = q.policy.rank(&l.bid)
		if best == nil || l.rank.compare(best.rank) < 0 {
			best = l
		}
	}
	return best
}

// NextExceeds reports whether the waiter that the policy serves first wants more than the limit.
// There must be lanes.
func (q *lanes) NextExceeds(limit uint64) bool {
	exceeds := func(l *lane) bool { return l.first.Count > limit }
	return slices.ContainsFunc(q.list, exceeds) && exceeds(q.nextLane()) // ranks are needed only if any does
}

// inOrder returns the lanes in the order of the policy. It is good until the lanes change.
func (q *lanes) inOrder() []*lane {
	for _, l := range q.order {
		l.rank = q.policy.rank(&l.bid)
	}
	slices.SortFunc(q.order, func(a, b *lane) int { return a.rank.compare(b.rank) })
	return q.order
}
