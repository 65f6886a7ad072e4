package shard

import (
	"math/rand/v2"
	"testing"
)

// TestDroppedNodes: ids of dropped nodes are found again, and those of neighbours take one range.
func TestDroppedNodes(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 6))
		var x nodeTable
		is := map[uint64]bool{}
		for range 400 {
			id := 1 + r.Uint64N(300)
			if x.addDropped(id) == is[id] {
				t.Fatalf("seed %d: id %d was dropped: %v", seed, id, is[id])
			}
			is[id] = true
		}
		ranges := 0
		for id := range uint64(302) {
			if x.isDropped(id) != is[id] {
				t.Fatalf("seed %d: id %d: dropped %v, want %v", seed, id, x.isDropped(id), is[id])
			}
			if is[id] && !is[id-1] {
				ranges++
			}
		}
		if len(x.dropped) != ranges {
			t.Fatalf("seed %d: %d ranges, want %d: %v", seed, len(x.dropped), ranges, x.dropped)
		}
	}
}
