package handle

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/seeds"
)

// TestListOverMoves lists naive shards whose buckets move at random between any two pages: a bucket
// leaves its owner, is in no shard for a while, and comes to another one, or back, under a newer
// epoch. What is there all the time is listed once and in order, and nothing else.
func TestListOverMoves(t *testing.T) {
	const shards, buckets, pageLen = 3, 8, 4
	lists, again := 0, 0
	for seed := range seeds.Of(t, 100, 500) {
		lists++
		r := rand.New(rand.NewPCG(seed, 3))
		var owner [buckets]int // -1: in no shard
		var epoch [buckets]uint64
		for b := range owner {
			owner[b], epoch[b] = b%shards, 1
		}
		move := func() {
			switch b := r.IntN(buckets); {
			case owner[b] >= 0:
				owner[b] = -1
			default:
				owner[b], epoch[b] = r.IntN(shards), epoch[b]+1
			}
		}
		var names []string
		for i := range 60 {
			names = append(names, fmt.Sprintf("n%02d", i))
		}
		moves := 1 + r.IntN(3)
		m := listMerge[string]{
			key:    func(s *string) string { return *s },
			shards: func() ([]uint64, error) { return []uint64{0, 1, 2}, nil },
			most:   r.IntN(2) * r.IntN(70),
			page: func(shard uint64, cursor []byte) (p ListPage[string], err error) {
				if r.IntN(3) == 0 {
					for range moves {
						move()
					}
				}
				for b := range owner {
					run := protocol.BucketRun{Count: 1}
					if owner[b] == int(shard) {
						run.Epoch = epoch[b]
					}
					p.Runs = append(p.Runs, run)
				}
				for i, name := range names {
					if owner[i%buckets] != int(shard) || name <= string(cursor) {
						continue
					}
					if len(p.Items) == pageLen {
						p.Next = []byte(p.Items[pageLen-1])
						break
					}
					p.Items = append(p.Items, name)
				}
				return p, nil
			},
		}
		var got []string
		for tries := 0; ; tries++ {
			err := m.run(func(name string) bool { got = append(got, name); return true })
			if err == nil {
				break
			}
			if !errors.Is(err, errBucketsMoved) || tries > 10_000 {
				t.Fatalf("after %d tries: %v", tries, err)
			}
			again++
			move()
		}
		want := names
		if m.most > 0 {
			want = names[:min(m.most, len(names))]
		}
		if !slices.Equal(got, want) {
			t.Fatalf("listed %v, want %v", got, want)
		}
	}
	if again < 2*lists && !seeds.Chosen() {
		t.Errorf("%d lists began again %d times; they should twice each: buckets move too rarely", lists, again)
	}
}
