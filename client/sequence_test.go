package client

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSequenceNumbers compares the numbers with a plain set of them.
func TestSequenceNumbers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, most := range []int{1, 3, 64, 65, 300} {
		var n seqAllocator
		n.reset(1 << 40)
		open := map[uint64]bool{}
		for range 5_000 {
			if len(open) < most && rng.IntN(2) == 0 {
				open[n.take()] = true
			} else if list := slices.Sorted(maps.Keys(open)); len(list) > 0 {
				seq := list[rng.IntN(len(list))]
				n.done(seq)
				n.done(seq) // again changes nothing
				delete(open, seq)
			}
			low := n.next
			for seq := range open {
				low = min(low, seq)
			}
			if n.low != low {
				t.Fatalf("low is %d, want %d of %d open numbers, next %d", n.low, low, len(open), n.next)
			}
		}
	}
}

// TestCallRing compares the table of calls with a map.
func TestCallRing(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	c := newCallRing()
	want := map[uint64]*call{}
	last := uint64(0)
	for i := range 8_000 {
		most := 10 + i%500
		list := slices.Sorted(maps.Keys(want))
		switch {
		case len(want) < most && rng.IntN(2) == 0:
			id := c.nextID()
			if id <= last {
				t.Fatalf("id %d after %d", id, last)
			}
			last = id
			want[id] = &call{}
			c.put(id, want[id])
		case len(list) > 0:
			id := list[rng.IntN(min(len(list), 1+rng.IntN(len(list))))]
			if rng.IntN(5) == 0 {
				if got := c.abandon(id); got != want[id] {
					t.Fatalf("abandoned %d gives another call", id)
				}
				want[id] = nil
				continue
			}
			if got := c.take(id); got != want[id] {
				t.Fatalf("answered %d gives another call", id)
			}
			delete(want, id)
			if c.take(id) != nil || c.find(id) != nil {
				t.Fatalf("%d was answered twice", id)
			}
		}
		if c.pending != len(want) {
			t.Fatalf("%d are open, want %d", c.pending, len(want))
		}
	}
	seen := 0
	c.each(func(id uint64, cl *call) {
		if seen++; want[id] != cl {
			t.Fatal("another call")
		}
	})
	for id, cl := range want {
		if cl == nil {
			continue
		}
		seen--
		if c.find(id) == nil {
			t.Fatalf("%d is not found", id)
		}
	}
	if seen != 0 {
		t.Fatal("not all are visited")
	}
}
