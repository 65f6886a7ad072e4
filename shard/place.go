package shard

import (
	"slices"
	"strings"

	"github.com/signalbox-dev/signalbox/protocol"
)

// demand is what an acquire asks for beyond units: its level, its key, and which slots it takes.
type demand struct {
	level    uint8
	key      string
	selector string
	flags    uint8  // of protocol.AcquireOptions
	hold     uint64 // of a waiter: ms that its hold may last; 0: the semaphore's
}

// plainDemand is that of a request without options.
var plainDemand = demand{level: protocol.DefaultPriority}

func demandOf(o *protocol.AcquireOptions) demand {
	if o == nil {
		return plainDemand
	}
	return demand{o.Level(), string(o.Key), selectorOf(o.Labels, o.Names), o.Flags, o.Hold}
}

// A selector is a text: empty for any slot, + and labels that a slot must have, or @ and the names
// of the slots. They are sorted, so that equal selectors are equal texts. Neither names nor labels
// have commas.
func selectorOf(labels, names []string) string {
	mark, list := "+", labels
	if len(names) > 0 {
		mark, list = "@", names
	}
	if len(list) == 0 {
		return ""
	}
	return mark + strings.Join(slices.Sorted(slices.Values(list)), ",")
}

// selected takes a selector apart.
func selected(selector string) (labels, names []string) {
	switch {
	case selector == "":
	case selector[0] == '@':
		names = strings.Split(selector[1:], ",")
	default:
		labels = strings.Split(selector[1:], ",")
	}
	return labels, names
}

// place is what an entry has beyond a plain one. A waiter of a semaphore with lanes always has one;
// any other entry has one if it differs from that of a plain request.
type place struct {
	demand
	arrival uint64   // bucket time at the enqueueing; of a waiter in a lane, else 0
	slots   []uint32 // of an owner: indexes, ascending
	until   uint64   // of an owner: the end of its longest hold, in bucket time; 0: none
	want    wantState
	lane    *lane // of a waiter where there are lanes
}

// isPlain reports whether an entry without a place is the same.
func (p *place) isPlain() bool {
	return p.demand == plainDemand && p.arrival == 0 && len(p.slots) == 0 && p.until == 0 && p.want == wantState{} && p.lane == nil
}

// asked is what an entry with this place, which may be nil, asked for.
func (p *place) asked() demand {
	if p == nil {
		return plainDemand
	}
	return p.demand
}

// quotaBytes is what a place counts against its node's quota; nil is nothing.
func (p *place) quotaBytes() uint64 {
	if p == nil {
		return 0
	}
	return placeBytes + 4*uint64(len(p.slots)) + uint64(len(p.key)+len(p.selector))
}

// place is the entry's, or nil. It is inlined: most semaphores have nothing rare.
func (e *entry) place() *place {
	if e.semaphore.rare == nil {
		return nil
	}
	return e.rarePlace()
}

func (e *entry) rarePlace() *place {
	if q := e.semaphore.rare.queue; q != nil {
		return q.places[e]
	}
	return nil
}

// demand is what the entry asked for.
func (e *entry) demand() demand {
	return e.place().asked()
}

// dropPlace forgets the place of an entry that has left its semaphore, and frees its slots.
func (e *entry) dropPlace(m *Machine) {
	if p := e.place(); p != nil {
		q := e.semaphore.rare.queue
		e.semaphore.node.bytes -= p.quotaBytes()
		countWant(e.semaphore, q, p, nil)
		q.slots.free(m, p.slots, q.places)
		delete(q.places, e)
	}
}

// setPlace gives the entry, which is in no lane, another place; a plain one is none. It counts its
// bytes.
func (e *entry) setPlace(p *place) {
	s := e.semaphore
	if p != nil && p.isPlain() && !(e.waiting && s.hasLanes()) {
		p = nil
	}
	q := s.queue()
	if q == nil {
		if p == nil {
			return
		}
		q = s.ownQueue()
	}
	s.node.bytes += p.quotaBytes() - q.places[e].quotaBytes() // modulo 2^64
	countWant(s, q, q.places[e], p)
	if p == nil {
		delete(q.places, e)
	} else {
		q.places[e] = p
	}
}

// grant is what the reply to an acquire says beyond the order id, at this moment of its bucket.
func (p *place) grant(s *semaphore, now uint64) *protocol.Grant {
	if len(p.slots) == 0 && !p.knowsBounds() && p.want.number == 0 {
		return nil
	}
	g := &protocol.Grant{Slots: s.queue().slots.names(p.slots), Want: p.want.number}
	if p.knowsBounds() || p.want.number != 0 {
		g.Now = now
		g.Until, _ = p.bound()
	}
	return g
}

// ownerOptions and waiterOptions are of an entry as clients see it; nil for a plain one.
func ownerOptions(e *entry) *protocol.OwnerOptions {
	p := e.place()
	if p == nil {
		return nil
	}
	return &protocol.OwnerOptions{Slots: e.semaphore.queue().slots.names(p.slots),
		Priority: p.level + 1, Key: []byte(p.key)}
}

func waiterOptions(e *entry) *protocol.WaiterOptions {
	p := e.place()
	if p == nil {
		return nil
	}
	o := &protocol.WaiterOptions{Priority: p.level + 1, Key: []byte(p.key), Flags: p.flags}
	o.Labels, o.Names = selected(p.selector)
	return o
}
