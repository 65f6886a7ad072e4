package queue

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// naiveChoice is a choice over maps of slots: owners are taken and dropped in the words of the
// rule, and whether a waiter fits is counted again each time.
type naiveChoice struct {
	*choice
	claimed map[int]bool
}

func (n *naiveChoice) fits(h choiceHead, without []choiceOwner) bool {
	used, free := n.used, map[int]bool{}
	for i := range len(n.usable) * 64 {
		free[i] = n.free.has(i)
	}
	for _, o := range without {
		used -= o.count
		for _, i := range o.slots {
			free[int(i)] = n.usable.has(int(i))
		}
	}
	if h.count > n.limit || used > n.limit-h.count {
		return false
	}
	slots := uint64(0)
	for i, ok := range free {
		if ok && h.admits.has(i) && !n.claimed[i] {
			slots++
		}
	}
	return !n.slots || slots >= h.count
}

func (n *naiveChoice) candidates(h choiceHead) (list []choiceOwner) {
	for _, o := range n.owners {
		if !n.higher || o.level < h.level {
			list = append(list, o)
		}
	}
	var sorted []choiceOwner
	for len(list) > 0 { // the best of those that are left comes next
		best := 0
		for i, o := range list {
			b := list[best]
			switch {
			case o.silent != b.silent:
				if b.silent {
					best = i
				}
			case o.preempted != b.preempted:
				if o.preempted {
					best = i
				}
			case n.higher && o.level != b.level:
				if o.level < b.level {
					best = i
				}
			case o.token > b.token:
				best = i
			}
		}
		sorted, list = append(sorted, list[best]), slices.Delete(list, best, best+1)
	}
	return sorted
}

func (n *naiveChoice) choose() (head int, tokens []uint64) {
	n.claimed = map[int]bool{}
	for i, h := range n.heads {
		list := n.candidates(h)
		if i == 16 {
			break
		}
		if n.fits(h, list) {
			var taken []choiceOwner
			for !n.fits(h, taken) {
				taken = append(taken, list[len(taken)])
			}
			for k := len(taken) - 1; k >= 0; k-- {
				if less := slices.Delete(slices.Clone(taken), k, k+1); n.fits(h, less) {
					taken = less
				}
			}
			for _, o := range taken {
				tokens = append(tokens, o.token)
			}
			return i, tokens
		}
		if h.admits == nil {
			break
		}
		for k := range len(n.usable) * 64 {
			n.claimed[k] = n.claimed[k] || h.admits.has(k)
		}
	}
	return -1, nil
}

// anySubsetFits reports whether a waiter fits without some of its candidates, by trying all sets.
func (n *naiveChoice) anySubsetFits(h choiceHead, but int) bool {
	list := n.candidates(h)
	for set := range 1 << len(list) {
		var without []choiceOwner
		for i, o := range list {
			if set>>i&1 != 0 {
				without = append(without, o)
			}
		}
		if len(without) != but && n.fits(h, without) {
			return true
		}
	}
	return false
}

// randomChoice has a few owners and waiters, of units or of slots. Some slots are drained, and with
// them a waiter may lack slots although units are free.
func randomChoice(r *rand.Rand, slots bool) *choice {
	c := &choice{higher: r.IntN(2) == 0, slots: slots, limit: 1 + r.Uint64N(9)}
	left := c.limit
	free := []int{}
	if slots {
		c.free, c.usable = newSlotSet(int(c.limit)), newSlotSet(int(c.limit))
		for i := range c.limit {
			if r.IntN(5) > 0 {
				c.usable.add(int(i))
			}
			free = append(free, int(i))
		}
		r.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
	}
	for token := uint64(1); left > 0 && r.IntN(8) > 0 && token < 7; token++ {
		o := choiceOwner{token: token * 3, count: 1 + r.Uint64N(min(left, 4)), level: uint8(r.IntN(4)),
			preempted: r.IntN(3) == 0, silent: r.IntN(4) == 0}
		for range o.count {
			if slots {
				o.slots, free = append(o.slots, uint32(free[0])), free[1:]
			}
		}
		left -= o.count
		c.used += o.count
		c.owners = append(c.owners, o)
	}
	for _, i := range free {
		if c.usable.has(i) {
			c.free.add(i)
		}
	}
	if r.IntN(8) == 0 && c.limit > 1 && !slots {
		c.limit-- // it was lowered
	}
	heads := 1
	if slots {
		heads = 1 + r.IntN(20)
	}
	for range heads {
		h := choiceHead{count: 1 + r.Uint64N(c.limit+1), level: uint8(r.IntN(5))}
		if slots && r.IntN(5) > 0 {
			h.admits = newSlotSet(int(c.limit))
			for i := range int(c.limit) {
				if r.IntN(3) == 0 {
					h.admits.add(i)
				}
			}
		}
		c.heads = append(c.heads, h)
	}
	return c
}

