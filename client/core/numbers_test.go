package core

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
		var n numbers
		n.Reset(1 << 40)
		open := map[uint64]bool{}
		for range 5_000 {
			if len(open) < most && rng.IntN(2) == 0 {
				open[n.Take()] = true
			} else if list := slices.Sorted(maps.Keys(open)); len(list) > 0 {
				seq := list[rng.IntN(len(list))]
				n.Close(seq)
				n.Close(seq) // again changes nothing
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

// TestRing compares the ring with a map.
func TestRing(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var c ring[Request]
	want := map[uint64]*Request{}
	last := uint64(0)
	for i := range 8_000 {
		most := 10 + i%500
		list := slices.Sorted(maps.Keys(want))
		switch {
		case len(want) < most && rng.IntN(2) == 0:
			id := c.NextID()
			if id <= last {
				t.Fatalf("id %d after %d", id, last)
			}
			last = id
			want[id] = &Request{}
			c.Put(id, want[id])
		case len(list) > 0:
			id := list[rng.IntN(min(len(list), 1+rng.IntN(len(list))))]
			if rng.IntN(5) == 0 {
				if got := c.Abandon(id); got != want[id] {
					t.Fatalf("abandoned %d gives another request", id)
				}
				want[id] = nil
				continue
			}
			if got := c.Take(id); got != want[id] {
				t.Fatalf("answered %d gives another request", id)
			}
			delete(want, id)
			if c.Take(id) != nil || c.Find(id) != nil {
				t.Fatalf("%d was answered twice", id)
			}
		}
		if c.Open() != len(want) {
			t.Fatalf("%d are open, want %d", c.Open(), len(want))
		}
	}
	seen := 0
	c.Each(func(id uint64, cl *Request) {
		if seen++; want[id] != cl {
			t.Fatal("another request")
		}
	})
	for id, cl := range want {
		if cl == nil {
			continue
		}
		seen--
		if c.Find(id) == nil {
			t.Fatalf("%d is not found", id)
		}
	}
	if seen != 0 {
		t.Fatal("not all are visited")
	}
}
