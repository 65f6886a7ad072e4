package shard

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestRanking: the walk of several rankings is the sorted list of what they hold, whatever was set,
// changed and taken out before.
func TestRanking(t *testing.T) {
	type record struct {
		key   uint64
		place int32
	}
	rapid.Check(t, func(t *rapid.T) {
		records := make([]record, rapid.IntRange(1, 40).Draw(t, "records"))
		rankings := make([]ranking[record], rapid.IntRange(1, 3).Draw(t, "rankings"))
		for range rapid.IntRange(0, 200).Draw(t, "changes") {
			i := rapid.IntRange(0, len(records)-1).Draw(t, "record")
			records[i].key = rapid.Uint64Range(0, 9).Draw(t, "key")
			rankings[i%len(rankings)].set(&records[i], &records[i].place, records[i].key)
		}
		var want []uint64
		for i := range records {
			if (records[i].key == 0) != (records[i].place == 0) {
				t.Fatalf("record %d has key %d and place %d", i, records[i].key, records[i].place)
			}
			if records[i].key > 0 {
				want = append(want, records[i].key)
			}
		}
		slices.SortFunc(want, func(a, b uint64) int { return cmp.Compare(b, a) })
		var w rankWalk[record]
		for i := range rankings {
			if !rankings[i].ordered() {
				t.Fatalf("ranking %d is out of order", i)
			}
			if len(rankings[i].heap) > 0 {
				w.push(rankStep[record]{&rankings[i], 0})
			}
		}
		var got []uint64
		for r := w.take(); r != nil; r = w.take() {
			got = append(got, r.key)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("walked %v, want %v", got, want)
		}
	})
}

// BenchmarkContended is an acquire that waits, and the release that grants it, beside other queues
// and sessions with entries: what the rankings cost.
func BenchmarkContended(b *testing.B) {
	const others = 10_000
	x := newBenchMachine(2*others + 2)
	name := func(i int) []byte { return []byte{'q', byte(i >> 8), byte(i)} }
	for i := range others {
		x.begin()
		x.create(0, name(i), 1)
		x.acquire(2*i, name(i), false)
		x.acquire(2*i+1, name(i), false)
		x.commit()
	}
	x.begin()
	x.create(2*others, []byte("hot"), 1)
	x.acquire(2*others, []byte("hot"), false)
	x.commit()
	b.ReportAllocs()
	for b.Loop() {
		for i := range 2 {
			x.begin()
			x.acquire(2*others+1-i, []byte("hot"), false)
			x.release(2*others+i, []byte("hot"))
			x.commit()
		}
	}
}
