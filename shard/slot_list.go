package shard

import (
	"math/bits"
	"slices"
	"strconv"

	"github.com/signalbox-dev/signalbox/protocol"
)

// slotList is the slots of a semaphore. Those that leave stand behind all others.
//
// Invariant: a slot has an owner if and only if its index is among the slots of that owner's place;
// one that leaves has an owner.
type slotList struct {
	numbered bool
	list     []namedSlot
}

type namedSlot struct {
	name    string
	labels  []string
	drained bool   // it is not granted
	leaving bool   // it goes when it is given back
	token   uint64 // of its last grant; 0: none
	owner   *entry // nil: it is free
}

// slotSet is a set of indexes; nil is the set of all.
type slotSet []uint64

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

// countIn is how many of t are in the other set.
func (t slotSet) countIn(o slotSet) (n int) {
	for i, w := range t {
		if o != nil {
			w &= o[i]
		}
		n += bits.OnesCount64(w)
	}
	return n
}

// remove takes the other set out of t.
func (t slotSet) remove(o slotSet) {
	for i := range t {
		if o == nil {
			t[i] = 0
		} else {
			t[i] &^= o[i]
		}
	}
}

// lowest are the lowest so many of t that are in the other set.
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

func newSlotSet(n int) slotSet { return make(slotSet, (n+63)/64) }

// set makes the list that options name.
func (t *slotList) set(o *protocol.SemaphoreOptions, limit uint64) {
	t.numbered, t.list = o.Numbered, nil
	for _, x := range slotConfigs(o, limit) {
		t.list = append(t.list, namedSlot{name: x.Name, labels: slices.Clone(x.Labels)})
	}
}

// slotConfigs are the slots of options, numbered ones included.
func slotConfigs(o *protocol.SemaphoreOptions, limit uint64) []protocol.Slot {
	if !o.Numbered {
		return o.Slots
	}
	list := make([]protocol.Slot, limit)
	for i := range list {
		list[i].Name = strconv.Itoa(i)
	}
	return list
}

// configs are the slots that stay, as clients see them.
func (t *slotList) configs() (list []protocol.Slot) {
	for i := range t.list {
		if x := &t.list[i]; !x.leaving {
			list = append(list, protocol.Slot{Name: x.name, Labels: x.labels})
		}
	}
	return list
}

func (t *slotList) find(name string) int {
	return slices.IndexFunc(t.list, func(x namedSlot) bool { return x.name == name })
}

func (t *slotList) names(indexes []uint32) (names []string) {
	for _, i := range indexes {
		names = append(names, t.list[i].name)
	}
	return names
}

// admits reports whether a slot is one of a selector.
func (x *namedSlot) admits(labels, names []string) bool {
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

// admitted are the slots of a selector, those that leave aside; nil: all, and none where there are
// no slots.
func (t *slotList) admitted(selector string) slotSet {
	if len(t.list) == 0 {
		return nil
	}
	labels, names := selected(selector)
	set := newSlotSet(len(t.list))
	for i := range t.list {
		if x := &t.list[i]; !x.leaving && x.admits(labels, names) {
			set.add(i)
		}
	}
	return set
}

// available are the slots that can be granted.
func (t *slotList) available() slotSet {
	set := newSlotSet(len(t.list))
	for i := range t.list {
		if x := &t.list[i]; x.owner == nil && !x.drained && !x.leaving {
			set.add(i)
		}
	}
	return set
}

// take gives slots to an owner; free takes some of an owner's slots back. Of a slot that leaves
// nothing stays, so the indexes behind it go down by one.
func (t *slotList) take(e *entry, indexes []uint32) {
	for _, i := range indexes {
		t.list[i].owner, t.list[i].token = e, e.orderID
	}
}

// restore links an owner to its slots, whose tokens are known.
func (t *slotList) restore(e *entry, indexes []uint32) {
	for _, i := range indexes {
		t.list[i].owner = e
	}
}

// leavingHeld reports whether all slots that leave have owners.
func (t *slotList) leavingHeld() bool {
	return !slices.ContainsFunc(t.list, func(x namedSlot) bool { return x.leaving && x.owner == nil })
}

func (t *slotList) free(m *Machine, indexes []uint32, places map[*entry]*place) {
	for k := len(indexes) - 1; k >= 0; k-- {
		i := int(indexes[k])
		if t.list[i].owner = nil; !t.list[i].leaving {
			continue
		}
		for j := i + 1; j < len(t.list); j++ {
			m.touch(t.list[j].owner)
			own := places[t.list[j].owner].slots
			own[slices.Index(own, uint32(j))]--
		}
		t.list = slices.Delete(t.list, i, i+1)
	}
}

// infos describe the slots.
func (t *slotList) infos() (list []protocol.SlotInfo) {
	for i := range t.list {
		x := &t.list[i]
		info := protocol.SlotInfo{Name: x.name, Labels: x.labels, State: x.state(), Token: x.token}
		if x.owner != nil {
			info.Session, info.Since = x.owner.session.id, x.owner.since
		}
		list = append(list, info)
	}
	return list
}

func (x *namedSlot) state() protocol.SlotState {
	switch {
	case x.leaving:
		return protocol.SlotLeaving
	case x.drained && x.owner != nil:
		return protocol.SlotDraining
	case x.drained:
		return protocol.SlotDrained
	case x.owner != nil:
		return protocol.SlotHeld
	}
	return protocol.SlotFree
}
