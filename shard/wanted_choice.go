package shard

import (
	"math/bits"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// maxWantHeads is how many of the waiters that did not fit are looked at for one whom owners can
// serve.
const maxWantHeads = 16

// wantChoice decides which owners are wanted: those that a waiter needs back. It knows numbers only,
// and its slices are used again.
type wantChoice struct {
	higher      bool // only owners of a level below the waiter's are candidates
	slots       bool
	limit, used uint64
	free        slotSet // that can be granted now
	usable      slotSet // that can be granted when they are free
	heads       []wantHead
	owners      []wantOwner // by token, the lowest first

	claimed      slotSet
	order, taken []int
}

// wantHead is a waiter that did not fit.
type wantHead struct {
	count  uint64
	level  uint8
	admits slotSet
	entry  *entry
}

// wantOwner is an owner.
type wantOwner struct {
	token, count   uint64
	level          uint8
	wanted, silent bool
	slots          []uint32
	entry          *entry
	chosen         bool
}

// wantGroups is how many groups of candidates there are, see group.
const wantGroups = 4 * (protocol.MaxPriority + 1)

// group orders candidates: silent ones last, already wanted ones first, then a lower level where
// levels count. Within a group the higher token comes first.
func (c *wantChoice) group(o *wantOwner) (g int) {
	if o.silent {
		g = 2
	}
	if !o.wanted {
		g++
	}
	if g *= protocol.MaxPriority + 1; c.higher {
		g += int(o.level)
	}
	return g
}

// inOrder are indexes of the owners in the order in which they are taken. Nothing is sorted, as the
// owners are in order of token.
func (c *wantChoice) inOrder() []int {
	var start [wantGroups + 1]int
	for i := range c.owners {
		start[c.group(&c.owners[i])+1]++
	}
	for g := range wantGroups {
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

// choose finds the first waiter, in the order of the policy, whom the candidates are enough for, on
// slots that no waiter before it claimed. head is its index, -1 if there is none. chosen are indexes
// of owners: without those the waiter fits, and without any fewer of them it does not.
func (c *wantChoice) choose() (head int, chosen []int) {
	c.claimed = c.claimed[:0]
	if c.slots {
		c.claimed = append(c.claimed, make(slotSet, len(c.usable))...)
	}
	for i := range c.heads[:min(len(c.heads), maxWantHeads)] {
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

// wantBalance is what a waiter still lacks to fit, and what there is for it.
type wantBalance struct {
	lacks, given uint64 // units
	needs, slots uint64 // slots that it can use
}

func (b wantBalance) fits() bool { return b.given >= b.lacks && b.slots >= b.needs }

// balance is that of a waiter for which nobody has given anything back.
func (c *wantChoice) balance(h *wantHead) (b wantBalance) {
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

// with is the balance if an owner gave back what it has.
func (c *wantChoice) with(b wantBalance, h *wantHead, o *wantOwner) wantBalance {
	b.given += o.count
	b.slots += c.usableBy(h, o)
	return b
}

func (c *wantChoice) without(b wantBalance, h *wantHead, o *wantOwner) wantBalance {
	b.given -= o.count
	b.slots -= c.usableBy(h, o)
	return b
}

// usableBy is how many of an owner's slots the waiter could use.
func (c *wantChoice) usableBy(h *wantHead, o *wantOwner) (n uint64) {
	for _, i := range o.slots {
		if k := int(i); c.usable.has(k) && h.admits.has(k) && !c.claimed.has(k) {
			n++
		}
	}
	return n
}

func (c *wantChoice) isCandidate(h *wantHead, o *wantOwner) bool {
	return !c.higher || o.level < h.level
}

// allGive reports whether the waiter would fit if all candidates gave back what they have.
func (c *wantChoice) allGive(h *wantHead) bool {
	if h.count > c.limit {
		return false
	}
	b := c.balance(h)
	for i := range c.owners {
		if o := &c.owners[i]; c.isCandidate(h, o) {
			b = c.with(b, h, o)
		}
	}
	return b.fits()
}

// take takes candidates until the waiter would fit, and then drops, from the last one on, those
// without which it still would.
func (c *wantChoice) take(h *wantHead) []int {
	b := c.balance(h)
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
