package shard

import (
	"cmp"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/container"
)

// laneSet is the lanes of a semaphore, and what decides about them.
type laneSet struct {
	policy  protocol.QueuePolicy
	aging   uint64            // ms per level; 0: never
	weights []protocol.Weight // by key
	slots   slotList
	places  map[*entry]*place
	fair    fairQueue

	lanes []*lane // by class and selector
	order []*lane // the same, in the order of the policy when they were examined last
}

// laned reports whether waiters stand in lanes.
func (q *laneSet) laned() bool { return q.policy != protocol.PolicyFIFO || len(q.slots.list) > 0 }

// lane is the waiters of a semaphore that have one class and one selector, strictly by place. The
// class is nothing under the policy fifo, the level under priority, the key under fair.
type lane struct {
	class    string // of a level one byte, the highest level first
	selector string
	waiters  container.Index[*entry]
	admits   slotSet // of the selector; nil: any slot

	first   *entry // of waiters
	arrival uint64 // of the first
	cost    uint64 // of the first, under fair
	key     *fairKey
	level   uint8
	rank    rank // of the first, when the lanes were examined last
}

func entryByPlace(a, b *entry) bool { return a.orderID < b.orderID }

// class is the class of a demand under the policy. Its order is that of descriptions.
func (q *laneSet) class(d demand) string {
	switch q.policy {
	case protocol.PolicyPriority:
		return string(rune('0' + protocol.MaxPriority - d.level))
	case protocol.PolicyFair:
		return d.key
	}
	return ""
}

// findLane finds a lane, or where it belongs.
func (q *laneSet) findLane(class, selector string) (at int, ok bool) {
	return slices.BinarySearchFunc(q.lanes, lane{class: class, selector: selector}, func(a *lane, b lane) int {
		return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(a.selector, b.selector))
	})
}

// join puts a waiter, which has a place, into its lane.
func (q *laneSet) join(e *entry) {
	p := q.places[e]
	class := q.class(p.demand)
	at, ok := q.findLane(class, p.selector)
	if !ok {
		l := &lane{class: class, selector: p.selector, admits: q.slots.admitted(p.selector), level: p.level}
		if q.policy == protocol.PolicyFair {
			l.key = q.fair.key(p.key)
		}
		q.lanes = slices.Insert(q.lanes, at, l)
		q.order = append(q.order, l)
	}
	l := q.lanes[at]
	p.lane = l
	if l.key != nil {
		l.key.waiters++
	}
	l.waiters.Insert(e, entryByPlace)
	q.refresh(l)
}

// leave takes a waiter out of its lane. A key without waiters has no record.
func (q *laneSet) leave(e *entry) {
	p := q.places[e]
	l := p.lane
	p.lane = nil
	l.waiters.Remove(e, entryByPlace)
	if l.key != nil {
		if l.key.waiters--; l.key.waiters == 0 {
			delete(q.fair.keys, p.key)
		}
	}
	if l.waiters.Len() == 0 {
		at, _ := q.findLane(l.class, l.selector)
		q.lanes = slices.Delete(q.lanes, at, at+1)
		at = slices.Index(q.order, l)
		q.order = slices.Delete(q.order, at, at+1)
		return
	}
	q.refresh(l)
}

// rejoin replaces what a waiter asks for. A key that waits on keeps its start.
func (q *laneSet) rejoin(e *entry, want demand) {
	p := q.places[e]
	if q.class(want) == p.lane.class && want.selector == p.selector {
		e.semaphore.node.bytes += uint64(len(want.key)) - uint64(len(p.key)) // modulo 2^64
		p.demand = want
		q.refresh(p.lane)
		return
	}
	var kept *fairKey
	if p.key == want.key {
		kept = p.lane.key
	}
	if kept != nil {
		kept.waiters++
	}
	q.leave(e)
	e.setPlace(&place{demand: want, arrival: p.arrival})
	q.join(e)
	if kept != nil {
		kept.waiters--
	}
}

// maxLanes bounds the lanes of a semaphore.
const maxLanes = 1024

// hasLaneFor reports whether a request has a lane, or may have one more. A waiter that asks again
// may leave one.
func (q *laneSet) hasLaneFor(d demand, e *entry) bool {
	n := len(q.lanes)
	if e != nil && q.places[e].lane.waiters.Len() == 1 {
		n--
	}
	if n < maxLanes {
		return true
	}
	_, ok := q.findLane(q.class(d), d.selector)
	return ok
}

// refresh is called when the first waiter of a lane, or its count, may have changed.
func (q *laneSet) refresh(l *lane) {
	l.first = l.waiters.First()
	p := q.places[l.first]
	l.arrival = p.arrival
	if l.key != nil {
		l.cost = fairCost(l.first.count, q.weight(p.key))
	}
}
