package queue

import (
	"math/bits"
	"slices"
	"strconv"

	"github.com/signalbox-dev/signalbox/protocol"
)

// slotList is the slots of a semaphore. Those that leave stand behind all others.
//
// Invariant: a slot is held if and only if its index is among the slots of the grant with its
// token; one that leaves is held.
type slotList []slot

type slot struct {
	name    string
	labels  []string
	drained bool   // it is not granted
	leaving bool   // it goes when it is given back
	held    bool   // its owner has its token
	token   uint64 // of its last grant; 0: none
}

// configsOf returns the slots of options, numbered ones included.
func configsOf(o *protocol.SemaphoreOptions, limit uint64) []protocol.Slot {
	if !o.Numbered {
		return o.Slots
	}
	list := make([]protocol.Slot, limit)
	for i := range list {
		list[i].Name = strconv.Itoa(i)
	}
	return list
}

// newSlotList makes the list that options name.
func newSlotList(o *protocol.SemaphoreOptions, limit uint64) (t slotList) {
	for _, x := range configsOf(o, limit) {
		t = append(t, slot{name: x.Name, labels: slices.Clone(x.Labels)})
	}
	return t
}

func (t slotList) find(name string) int {
	return slices.IndexFunc(t, func(x slot) bool { return x.name == name })
}

func (t slotList) names(indexes []uint32) (names []string) {
	for _, i := range indexes {
		names = append(names, t[i].name)
	}
	return names
}

// admits reports whether a slot matches a selector.
func (x *slot) admits(labels, names []string) bool {
	if len(names) > 0 {
		return slices.Contains(names, x.name)
	}
	for _, label := range labels {
		if !slices.Contains(x.labels, label) {
			return false
		}
	}
	return true
}

// admitted returns the slots that match a selector and stay; nil without slots.
func (t slotList) admitted(selector string) slotSet {
	if len(t) == 0 {
		return nil
	}
	labels, names := selected(selector)
	set := newSlotSet(len(t))
	for i := range t {
		if x := &t[i]; !x.leaving && x.admits(labels, names) {
			set.add(i)
		}
	}
	return set
}

// available returns the slots that can be granted.
func (t slotList) available() slotSet {
	set := newSlotSet(len(t))
	for i := range t {
		if x := &t[i]; !x.held && !x.drained && !x.leaving {
			set.add(i)
		}
	}
	return set
}

// take gives slots to an owner.
func (t slotList) take(token uint64, indexes []uint32) {
	for _, i := range indexes {
		t[i].held, t[i].token = true, token
	}
}

// split returns which of an owner's slots it keeps, and gives back, if it asks for count slots that
// match a selector. ok is false if it must not. It keeps exactly those that it names, or else the
// lowest.
func (t slotList) split(held []uint32, selector string, count uint64) (kept, given []uint32, ok bool) {
	labels, names := selected(selector)
	for _, i := range held {
		switch admits := t[i].admits(labels, names); {
		case len(names) == 0 && !admits:
			return nil, nil, false
		case len(names) > 0 && admits, len(names) == 0 && uint64(len(kept)) < count:
			kept = append(kept, i)
		default:
			given = append(given, i)
		}
	}
	return kept, given, uint64(len(kept)) == count
}

// mark sets the mark "drained", and reports whether any slot changed.
func (t slotList) mark(names []string, drained bool) (changed bool) {
	for _, name := range names {
		x := &t[t.find(name)]
		changed = changed || x.drained != drained
		x.drained = drained
	}
	return changed
}

func (x *slot) state() protocol.SlotState {
	switch {
	case x.leaving:
		return protocol.SlotLeaving
	case x.drained && x.held:
		return protocol.SlotDraining
	case x.drained:
		return protocol.SlotDrained
	case x.held:
		return protocol.SlotHeld
	}
	return protocol.SlotFree
}

// slotSet is a set of indexes; nil is the set of all.
type slotSet []uint64

func newSlotSet(n int) slotSet { return make(slotSet, (n+63)/64) }

func (t slotSet) add(i int)      { t[i/64] |= 1 << (i % 64) }
func (t slotSet) has(i int) bool { return t == nil || t[i/64]>>(i%64)&1 != 0 }

func (t slotSet) empty() bool {
	for _, w := range t {
		if w != 0 {
			return false
		}
	}
	return true
}

// countIn returns how many of t are in the other set.
func (t slotSet) countIn(o slotSet) (n int) {
	for i, w := range t {
		if o != nil {
			w &= o[i]
		}
		n += bits.OnesCount64(w)
	}
	return n
}

// remove removes the other set from t.
func (t slotSet) remove(o slotSet) {
	for i := range t {
		if o == nil {
			t[i] = 0
		} else {
			t[i] &^= o[i]
		}
	}
}

// lowest returns the n lowest of t that are in the other set, or fewer.
func (t slotSet) lowest(n uint64, o slotSet) []uint32 {
	list := make([]uint32, 0, n)
	for i, w := range t {
		if o != nil {
			w &= o[i]
		}
		for ; w != 0 && uint64(len(list)) < n; w &= w - 1 {
			list = append(list, uint32(i*64+bits.TrailingZeros64(w)))
		}
	}
	return list
}
