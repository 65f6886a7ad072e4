package queue

import (
	"maps"
	"math"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
)

// Fields are a queue's fields in the record of a semaphore, in snapshots and in chunks alike. A
// plain semaphore and a plain entry have records without them.
func (q *Queue) Fields(f *varint.Fields) {
	o := &q.options
	varint.Byte(f, &o.Policy)
	f.Uint(&o.Aging, &o.History)
	varint.List(f, &o.Weights, protocol.MaxWeights, func(w *protocol.Weight, f *varint.Fields) {
		f.Bytes(&w.Key, protocol.MaxKeyLen)
		f.Uint(&w.Weight)
	})
	f.Bool(&q.late, &o.Numbered)
	varint.List(f, (*[]slot)(&q.slots), varint.NoLimit, (*slot).fields)
	f.Uint(&o.MaxHold)
	f.Bool(&o.Extend)
	varint.Byte(f, &o.Preempt)
	f.Uint(&o.Grace, &o.MinHold)
	varint.List(f, (*[]Hold)(&q.ended), protocol.MaxHistory, (*Hold).fields)
	if f.Reading() {
		q.policy = newPolicy(o)
	}
	if p, ok := q.policy.(*fair); ok {
		p.fields(f)
	}
}

func (x *slot) fields(f *varint.Fields) {
	f.Text(&x.name, protocol.MaxLabelLen)
	varint.List(f, &x.labels, protocol.MaxLabels, func(s *string, f *varint.Fields) { f.Text(s, protocol.MaxLabelLen) })
	f.Bool(&x.drained, &x.leaving)
	f.Uint(&x.token)
}

func (h *Hold) fields(f *varint.Fields) {
	f.Uint(&h.Token, &h.Session, &h.Count, &h.Since, &h.Until)
	f.Text(&h.Description, maxHoldDescription)
	varint.List(f, &h.Slots, maxHoldSlots, func(s *string, f *varint.Fields) { f.Text(s, protocol.MaxLabelLen) })
	varint.Byte(f, &h.Cause)
	known := h.Ending != nil
	f.Bool(&known)
	if known {
		if f.Reading() {
			h.Ending = new(protocol.Ending)
		}
		EndingFields(f, h.Ending)
	}
}

// EndingFields are the fields of how a session ended.
func EndingFields(f *varint.Fields, x *protocol.Ending) {
	varint.Byte(f, &x.Reason)
	varint.Byte(f, &x.Link)
	f.Uint(&x.Silent, &x.Stood)
	f.Bool(&x.Steady)
}

// fields are those of fair: starts are by key, in order.
func (f *fair) fields(r *varint.Fields) {
	r.Uint(&f.virtual)
	r.Bool(&f.hasLast)
	r.Text(&f.last, protocol.MaxKeyLen)
	type start struct {
		key   string
		start uint64
	}
	var starts []start
	if !r.Reading() {
		for _, key := range slices.Sorted(maps.Keys(f.keys)) {
			starts = append(starts, start{key, f.keys[key].start})
		}
	}
	varint.List(r, &starts, varint.NoLimit, func(x *start, r *varint.Fields) {
		r.Text(&x.key, protocol.MaxKeyLen)
		r.Uint(&x.start)
	})
	if r.Reading() {
		for _, x := range starts {
			f.keys[x.key] = &share{start: x.start}
		}
	}
}

// Read reads a queue's fields from a record. It refuses an impossible record.
func Read(r *varint.Reader, limit uint64) (*Queue, bool) {
	q := New(&protocol.SemaphoreOptions{}, limit)
	varint.Decode(r, q.Fields)
	names := make(map[string]bool, len(q.slots))
	staying := uint64(0)
	o := &q.options
	for i := range q.slots {
		x := &q.slots[i]
		if names[x.name] || x.name == "" || !x.leaving && uint64(i) != staying {
			return nil, false
		}
		names[x.name] = true
		if !x.leaving {
			if staying++; !o.Numbered {
				o.Slots = append(o.Slots, protocol.Slot{Name: x.name, Labels: x.labels})
			}
		}
	}
	ok := !r.Failed && o.Policy <= protocol.PolicyFair && o.Fit(limit) == "" && (staying == 0 || staying == limit) &&
		(staying > 0 || len(q.slots) == 0) && (!o.Numbered || staying > 0) &&
		uint64(len(q.ended)) <= o.History && slices.IsSortedFunc(o.Weights, compareWeights) && (q.late || !q.Laned())
	for _, w := range o.Weights {
		ok = ok && w.Weight >= 1 && w.Weight <= protocol.MaxWeight
	}
	if p, isFair := q.policy.(*fair); isFair {
		ok = ok && p.virtual <= fairRebased
		for _, k := range p.keys {
			ok = ok && k.start <= p.virtual
		}
	}
	return q, ok
}

// Part is the extra part of an entry's record: an ask of a waiter or a grant of an owner. It is nil
// for a plain entry.
type Part struct {
	ask   *Ask
	grant *Grant
}

// PartOf returns the part of an entry; nil for a plain one.
func (q *Queue) PartOf(token uint64) *Part {
	if a, g := q.Ask(token), q.Grant(token); a != nil || g != nil {
		return &Part{a, g}
	}
	return nil
}

// Fields are a part's fields in the record of an entry, in snapshots and in chunks alike.
func (p *Part) Fields(f *varint.Fields) {
	if p.grant == nil {
		p.ask.fields(f)
	} else {
		p.grant.fields(f)
	}
}

func (a *Ask) fields(f *varint.Fields) {
	a.Demand.fields(f)
	f.Text(&a.Selector, math.MaxUint16)
	f.Uint(&a.Hold, &a.Arrival)
}