func TestPreemptedOwnersAreChosen(t *testing.T) {
	seen := map[string]int{}
	count := func(rule string, is bool) {
		if is {
			seen[rule]++
		}
	}
	for seed := range uint64(6000) {
		r := rand.New(rand.NewPCG(seed, 1))
		c := randomChoice(r, seed%2 == 0)
		n := &naiveChoice{choice: c}
		head, tokens := n.choose()
		got, chosen := c.choose()
		var theirs []uint64
		for _, i := range chosen {
			theirs = append(theirs, c.owners[i].token)
		}
		if got != head || !slices.Equal(theirs, tokens) {
			t.Fatalf("seed %d: waiter %d, owners %d, want %d and %d\n%+v", seed, got, theirs, head, tokens, c)
		}
		count("nobody is preempted", head < 0)
		count("somebody is preempted", head >= 0)
		count("the first waiter cannot be served", head > 0)
		count("several are preempted", len(tokens) > 1)
		// What was passed by could not be served by any set of owners; what was chosen is needed.
		n.claimed = map[int]bool{}
		for i, h := range c.heads[:min(len(c.heads), 16)] {
			fits := n.anySubsetFits(h, -1)
			if fits != (i == head) {
				t.Fatalf("seed %d: waiter %d can be served: %v\n%+v", seed, i, fits, c)
			}
			if fits || h.admits == nil {
				break
			}
			for k := range len(c.usable) * 64 {
				n.claimed[k] = n.claimed[k] || h.admits.has(k)
			}
		}
		for k := range chosen {
			var less []choiceOwner
			for j, i := range chosen {
				if j != k {
					less = append(less, c.owners[i])
				}
			}
			if n.fits(c.heads[head], less) {
				t.Fatalf("seed %d: owner %d is preempted and not needed\n%+v", seed, tokens[k], c)
			}
			count("a silent one is preempted", c.owners[chosen[k]].silent)
			count("one is preempted again", c.owners[chosen[k]].preempted)
		}
	}
	for _, rule := range []string{"nobody is preempted", "somebody is preempted", "the first waiter cannot be served",
		"several are preempted", "a silent one is preempted", "one is preempted again"} {
		if seen[rule] == 0 {
			t.Errorf("%s: never", rule)
		}
	}
}

// BenchmarkPreempt chooses among 4,096 owners of a unit each, and among 1,024 of a slot each for
// the last of 16 waiters.
func BenchmarkPreempt(b *testing.B) {
	units := &choice{higher: true, limit: 4096, used: 4096, heads: []choiceHead{{count: 64, level: 9}}}
	for i := range uint64(4096) {
		units.owners = append(units.owners, choiceOwner{token: i + 1, count: 1, level: uint8(i * 31 % 9)})
	}
	slots := &choice{slots: true, limit: 1024, used: 1024, free: newSlotSet(1024), usable: newSlotSet(1024)}
	for i := range 1024 {
		slots.usable.add(i)
		slots.owners = append(slots.owners, choiceOwner{token: uint64(i + 1), count: 1, slots: []uint32{uint32(i)}})
	}
	for i := range 16 {
		h := choiceHead{count: 64, admits: newSlotSet(1024)}
		if i < 15 {
			h.admits.add(i) // too few for it
		} else {
			for k := range 1024 {
				h.admits.add(k)
			}
		}
		slots.heads = append(slots.heads, h)
	}
	for _, x := range []struct {
		name string
		c    *choice
		n    int
	}{{"units", units, 0}, {"slots", slots, 15}} {
		b.Run(x.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if head, chosen := x.c.choose(); head != x.n || len(chosen) != 64 {
					b.Fatal(head, len(chosen))
				}
			}
		})
	}
}
