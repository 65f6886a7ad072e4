package queue

import (
	"bytes"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Options returns the options, as clients see them. They must not be changed. nil is a plain
// semaphore's.
func (q *Queue) Options() protocol.SemaphoreOptions {
	if q == nil {
		return protocol.SemaphoreOptions{}
	}
	return q.options
}

// HasOptions reports whether only a persistent semaphore can have the queue. The mark of late
// tokens alone may be an ephemeral one's.
func (q *Queue) HasOptions() bool { return len(q.ended) > 0 || !q.options.Plain() }

// IsPlain reports whether the semaphore's own record is a plain one.
func (q *Queue) IsPlain() bool { return q == nil || !q.late && !q.HasOptions() }

// setOptions copies options, with the weights in order of key.
func (q *Queue) setOptions(o *protocol.SemaphoreOptions) {
	q.options = *o
	q.options.Weights, q.options.Slots = nil, nil
	for _, w := range o.Weights {
		q.options.Weights = append(q.options.Weights, protocol.Weight{Key: bytes.Clone(w.Key), Weight: w.Weight})
	}
	slices.SortFunc(q.options.Weights, compareWeights)
	for _, x := range o.Slots {
		q.options.Slots = append(q.options.Slots, protocol.Slot{Name: x.Name, Labels: slices.Clone(x.Labels)})
	}
}

// OptionBytes returns the bytes that options count against a node's quota; 0 for nil.
func OptionBytes(o *protocol.SemaphoreOptions, limit uint64) uint64 {
	if o == nil || o.Plain() {
		return 0
	}
	sum := 512 + 192*o.History
	for _, w := range o.Weights {
		sum += uint64(len(w.Key))
	}
	for _, x := range o.Slots {
		sum += slotBytes + uint64(len(x.Name))
		for _, label := range x.Labels {
			sum += uint64(len(label))
		}
	}
	if o.Numbered {
		sum += slotBytes * limit
	}
	return sum
}

const slotBytes = 64

// OptionBytes returns the bytes that the options of a semaphore count; 0 for nil.
func (q *Queue) OptionBytes(limit uint64) uint64 {
	if q == nil {
		return 0
	}
	return OptionBytes(&q.options, limit)
}

// Alteration is the result of altering options.
type Alteration struct {
	Options protocol.SemaphoreOptions
	Limit   uint64

	lanes   bool // policy, aging or weights change
	slots   bool // so does the list of slots
	history bool
	holds   bool // longest hold, and whether it may be extended
	preempt bool // which owners waiters may preempt, and how soon
}

// Alter returns the result of an alter of a semaphore's options; a nil queue is a plain one.
func (q *Queue) Alter(x *protocol.Alter, limit uint64) Alteration {
	was := q.Options()
	o := was
	for _, f := range []struct {
		field uint64
		set   func()
	}{
		{protocol.AlterPolicy, func() { o.Policy = x.Options.Policy }},
		{protocol.AlterAging, func() { o.Aging = x.Options.Aging }},
		{protocol.AlterWeights, func() { o.Weights = slices.SortedFunc(slices.Values(x.Options.Weights), compareWeights) }},
		{protocol.AlterHistory, func() { o.History = x.Options.History }},
		{protocol.AlterMaxHold, func() { o.MaxHold = x.Options.MaxHold }},
		{protocol.AlterExtend, func() { o.Extend = x.Options.Extend }},
		{protocol.AlterPreempt, func() { o.Preempt = x.Options.Preempt }},
		{protocol.AlterGrace, func() { o.Grace = x.Options.Grace }},
		{protocol.AlterMinHold, func() { o.MinHold = x.Options.MinHold }},
		{protocol.AlterSlots, func() { o.Numbered, o.Slots = x.Options.Numbered, x.Options.Slots }},
	} {
		if uint64(x.Fields)&f.field != 0 {
			f.set()
		}
	}
	if uint64(x.Fields)&protocol.AlterSlots != 0 && len(o.Slots) > 0 {
		limit = uint64(len(o.Slots))
	}
	return Alteration{
		Options: o, Limit: limit,
		lanes:   o.Policy != was.Policy || o.Aging != was.Aging || !slices.EqualFunc(o.Weights, was.Weights, sameWeight),
		slots:   o.Numbered != was.Numbered || !slices.EqualFunc(o.Slots, was.Slots, sameSlot),
		history: o.History != was.History,
		holds:   o.MaxHold != was.MaxHold || o.Extend != was.Extend,
		preempt: o.Preempt != was.Preempt || o.Grace != was.Grace || o.MinHold != was.MinHold,
	}
}

func sameWeight(a, b protocol.Weight) bool { return bytes.Equal(a.Key, b.Key) && a.Weight == b.Weight }

func sameSlot(a, b protocol.Slot) bool { return a.Name == b.Name && slices.Equal(a.Labels, b.Labels) }

// Changes reports whether any option changes.
func (a *Alteration) Changes() bool { return a.Relanes() || a.history || a.holds || a.preempt }

// Relanes reports whether the waiters are put into lanes again.
func (a *Alteration) Relanes() bool { return a.lanes || a.slots }

// Preempts reports whether it changes which owners may be preempted, and how soon.
func (a *Alteration) Preempts() bool { return a.preempt }

// HasSlots reports whether units have names then.
func (a *Alteration) HasSlots() bool { return a.Options.Numbered || len(a.Options.Slots) > 0 }

// KnowsSlots reports whether the slots with these names will be there.
func (a *Alteration) KnowsSlots(names []string) bool {
	if len(names) == 0 {
		return true
	}
	list := configsOf(&a.Options, a.Limit)
	for _, name := range names {
		if !slices.ContainsFunc(list, func(x protocol.Slot) bool { return x.Name == name }) {
			return false
		}
	}
	return true
}

// LanesFit reports whether waiters have no more lanes under the new policy than are allowed. yield
// is called with the place of each.
func (a *Alteration) LanesFit(q *Queue, places func(yield func(place uint64) bool)) bool {
	if !a.lanes {
		return true
	}
	type key struct{ class, selector string }
	p, seen := newPolicy(&a.Options), make(map[key]bool)
	for place := range places {
		d := &plainDemand
		if x := q.Ask(place); x != nil {
			d = &x.Demand
		}
		if seen[key{p.class(d.Level, d.Key), d.Selector}] = true; len(seen) > maxLanes {
			return false
		}
	}
	return true
}

// Place is a waiter, by its place.
type Place struct {
	Place uint64
	Waiter
}

// Apply replaces the options. waiters are all that wait, in order: they are put into the lanes of
// the new options, with their places and arrivals.
func (q *Queue) Apply(e Entries, a *Alteration, waiters []Place, now uint64) {
	if !a.Relanes() {
		q.setOptions(&a.Options)
		q.ended.trim(q.options.History)
		return
	}
	laned := q.Laned()
	asks := make([]*Ask, len(waiters))
	for i, w := range waiters {
		if asks[i] = q.asks[w.Place]; laned {
			q.leave(asks[i])
		}
	}
	q.setOptions(&a.Options)
	q.ended.trim(q.options.History)
	q.policy = newPolicy(&q.options)
	if a.slots {
		q.setSlots(e, configsOf(&q.options, a.Limit))
	}
	if q.late = q.late || q.Laned(); len(waiters) == 0 {
		q.late = q.Laned()
	}
	for i, w := range waiters {
		a := asks[i]
		switch {
		case !q.Laned() && a == nil:
			continue
		case !q.Laned():
			q.SetDemand(w.Place, a.Demand)
			continue
		case a == nil:
			a = &Ask{Demand: plainDemand}
		}
		if !laned {
			a.Arrival = now
		}
		a.Waiter = w.Waiter
		q.setAsk(w.Place, a)
		q.join(a, q.slots)
	}
}

// Drain sets and takes away the mark "drained" of slots, and reports whether any slot changed.
func (q *Queue) Drain(drain, undrain []string) bool {
	drained, undrained := q.slots.mark(drain, true), q.slots.mark(undrain, false)
	return drained || undrained
}

// ResizeRefusal is the reason why a semaphore cannot have another limit.
type ResizeRefusal uint8

// The refusals.
const (
	ResizeOK ResizeRefusal = iota
	ResizeSlotsNamed
	ResizeTooHigh
)

// MayResize reports whether the semaphore can have another limit, and how many bytes more it counts
// then.
func (q *Queue) MayResize(limit, was uint64) (refusal ResizeRefusal, more uint64) {
	o := &q.options
	switch {
	case len(q.slots) > 0 && !o.Numbered && limit != was:
		return ResizeSlotsNamed, 0
	case o.Numbered && limit > protocol.MaxSlots, o.Policy == protocol.PolicyFair && limit > protocol.MaxFairLimit,
		o.Preempt != protocol.PreemptOff && limit > protocol.MaxPreemptLimit:
		return ResizeTooHigh, 0
	case o.Numbered && limit > was:
		return ResizeOK, slotBytes * (limit - was)
	}
	return ResizeOK, 0
}

// Resize gives a semaphore with numbered slots another number of them.
func (q *Queue) Resize(e Entries, limit uint64) {
	if q.options.Numbered {
		q.setSlots(e, configsOf(&q.options, limit))
	}
}
