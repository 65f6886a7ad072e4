package shard

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

type hashed struct{ hash, id uint64 }

// TestHashSetIsAMap does to a set what is done to a map, also with hashes that many records share.
func TestHashSetIsAMap(t *testing.T) {
	for _, c := range []struct {
		name string
		hash func(id uint64) uint64
	}{
		{"spread", hashID},
		{"in a row", func(id uint64) uint64 { return id << 32 }},
		{"few hashes", func(id uint64) uint64 { return mix(id % 5) }},
		{"at the end", func(id uint64) uint64 { return 1<<64 - 1 - id%3<<32 }},
		{"none", func(uint64) uint64 { return 0 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(3, 4))
			var set hashSet[hashed]
			var parts partitionedSet[hashed]
			want := map[uint64]*hashed{}
			for step := range 20_000 {
				id := r.Uint64N(600)
				x := &hashed{c.hash(id), id}
				is := func(o *hashed) bool { return o.id == id }
				have := want[id]
				if got := set.get(x.hash, is); got != have {
					t.Fatalf("step %d: the set has %v for %d, want %v", step, got, id, have)
				}
				if got := parts.of(x.hash).get(x.hash, is); got != have {
					t.Fatalf("step %d: the partitions have %v for %d, want %v", step, got, id, have)
				}
				switch growing := step/4_000%2 == 0; {
				case have == nil && (growing || r.IntN(4) == 0):
					set.add(x.hash, x)
					parts.of(x.hash).add(x.hash, x)
					want[id] = x
				case have == nil:
					set.remove(x.hash, x) // it is not there
				case !growing || r.IntN(4) == 0:
					set.remove(have.hash, have)
					parts.of(x.hash).remove(have.hash, have)
					delete(want, id)
				}
				if set.n != len(want) || parts.len() != len(want) {
					t.Fatalf("step %d: %d and %d records, want %d", step, set.n, parts.len(), len(want))
				}
				if step%500 == 0 {
					n := 0
					for o := range set.all() {
						n++
						if want[o.id] != o {
							t.Fatalf("step %d: visits %d, which is not there", step, o.id)
						}
					}
					for o := range parts.all() {
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
	var set hashSet[hashed]
	var all []*hashed
	for id := range uint64(100_000) {
		x := &hashed{hashID(id), id}
		all = append(all, x)
		set.add(x.hash, x)
	}
	if n := len(set.tags); n > 2*len(all) {
		t.Errorf("%d slots for %d records", n, len(all))
	}
	for _, x := range all {
		set.remove(x.hash, x)
	}
	if n := len(set.tags); set.n != 0 || n > 128 {
		t.Errorf("%d slots for %d records", n, set.n)
	}
	x := all[0]
	if got := testing.AllocsPerRun(100, func() {
		set.add(x.hash, x)
		set.remove(x.hash, x)
	}); got > 0 {
		t.Errorf("a record that comes and goes costs %v allocations", got)
	}
}

// TestHashSetTakes: a set of records that come and go keeps its memory.
func TestHashSetTakes(t *testing.T) {
	var set hashSet[hashed]
	var all []*hashed
	for i := range uint64(1_000) {
		all = append(all, &hashed{mix(i), i})
	}
	fill := func() {
		for _, x := range all {
			set.add(x.hash, x)
		}
		for _, x := range all {
			set.take(x.hash, x)
		}
	}
	fill()
	if n := testing.AllocsPerRun(3, fill); n != 0 || set.n != 0 {
		t.Errorf("%v allocations, %d records are left", n, set.n)
	}
	for at, tag := range set.tags {
		if tag != 0 || set.records[at] != nil {
			t.Fatalf("slot %d is not empty", at)
		}
	}
}

// TestNewSemaphore: names of all lengths, each in the memory of its record if it is not long.
func TestNewSemaphore(t *testing.T) {
	for n := range 200 {
		name := bytes.Repeat([]byte{byte(n), 'x'}, n)[:n]
		s := newSemaphore(name)
		if !bytes.Equal(s.name, name) || cap(s.name) != n || s.semaphoreExtras != &noExtras {
			t.Fatalf("a name of %d bytes became %q", n, s.name)
		}
		if raceEnabled {
			continue
		}
		want := 1.0
		if n > 72 {
			want = 2
		}
		if got := testing.AllocsPerRun(10, func() { newSemaphore(name) }); got > want {
			t.Errorf("a name of %d bytes costs %v allocations, want %v", n, got, want)
		}
	}
}

// TestOwnParts: what one session or semaphore does changes nothing of what those without a part of
// their own share.
func TestOwnParts(t *testing.T) {
	x := newBenchMachine(3)
	x.begin()
	x.create(0, []byte("a"), 1)
	x.create(0, []byte("b"), 1)
	x.acquire(0, []byte("a"), false)
	x.acquire(1, []byte("a"), false)
	x.commit()
	find := func(name string) *semaphore {
		return x.m.semaphores.lookup(x.m.activeBucket(1, []byte(name)), 1, []byte(name))
	}
	if s := find("a"); s.semaphoreExtras == &noExtras || s.waiters.n != 1 || !s.owners.first.session.hasReferences() {
		t.Error("a semaphore with a waiter has no queue")
	}
	if s := find("b"); s.semaphoreExtras != &noExtras || s.waiters.n != 0 {
		t.Error("a semaphore that nobody asked for has extras")
	}
	for i, id := range x.sessions {
		if p := x.m.sessions.get(id); (p.sessionUse == &unused) != (i == 2) || i == 2 && p.low != 1 {
			t.Errorf("session %d: own use %v, low %d", i, p.sessionUse != &unused, p.low)
		}
	}
	if err := x.m.Check(); err != nil {
		t.Error(err)
	}
}
