package container

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

type heapItem struct {
	id, key uint64
	place   int32
}

func (x *heapItem) Position() *int32        { return &x.place }
func (x *heapItem) Before(o *heapItem) bool { return x.id < o.id }

// TestHeapSorts: items leave in order of key and id, whatever was added, changed and removed before.
func TestHeapSorts(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 5))
		var h Heap[*heapItem]
		all := make([]*heapItem, 300)
		for i := range all {
			all[i] = &heapItem{id: uint64(i)}
		}
		for range 3_000 {
			x := all[r.IntN(len(all))]
			if r.IntN(3) == 0 {
				h.Remove(x)
			} else {
				x.key = r.Uint64N(20)
				h.Set(x, x.key)
			}
		}
		if err := h.Check(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		want := slices.DeleteFunc(slices.Clone(all), func(x *heapItem) bool { return x.place == 0 })
		slices.SortFunc(want, func(a, b *heapItem) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.id, b.id)) })
		for i, x := range want {
			if got := h.Pop(); got.Item != x || got.Key != x.key || x.place != 0 {
				t.Fatalf("seed %d: item %d is %d, want %d", seed, i, got.Item.id, x.id)
			}
		}
		if h.Len() != 0 || h.First().Item != nil {
			t.Fatalf("seed %d: %d items are left", seed, h.Len())
		}
	}
}
