package container

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
		rankings := make([]Ranking[record], rapid.IntRange(1, 3).Draw(t, "rankings"))
		for range rapid.IntRange(0, 200).Draw(t, "changes") {
			i := rapid.IntRange(0, len(records)-1).Draw(t, "record")
			records[i].key = rapid.Uint64Range(0, 9).Draw(t, "key")
			rankings[i%len(rankings)].Set(&records[i], &records[i].place, records[i].key)
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
		var w RankWalk[record]
		for i := range rankings {
			if err := rankings[i].Check(); err != nil {
				t.Fatalf("ranking %d: %v", i, err)
			}
			w.Add(&rankings[i])
		}
		var got []uint64
		for r := w.Next(); r != nil; r = w.Next() {
			got = append(got, r.key)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("walked %v, want %v", got, want)
		}
	})
}