func (g *Grant) fields(f *varint.Fields) {
	g.Demand.fields(f)
	f.Uint(&g.Expires, &g.granted, &g.number, &g.yieldBy)
	f.Bool(&g.known, &g.silent)
	varint.List(f, &g.Slots, protocol.MaxSlots, func(i *uint32, f *varint.Fields) { f.Uint32(i) })
}

func (d *Demand) fields(f *varint.Fields) {
	varint.Byte(f, &d.Level)
	f.Text(&d.Key, protocol.MaxKeyLen)
	varint.Byte(f, &d.Flags)
}

// ReadPart reads the part of a waiter's or an owner's record. It refuses an impossible one.
func ReadPart(r *varint.Reader, waiting bool) (*Part, bool) {
	p := &Part{grant: new(Grant)}
	if waiting {
		p = &Part{ask: new(Ask)}
	}
	varint.Decode(r, p.Fields)
	d := p.demand()
	ok := !r.Failed && d.Level <= protocol.MaxPriority && d.Flags&^(protocol.AskDeadlock|protocol.KnowsBounds) == 0
	if waiting {
		return p, ok && (d.Hold == 0 || d.KnowsBounds())
	}
	g := p.grant
	return p, ok && (g.Expires == 0 || d.KnowsBounds()) && (g.number != 0 || g.yieldBy == 0 && !g.known)
}

func (p *Part) demand() *Demand {
	if p.grant == nil {
		return &p.ask.Demand
	}
	return &p.grant.Demand
}

// Bound returns when the hold of an owner ends, 0 for never.
func (p *Part) Bound() uint64 {
	if p == nil {
		return 0
	}
	at, _ := p.grant.Bound()
	return at
}

// Preempted returns the number of an owner's preemption, 0 if it is not preempted.
func (p *Part) Preempted() uint64 {
	if p == nil {
		return 0
	}
	return p.grant.Preempted()
}

// Fits reports whether an entry may have this part, nil for none, in a queue, nil for none: slots
// that nobody has, as many as its count.
func (p *Part) Fits(q *Queue, token, count uint64, waiting bool) bool {
	if waiting {
		switch {
		case q.Laned():
			return p != nil && (p.ask.Selector == "" || len(q.slots) > 0)
		case p == nil:
			return true
		}
		return p.ask.Selector == "" && p.ask.Arrival == 0 && p.ask.Demand != plainDemand
	}
	if p != nil && (p.grant.isPlain() ||
		p.grant.preemption != preemption{} && (q == nil || q.options.Preempt == protocol.PreemptOff)) {
		return false
	}
	if !q.HasSlots() {
		return p == nil || len(p.grant.Slots) == 0
	}
	if p == nil || uint64(len(p.grant.Slots)) != count {
		return false
	}
	for k, i := range p.grant.Slots {
		if int(i) >= len(q.slots) || q.slots[i].held || q.slots[i].token != token || k > 0 && i <= p.grant.Slots[k-1] {
			return false
		}
	}
	return true
}

// Restore adds an entry with the part that was read, which fits; nil is a plain one.
func (q *Queue) Restore(at Place, p *Part) {
	switch {
	case p == nil:
	case p.grant != nil:
		q.setGrant(at.Place, p.grant)
		q.slots.take(at.Place, p.grant.Slots)
	case q.Laned():
		p.ask.Waiter = at.Waiter
		q.setAsk(at.Place, p.ask)
		q.join(p.ask, q.slots)
	default:
		q.setAsk(at.Place, p.ask)
	}
}

// IsWhole reports whether nothing is left over where all entries were restored: keys without
// waiters, late tokens without a reason, free slots that leave.
func (q *Queue) IsWhole(waiters int) bool {
	p, isFair := q.policy.(*fair)
	return !(isFair && !p.dropUnusedKeys() || q.late && waiters == 0 && !q.Laned() ||
		slices.ContainsFunc(q.slots, func(x slot) bool { return x.leaving && !x.held }))
}

// Mend removes inconsistencies where all entries are here: keys without waiters, and slots that
// leave without an owner.
func (q *Queue) Mend(e Entries, waiters int) {
	if p, isFair := q.policy.(*fair); isFair {
		p.dropUnusedKeys()
	}
	q.late = q.Laned() || q.late && waiters > 0
	for i := len(q.slots) - 1; i >= 0; i-- {
		if x := &q.slots[i]; x.leaving && !x.held {
			q.free(e, []uint32{uint32(i)})
		}
	}
}

// SlotCheck checks the slots of owners that come one by one: each is there, and nobody else's.
type SlotCheck struct {
	q     *Queue
	taken slotSet
}

// NewSlotCheck begins a check with the slots that are held in q, which may be nil.
func NewSlotCheck(q *Queue) (c SlotCheck) {
	if q.HasSlots() {
		c.q, c.taken = q, newSlotSet(len(q.slots))
		for i := range q.slots {
			if q.slots[i].held {
				c.taken.add(i)
			}
		}
	}
	return c
}

// Owner reports whether an owner with this part fits; nil is a plain one.
func (c *SlotCheck) Owner(p *Part, count uint64) bool {
	if c.q == nil || p == nil {
		return c.q == nil && (p == nil || len(p.grant.Slots) == 0)
	}
	if uint64(len(p.grant.Slots)) != count {
		return false
	}
	for _, i := range p.grant.Slots {
		if int(i) >= len(c.q.slots) || c.taken.has(int(i)) {
			return false
		}
		c.taken.add(int(i))
	}
	return true
}
