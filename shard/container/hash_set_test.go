package container

import (
	"math/rand/v2"
	"testing"

	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

type hashed struct{ hash, id uint64 }

// TestHashSetIsAMap does to a set what is done to a map, also with hashes that many records share.
func TestHashSetIsAMap(t *testing.T) {
	for _, c := range []struct {
		name string
		hash func(id uint64) uint64
	}{
		{"spread", HashID},
		{"in a row", func(id uint64) uint64 { return id << 32 }},
		{"few hashes", func(id uint64) uint64 { return Mix(id % 5) }},
		{"at the end", func(id uint64) uint64 { return 1<<64 - 1 - id%3<<32 }},
		{"none", func(uint64) uint64 { return 0 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(3, 4))
			var set HashSet[hashed]
			var parts PartitionedSet[hashed]
			want := map[uint64]*hashed{}
			for step := range 20_000 {
				id := r.Uint64N(600)
				x := &hashed{c.hash(id), id}
				is := func(o *hashed) bool { return o.id == id }
				have := want[id]
				if got := set.Get(x.hash, is); got != have {
					t.Fatalf("step %d: the set has %v for %d, want %v", step, got, id, have)
				}
				if got := parts.Of(x.hash).Get(x.hash, is); got != have {
					t.Fatalf("step %d: the partitions have %v for %d, want %v", step, got, id, have)
				}
				switch growing := step/4_000%2 == 0; {
				case have == nil && (growing || r.IntN(4) == 0):
					set.Add(x.hash, x)
					parts.Of(x.hash).Add(x.hash, x)
					want[id] = x
				case have == nil:
					set.Remove(x.hash, x) // it is not there
				case !growing || r.IntN(4) == 0:
					set.Remove(have.hash, have)
					parts.Of(x.hash).Remove(have.hash, have)
					delete(want, id)
				}
				if set.n != len(want) || parts.Len() != len(want) {
					t.Fatalf("step %d: %d and %d records, want %d", step, set.n, parts.Len(), len(want))
				}
				if step%500 == 0 {
					n := 0
					for o := range set.All() {
						n++
						if want[o.id] != o {
							t.Fatalf("step %d: visits %d, which is not there", step, o.id)
						}
					}
					for o := range parts.All() {
						n++
						if want[o.id] != o {
							t.Fatalf("step %d: visits %d of the partitions, which is not there", step, o.id)
						}
					}
					if n != 2*len(want) {
						t.Fatalf("step %d: visits %d, want %d", step, n, 2*len(want))
					}
				}
			}
		})
	}
}

// TestHashSetShrinks: a table whose records went gives its memory back, and a small one is kept.
func TestHashSetShrinks(t *testing.T) {
	var set HashSet[hashed]
	var all []*hashed
	for id := range uint64(100_000) {
		x := &hashed{HashID(id), id}
		all = append(all, x)
		set.Add(x.hash, x)
	}
	if n := len(set.tags); n > 2*len(all) {
		t.Errorf("%d slots for %d records", n, len(all))
	}
	for _, x := range all {
		set.Remove(x.hash, x)
	}
	if n := len(set.tags); set.n != 0 || n > 128 {
		t.Errorf("%d slots for %d records", n, set.n)
	}
	x := all[0]
	if got := testing.AllocsPerRun(100, func() {
		set.Add(x.hash, x)
		set.Remove(x.hash, x)
	}); got > 0 && !form.Race {
		t.Errorf("a record that comes and goes costs %v allocations", got)
	}
}

// TestHashSetTakes: a set of records that come and go keeps its memory.
func TestHashSetTakes(t *testing.T) {
	var set HashSet[hashed]
	var all []*hashed
	for i := range uint64(1_000) {
		all = append(all, &hashed{Mix(i), i})
	}
	fill := func() {
		for _, x := range all {
			set.Add(x.hash, x)
		}
		for _, x := range all {
			set.Take(x.hash, x)
		}
	}
	fill()
	if n := testing.AllocsPerRun(3, fill); n != 0 && !form.Race || set.n != 0 {
		t.Errorf("%v allocations, %d records are left", n, set.n)
	}
	for at, tag := range set.tags {
		if tag != 0 || set.records[at] != nil {
			t.Fatalf("slot %d is not empty", at)
		}
	}
}
