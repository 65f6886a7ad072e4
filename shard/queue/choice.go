package queue

import (
	"math/bits"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// maxChoiceHeads is how many of the waiters that did not fit are looked at for one whom owners can
// serve.
const maxChoiceHeads = 16

// choice decides which owners are preempted: those that a waiter needs units back from. It knows
// numbers only, and its slices are used again.
type choice struct {
	higher      bool // only owners of a level below the waiter's are candidates
	slots       bool
	limit, used uint64
	free        slotSet // that can be granted now
	usable      slotSet // that can be granted when they are free
	heads       []choiceHead
	owners      []choiceOwner // by token, the lowest first

	claimed      slotSet
	order, taken []int
}

// choiceHead is a waiter that did not fit.
type choiceHead struct {
	count   uint64
	level   uint8
	admits  slotSet
	session uint64
}

// choiceOwner is an owner.
type choiceOwner struct {
	token, count      uint64
	level             uint8
	preempted, silent bool
	slots             []uint32
	chosen            bool
}

// choiceGroups is how many groups of candidates there are, see group.
const choiceGroups = 4 * (protocol.MaxPriority + 1)

// group orders candidates: silent ones last, those that are preempted already first, then a lower
// level where levels count. Within a group the higher token comes first.
func (c *choice) group(o *choiceOwner) (g int) {
	if o.silent {
		g = 2
	}
	if !o.preempted {
		g++
	}
	if g *= protocol.MaxPriority + 1; c.higher {
		g += int(o.level)
	}
	return g
}

// inOrder are indexes of the owners in the order in which they are taken. Nothing is sorted, as the
// owners are in order of token.
func (c *choice) inOrder() []int {
	var start [choiceGroups + 1]int
	for i := range c.owners {
		start[c.group(&c.owners[i])+1]++
	}
	for g := range choiceGroups {
		start[g+1] += start[g]
	}
	c.order = slices.Grow(c.order[:0], len(c.owners))[:len(c.owners)]
	for i := len(c.owners) - 1; i >= 0; i-- {
		g := c.group(&c.owners[i])
		c.order[start[g]] = i
		start[g]++
	}
	return c.order
}

// choose finds the first waiter, in the order of the policy, that fits if the candidates return
// their units, on slots that no waiter before it claimed. head is its index, or -1. chosen are
// indexes of owners: without those the waiter fits, and without any fewer of them it does not.
func (c *choice) choose() (head int, chosen []int) {
	c.claimed = c.claimed[:0]
	if c.slots {
		c.claimed = append(c.claimed, make(slotSet, len(c.usable))...)
	}
	for i := range c.heads[:min(len(c.heads), maxChoiceHeads)] {
		h := &c.heads[i]
		if c.allGive(h) {
			return i, c.take(h)
		}
		if h.admits == nil {
			break // it claims everything
		}
		for k := range c.claimed {
			c.claimed[k] |= h.admits[k]
		}
	}
	return -1, nil
}

// balance compares a waiter's missing units and slots with those available to it.
type balance struct {
	lacks, given uint64 // units
	needs, slots uint64 // slots that it can use
}

func (b balance) fits() bool { return b.given >= b.lacks && b.slots >= b.needs }

// balanceOf returns a waiter's balance before any owner returns units.
func (c *choice) balanceOf(h *choiceHead) (b balance) {
	if c.used+h.count > c.limit {
		b.lacks = c.used + h.count - c.limit
	}
	if c.slots {
		b.needs = h.count
		for k, w := range c.free {
			if w &^= c.claimed[k]; h.admits != nil {
				w &= h.admits[k]
			}
			b.slots += uint64(bits.OnesCount64(w))
		}
	}
	return b
}

// with returns the balance if an owner returned its units and slots.
func (c *choice) with(b balance, h *choiceHead, o *choiceOwner) balance {
	b.given += o.count
	b.slots += c.usableBy(h, o)
	return b
}

func (c *choice) without(b balance, h *choiceHead, o *choiceOwner) balance {
	b.given -= o.count
	b.slots -= c.usableBy(h, o)
	return b
}

// usableBy is how many of an owner's slots the waiter could use.
func (c *choice) usableBy(h *choiceHead, o *choiceOwner) (n uint64) {
	for _, i := range o.slots {
		if k := int(i); c.usable.has(k) && h.admits.has(k) && !c.claimed.has(k) {
			n++
		}
	}
	return n
}

func (c *choice) isCandidate(h *choiceHead, o *choiceOwner) bool {
	return !c.higher || o.level < h.level
}

// allGive reports whether the waiter would fit if all candidates returned their units and slots.
func (c *choice) allGive(h *choiceHead) bool {
	if h.count > c.limit {
		return false
	}
	b := c.balanceOf(h)
	for i := range c.owners {
		if o := &c.owners[i]; c.isCandidate(h, o) {
			b = c.with(b, h, o)
		}
	}
	return b.fits()
}

// take takes candidates until the waiter would fit, and then drops, from the last one on, those
// without which it still would.
func (c *choice) take(h *choiceHead) []int {
	b := c.balanceOf(h)
	c.taken = c.taken[:0]
	for _, i := range c.inOrder() {
		if b.fits() {
			break
		}
		if o := &c.owners[i]; c.isCandidate(h, o) {
			b = c.with(b, h, o)
			c.taken = append(c.taken, i)
		}
	}
	for k := len(c.taken) - 1; k >= 0; k-- {
		if less := c.without(b, h, &c.owners[c.taken[k]]); less.fits() {
			b, c.taken = less, slices.Delete(c.taken, k, k+1)
		}
	}
	return c.taken
}
