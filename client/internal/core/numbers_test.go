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

// TestRing compares the ring with a map: an id whose caller has given up stays open until it is
// answered, however many are begun meanwhile, and no other request gets its place.
func TestRing(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 0))
		var r ring[int]
		open, order := map[uint64]*int{}, []uint64{}
		most := 1 + random.IntN(40)
		for step := range 400 {
			switch at := random.IntN(max(len(order), 1)); {
			case len(order) < most && random.IntN(2) == 0:
				id := r.NextID()
				if _, is := open[id]; is || id != r.NextID() || id <= r.Last() {
					t.Fatalf("seed %d, step %d: the next id is %d after %d; open: %v", seed, step, id, r.Last(), order)
				}
				open[id] = new(int)
				r.Put(id, open[id])
				order = append(order, id)
			case len(order) == 0:
			case random.IntN(3) == 0:
				if of := r.Abandon(order[at]); of != open[order[at]] {
					t.Fatalf("seed %d, step %d: under id %d waits %p, want %p", seed, step, order[at], of, open[order[at]])
				}
				open[order[at]] = nil
			default:
				if at = min(at, random.IntN(len(order))); r.Take(order[at]) != open[order[at]] || r.Take(order[at]) != nil {
					t.Fatalf("seed %d, step %d: the answer of id %d has another taker", seed, step, order[at])
				}
				delete(open, order[at])
				order = append(order[:at], order[at+1:]...)
			}
			if r.Open() != len(order) {
				t.Fatalf("seed %d, step %d: %d ids are open, want %d", seed, step, r.Open(), len(order))
			}
			for _, id := range order {
				if r.Find(id) != open[id] {
					t.Fatalf("seed %d, step %d: id %d is not found", seed, step, id)
				}
			}
			waiting := 0
			r.Each(func(id uint64, of *int) {
				if waiting++; open[id] != of {
					t.Fatalf("seed %d, step %d: id %d is visited with another request", seed, step, id)
				}
			})
			for _, of := range open {
				if of != nil {
					waiting--
				}
			}
			if waiting != 0 {
				t.Fatalf("seed %d, step %d: %d too many are visited", seed, step, waiting)
			}
		}
	}
}
