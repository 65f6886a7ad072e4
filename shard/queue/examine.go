package queue

import "slices"

// Next returns the waiter that is granted or ended next, or nil. fits is true if it is granted,
// with the slots that it gets; it is false for one that counts as gone. The caller grants or ends
// it and calls Next again, until it returns nil:
//
//	again:  nothing is claimed
//	        for the first waiters of all lanes, in the order of the policy:
//	            it counts as gone          -> it is ended; again
//	            it fits what is unclaimed  -> it is granted; again
//	            else it claims: without slots everything, with slots those that its selector admits
//	            stop when no free unit is unclaimed
//
// So nobody is passed by on a unit that it could use, except by the policy. There must be lanes.
func (q *Queue) Next(e Entries, u Units) (next *Ask, slots []uint32, fits bool) {
	if len(q.list) == 0 {
		return nil, nil, false
	}
	if len(q.slots) == 0 {
		a := q.nextLane().first
		if gone := e.Gone(&a.Waiter); gone || u.fits(a.Count) {
			return a, nil, !gone
		}
		return nil, nil, false
	}
	available := q.slots.available()
	for _, l := range q.inOrder() {
		n := uint64(available.countIn(l.admits))
		switch {
		case e.Gone(&l.first.Waiter):
			return l.first, nil, false
		case n >= l.first.Count && u.fits(l.first.Count):
			return l.first, available.lowest(l.first.Count, l.admits), true
		case n > 0: // else others have claimed all that it could use
			available.remove(l.admits)
		}
		if available.empty() {
			break
		}
	}
	return nil, nil, false
}

// Request is a request that is looked at as if it waited: a new one, or a waiter that asks again.
type Request struct {
	Demand
	Count   uint64
	Place   uint64 // of a new one, behind all others
	Arrival uint64
	Waiting bool // it has this place
}

// Serves reports whether the next examination grants the request first, and with which slots. There
// must be lanes.
func (q *Queue) Serves(u Units, r *Request) (slots []uint32, ok bool) {
	class := q.policy.class(r.Level, r.Key)
	q.probe = q.policy.bid(r.Level, r.Key, r.Count, r.Arrival, r.Place)
	mine := q.policy.rank(&q.probe)
	type head struct {
		lane  *lane
		count uint64
		rank  rank
	}
	var ahead []head
	for _, l := range q.list {
		a := l.first
		if r.Waiting && a.place == r.Place {
			walk := l.waiters.From(func(*Ask) bool { return false })
			walk.Next()
			if a = walk.Next(); a == nil {
				continue
			}
		}
		if l.class == class && l.selector == r.Selector {
			if a.place < r.Place {
				return nil, false
			}
			continue
		}
		q.probe = q.bidOf(a)
		if theirs := q.policy.rank(&q.probe); theirs.compare(mine) < 0 {
			if len(q.slots) == 0 {
				return nil, false // it claims everything, or it is granted first
			}
			ahead = append(ahead, head{l, a.Count, theirs})
		}
	}
	if len(q.slots) == 0 {
		return nil, u.fits(r.Count)
	}
	slices.SortFunc(ahead, func(a, b head) int { return a.rank.compare(b.rank) })
	available, admits := q.slots.available(), q.slots.admitted(r.Selector)
	for _, h := range ahead {
		if u.fits(h.count) && uint64(available.countIn(h.lane.admits)) >= h.count {
			return nil, false // it is granted first
		}
		available.remove(h.lane.admits)
	}
	if !u.fits(r.Count) || uint64(available.countIn(admits)) < r.Count {
		return nil, false
	}
	return available.lowest(r.Count, admits), true
}

// HeirSlots returns the slots that a waiter would get if an owner returned its own: those come
// before other free ones, and of those the lowest. ok is false if they are too few.
func (q *Queue) HeirSlots(owner, waiter, count uint64) (slots []uint32, ok bool) {
	if len(q.slots) == 0 {
		return nil, true
	}
	free, given := q.slots.available(), newSlotSet(len(q.slots))
	for _, i := range q.grants[owner].Slots {
		if x := &q.slots[i]; !x.drained && !x.leaving {
			given.add(int(i))
		}
	}
	admits := q.slots.admitted(q.asks[waiter].Selector)
	slots = given.lowest(count, admits)
	slots = append(slots, free.lowest(count-uint64(len(slots)), admits)...)
	slices.Sort(slots)
	return slots, uint64(len(slots)) == count
}
