package queue

import (
	"github.com/signalbox-dev/signalbox/protocol"
)

// Queue is a semaphore's state beyond a plain one: options, lanes and slots, the demands of its
// entries, and the holds that ended.
//
// Invariant: there are lanes if and only if the policy is not fifo or there are slots; then every
// waiter is in one. Tokens are late while there are lanes, and after that until the queue is empty.
type Queue struct {
	lanes    // demands of waiters
	holdings // grants of owners
	options  protocol.SemaphoreOptions
	late     bool // tokens are drawn at the grant; see DESIGN.md
	ended    history
}

// Entries is the semaphore's side of a Queue.
type Entries interface {
	// Gone reports whether a waiter counts as gone: its time or its session is over.
	Gone(w *Waiter) bool
	// Touch is called before the Queue's record of an owner changes.
	Touch(owner uint64)
}

// Units are those of a semaphore.
type Units struct{ Used, Limit uint64 }

func (u Units) fits(count uint64) bool { return u.Used <= u.Limit && count <= u.Limit-u.Used }

// New makes the queue of a semaphore that has neither owners nor waiters.
func New(o *protocol.SemaphoreOptions, limit uint64) *Queue {
	q := &Queue{lanes: lanes{asks: make(map[uint64]*Ask)}, holdings: holdings{grants: make(map[uint64]*Grant)}}
	q.rule = &q.options
	q.setOptions(o)
	q.slots = newSlotList(&q.options, limit)
	q.policy = newPolicy(&q.options)
	q.late = q.Laned()
	return q
}

// Laned reports whether waiters stand in lanes.
func (q *Queue) Laned() bool {
	return q != nil && (q.options.Policy != protocol.PolicyFIFO || len(q.slots) > 0)
}

// HasSlots reports whether units have names.
func (q *Queue) HasSlots() bool { return q != nil && len(q.slots) > 0 }

// Late reports whether an entry that is granted from the queue draws a token.
func (q *Queue) Late() bool { return q != nil && q.late }

// DrawLate has tokens drawn at the grant until the queue is empty.
func (q *Queue) DrawLate() { q.late = true }

// Policy returns the policy.
func (q *Queue) Policy() protocol.QueuePolicy { return q.options.Policy }

// Wait adds a waiter. Where there are no lanes, a plain demand leaves nothing.
func (q *Queue) Wait(p Place, d Demand, arrival uint64) {
	if !q.Laned() {
		q.SetDemand(p.Place, d)
		return
	}
	a := &Ask{Demand: d, Waiter: p.Waiter, Arrival: arrival}
	q.setAsk(p.Place, a)
	q.join(a, q.slots)
}

// SetDemand replaces the demand of a waiter where there are no lanes.
func (q *Queue) SetDemand(place uint64, d Demand) {
	if d.Selector = ""; d == plainDemand {
		q.setAsk(place, nil)
		return
	}
	q.setAsk(place, &Ask{Demand: d})
}

// AskAgain replaces a waiter's demand. Its place and its arrival stay, and a key that waits on
// keeps its start.
func (q *Queue) AskAgain(place uint64, count uint64, d Demand) {
	if !q.Laned() {
		q.SetDemand(place, d)
		return
	}
	a := q.asks[place]
	if q.policy.class(d.Level, d.Key) == a.lane.class && d.Selector == a.Selector {
		q.lanes.bytes += uint64(len(d.Key)) - uint64(len(a.Key)) // modulo 2^64
		a.Demand, a.Count = d, count
		q.refresh(a.lane)
		return
	}
	q.policy.joined(d.Key)
	q.leave(a)
	next := &Ask{Demand: d, Waiter: a.Waiter, Arrival: a.Arrival}
	next.Count = count
	q.setAsk(place, next)
	q.join(next, q.slots)
	q.policy.left(d.Key)
}

// Leave removes a waiter; waiters is how many are left. It returns the waiter's ask, or nil for a
// plain one.
func (q *Queue) Leave(place uint64, waiters int) *Ask {
	a := q.asks[place]
	if a != nil {
		if a.lane != nil {
			q.leave(a)
		}
		q.setAsk(place, nil)
	}
	q.late = q.Laned() || q.late && waiters > 0
	return a
}

// Asked returns the ask of a request that gets units at once.
func (q *Queue) Asked(d Demand, count, arrival, place uint64) Ask {
	q.probe = q.policy.bid(d.Level, d.Key, count, arrival, place)
	return Ask{Demand: d, tag: q.policy.tag(&q.probe)}
}

// Own adds an owner with the slots granted for its ask; a nil ask is a plain one. A holder that
// does not know bounds gets none: it may have waited since before an alter.
func (q *Queue) Own(token uint64, a *Ask, slots []uint32, now uint64) {
	d, tag := plainDemand, uint64(0)
	if a != nil {
		d, tag = a.Demand, a.tag
	}
	g := &Grant{Demand: d.held(), Slots: slots}
	if q.Laned() {
		q.policy.granted(d.Key, tag)
	}
	q.slots.take(token, slots)
	if q.options.Preempt != protocol.PreemptOff {
		g.granted = now
	}
	hold := d.Hold
	if longest := q.options.MaxHold; longest != 0 && (hold == 0 || hold > longest) {
		hold = longest
	}
	if hold != 0 && d.KnowsBounds() {
		g.Expires = addSaturated(now, hold)
	}
	q.setGrant(token, g)
}

// Disown removes an owner and frees its slots.
func (q *Queue) Disown(e Entries, token uint64) {
	if g := q.grants[token]; g != nil {
		q.setGrant(token, nil)
		q.free(e, g.Slots)
	}
}

// Usage returns the present use of quotas by the entries.
func (q *Queue) Usage() Usage {
	u := q.usage
	u.Bytes += q.lanes.bytes
	return u
}

// setSlots replaces the list of slots, see holdings.
func (q *Queue) setSlots(e Entries, configs []protocol.Slot) {
	q.holdings.setSlots(e, configs)
	for _, l := range q.list {
		l.admits = q.slots.admitted(l.selector)
	}
}

// Keep takes a hold that ends into the history. The owner is not disowned yet: its slots are filled
// in.
func (q *Queue) Keep(h Hold) {
	if rows := q.options.History; rows > 0 {
		h.Slots = q.SlotNames(q.grants[h.Token], maxHoldSlots)
		q.ended.add(h, rows)
	}
}

// History returns the holds that ended last, the oldest first. The slice is never changed in place.
func (q *Queue) History() []Hold { return q.ended }

// Ask returns a waiter's record beyond a plain one, or nil.
func (q *Queue) Ask(token uint64) *Ask {
	if q == nil {
		return nil
	}
	return q.asks[token]
}

// Grant returns an owner's record beyond a plain one, or nil.
func (q *Queue) Grant(token uint64) *Grant {
	if q == nil {
		return nil
	}
	return q.grants[token]
}

// DemandOf returns an entry's demand.
func (q *Queue) DemandOf(token uint64) Demand {
	if a := q.Ask(token); a != nil {
		return a.Demand
	}
	if g := q.Grant(token); g != nil {
		return g.Demand
	}
	return plainDemand
}

// EntryBytes returns the bytes that an entry counts against the quota of its node.
func (q *Queue) EntryBytes(token uint64) uint64 {
	return q.Ask(token).bytes() + q.Grant(token).bytes()
}

func addSaturated(a, b uint64) uint64 {
	if s := a + b; s >= a {
		return s
	}
	return ^uint64(0)
}
