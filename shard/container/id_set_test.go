package container

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

type item struct{ id uint64 }

func (t *item) Key() uint64 { return t.id }

// TestIDSetAgainstMap does to a set and a table what is done to a map.
func TestIDSetAgainstMap(t *testing.T) {
	for _, ids := range []struct {
		name string
		id   func(rng *rand.Rand) uint64
	}{
		{"few", func(rng *rand.Rand) uint64 { return rng.Uint64N(40) }},
		{"in a row", func(rng *rand.Rand) uint64 { return 1<<48 + rng.Uint64N(3000) }},
		{"by bucket", func(rng *rand.Rand) uint64 { return rng.Uint64N(4096)<<40 | rng.Uint64N(3) }},
		{"any", func(rng *rand.Rand) uint64 { return rng.Uint64() >> (rng.Uint64N(4) * 16) }},
	} {
		t.Run(ids.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			var set IDSet[item, *item]
			var table IDTable[item, *item]
			want := map[uint64]*item{}
			known := []uint64{0, 1<<64 - 1}
			for step := range 60_000 {
				id := ids.id(rng)
				if rng.IntN(2) == 0 {
					id = known[rng.IntN(len(known))]
				}
				switch growing := step/10_000%2 == 0; {
				case growing && rng.IntN(3) > 0 || !growing && rng.IntN(3) == 0:
					x := &item{id}
					if old := set.Put(x); old != want[id] {
						t.Fatalf("step %d: the set replaced another", step)
					}
					if old := table.Put(x); old != want[id] {
						t.Fatalf("step %d: the table replaced another", step)
					}
					want[id] = x
					known = append(known, id)
				default:
					if old := set.Remove(id); old != want[id] {
						t.Fatalf("step %d: the set removed another", step)
					}
					if old := table.Remove(id); old != want[id] {
						t.Fatalf("step %d: the table removed another", step)
					}
					delete(want, id)
				}
				if set.Get(id) != want[id] || table.Get(id) != want[id] ||
					set.Len() != len(want) || table.Len() != len(want) {
					t.Fatalf("step %d: %d and %d, want %d", step, set.Len(), table.Len(), len(want))
				}
				if step%5000 == 0 {
					same(t, want, slices.Collect(set.All()))
					same(t, want, slices.Collect(table.All()))
				}
			}
		})
	}
}

func same(t *testing.T, want map[uint64]*item, got []*item) {
	t.Helper()
	found := map[uint64]*item{}
	for _, x := range got {
		found[x.id] = x
	}
	if len(got) != len(want) || !maps.Equal(found, want) {
		t.Fatalf("visits %d, want %d", len(got), len(want))
	}
}

// TestSpread: ids as they occur lie near their homes.
func TestSpread(t *testing.T) {
	for name, id := range map[string]func(i uint64) uint64{
		"in a row":        func(i uint64) uint64 { return i },
		"by bucket":       func(i uint64) uint64 { return i%4096<<40 | i/4096 },
		"of every fourth": func(i uint64) uint64 { return i%1024*4<<40 | i/1024 },
	} {
		var table IDTable[item, *item]
		const n = 200_000
		for i := range uint64(n) {
			table.Put(&item{id(i)})
		}
		most, far, places := 0, 0, 0
		for i := range table.set.partitions {
			s := &table.set.partitions[i]
			most, places = max(most, s.n), places+len(s.tags)
			for at, tag := range s.tags {
				if tag != 0 {
					far += (at - s.homeSlot(tag) + len(s.tags)) % len(s.tags)
				}
			}
		}
		if most > n/partitions*13/10 || far > 4*n || places*7 > n*14 {
			t.Errorf("%s: the largest part has %d of %d, the way is %.1f, %.2f places each",
				name, most, n, float64(far)/n, float64(places)/n)
		}
	}
}

func BenchmarkIDTableGet(b *testing.B) {
	var table IDTable[item, *item]
	const n = 250_000
	for i := range uint64(n) {
		table.Put(&item{i%1024*4<<40 | i/1024})
	}
	for i := range b.N {
		k := uint64(i*7919) % n
		if table.Get(k%1024*4<<40|k/1024) == nil {
			b.Fatal("lost")
		}
	}
}
