package container

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

type ordered struct{ key uint64 }

func orderedLess(a, b *ordered) bool { return a.key < b.key }

func TestIndexIsASortedSlice(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		var x Index[*ordered]
		var want []*ordered
		grow := 0.9
		for i := range 6000 {
			if i%1500 == 1499 {
				grow = r.Float64() // so that it shrinks now and then
			}
			if r.Float64() < grow {
				v := &ordered{r.Uint64N(20_000)}
				if seed%3 == 0 {
					v.key = uint64(i) // mostly at the end, as session ids are
				}
				at, found := slices.BinarySearchFunc(want, v,
					func(a, b *ordered) int { return cmp.Compare(a.key, b.key) })
				if found {
					continue
				}
				x.Insert(v, orderedLess)
				want = slices.Insert(want, at, v)
			} else if len(want) > 0 {
				at := r.IntN(len(want))
				if !x.Remove(want[at], orderedLess) {
					t.Fatalf("seed %d: %d is not found", seed, want[at].key)
				}
				if x.Remove(want[at], orderedLess) {
					t.Fatalf("seed %d: %d is found twice", seed, want[at].key)
				}
				want = slices.Delete(want, at, at+1)
			}
			if i%50 != 0 {
				continue
			}
			from := r.Uint64N(20_000)
			var all, part []*ordered
			x.All(func(v *ordered) bool { all = append(all, v); return true })
			x.Ascend(func(v *ordered) bool { return v.key < from },
				func(v *ordered) bool { part = append(part, v); return len(part) < 300 })
			at, _ := slices.BinarySearchFunc(want, from,
				func(a *ordered, k uint64) int { return cmp.Compare(a.key, k) })
			wantPart := want[at:min(len(want), at+300)]
			if !slices.Equal(all, want) || x.Len() != len(want) || !slices.Equal(part, wantPart) {
				t.Fatalf("seed %d, step %d: %d of %d, %d of %d from %d", seed,
					i, len(all), len(want), len(part), len(wantPart), from)
			}
			if first := x.First(); len(want) > 0 && first != want[0] || len(want) == 0 && first != nil {
				t.Fatalf("seed %d: first is %v", seed, first)
			}
		}
	}
}
