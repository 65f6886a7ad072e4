package governor

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// set is a replicaset with shards id*10, id*10+1 and so on.
func set(id, weight uint64, counts ...uint32) replicasetLoad {
	o := replicasetLoad{replicaset: id, weight: weight}
	for n, count := range counts {
		o.shards = append(o.shards, shardLoad{shard: id*10 + uint64(n), count: count})
	}
	return o
}

// only has the first shards of a replicaset stay.
func only(stay int, o replicasetLoad) replicasetLoad {
	for n := range o.shards {
		o.shards[n].surplus = n >= stay
	}
	return o
}

func TestTargets(t *testing.T) {
	for _, c := range []struct {
		name  string
		total uint32
		sets  []replicasetLoad
		want  string
	}{
		{"nobody has a weight", 8, []replicasetLoad{set(1, 0, 8)}, "map[]"},
		{"one", 9, []replicasetLoad{set(1, 1000, 9, 0)}, "map[10:5 11:4]"},
		{"two alike", 4096, []replicasetLoad{set(1, 1000, 2048, 2048), set(2, 1000, 0, 0)}, "map[10:1024 11:1024 20:1024 21:1024]"},
		{"by weight", 90, []replicasetLoad{set(1, 1000, 90), set(2, 500, 0)}, "map[10:60 20:30]"},
		{"one goes", 10, []replicasetLoad{set(1, 0, 5, 5), set(2, 1000, 0)}, "map[10:0 11:0 20:10]"},
		{"the one with more keeps more", 9, []replicasetLoad{set(1, 1000, 4), set(2, 1000, 5)}, "map[10:4 20:5]"},
		{"of equals the first", 9, []replicasetLoad{set(1, 1000, 0), set(2, 1000, 0)}, "map[10:5 20:4]"},
		{"without shards yet", 6, []replicasetLoad{set(1, 1000, 6), set(2, 1000)}, "map[10:6]"},
		{"a shard goes", 9, []replicasetLoad{only(2, set(1, 1000, 3, 3, 3))}, "map[10:5 11:4]"},
		{"shards go, and one of another set is new", 12,
			[]replicasetLoad{only(1, set(1, 1000, 4, 4)), set(2, 1000, 4, 0)}, "map[10:6 20:3 21:3]"},
		{"more sets than buckets", 2, []replicasetLoad{set(1, 1000, 2), set(2, 1000, 0), set(3, 1000, 0)}, "map[10:1 20:1 30:0]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := fmt.Sprint(bucketTargets(c.total, c.sets)); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// TestFlows: whatever moves first, no more buckets move than the first targets ask for, and then
// nothing moves.
func TestFlows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var sets []replicasetLoad
		total := uint32(0)
		for id := range rapid.Uint64Range(1, 5).Draw(t, "sets") {
			var counts []uint32
			for range rapid.IntRange(0, 4).Draw(t, "shards") {
				counts = append(counts, rapid.Uint32Range(0, 50).Draw(t, "count"))
				total += counts[len(counts)-1]
			}
			stay := rapid.IntRange(1, 4).Draw(t, "stay")
			weight := 500 * rapid.Uint64Range(0, 3).Draw(t, "weight")
			sets = append(sets, only(stay, set(id+1, weight, counts...)))
		}
		want := bucketTargets(total, sets)
		surplus := uint32(0)
		for _, s := range sets {
			for _, x := range s.shards {
				if to := want[x.shard]; want != nil && x.count > to {
					surplus += x.count - to
				}
			}
		}
		piece := rapid.Uint32Range(1, 32).Draw(t, "piece")
		moved := uint32(0)
		any := func(uint64, bool) bool { return true }
		for {
			list := bucketFlows(sets, piece, MaxMoves, any)
			if len(list) == 0 {
				break
			}
			f := rapid.SampledFrom(list).Draw(t, "flow")
			if f.count == 0 || f.count > piece {
				t.Fatalf("%d buckets in a piece of %d", f.count, piece)
			}
			moved += f.count
			for i := range sets {
				for j := range sets[i].shards {
					switch x := &sets[i].shards[j]; x.shard {
					case f.from:
						x.count -= f.count
					case f.to:
						x.count += f.count
					}
				}
			}
		}
		if moved > surplus {
			t.Fatalf("%d buckets moved, at most %d had to", moved, surplus)
		}
		want = bucketTargets(total, sets) // remainders go where the fewest buckets move, from here on
		for _, s := range sets {
			for _, x := range s.shards {
				if want != nil && (x.count != want[x.shard] || x.surplus && x.count > 0) {
					t.Fatalf("shard %d has %d buckets, is to have %d, surplus %v", x.shard, x.count, want[x.shard], x.surplus)
				}
			}
		}
	})
}

// TestLastFree: what is found of a run is free, not longer than asked for, and whatever is free is
// found at last.
func TestLastFree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		run := meta.Run{First: rapid.Uint32Range(0, 20).Draw(t, "first"), Count: rapid.Uint32Range(1, 40).Draw(t, "count")}
		taken, free := map[uint32]uint32{}, map[uint32]bool{}
		for b := run.First; b < run.First+run.Count; b++ {
			free[b] = true
		}
		for at := uint32(0); at < 70; {
			at += rapid.Uint32Range(0, 15).Draw(t, "gap")
			n := rapid.Uint32Range(1, 12).Draw(t, "move")
			taken[at] = n
			for b := at; b < at+n; b++ {
				delete(free, b)
			}
			at += n
		}
		most := rapid.Uint32Range(1, 10).Draw(t, "most")
		for {
			first, count := lastFree(run, most, taken)
			if count == 0 {
				break
			}
			if count > most {
				t.Fatalf("%d buckets, at most %d", count, most)
			}
			for b := first; b < first+count; b++ {
				if !free[b] {
					t.Fatalf("bucket %d of %d..%d is not free; taken %v", b, first, first+count-1, taken)
				}
				delete(free, b)
			}
			taken[first] = count
		}
		if len(free) > 0 {
			t.Fatalf("not found: %v", slices.Sorted(maps.Keys(free)))
		}
	})
}
