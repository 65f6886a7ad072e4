package governor

import (
	"fmt"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// TestMoveSize: how many buckets a move has follows from how long moves take, whatever takes the
// time.
func TestMoveSize(t *testing.T) {
	for _, c := range []struct {
		name             string
		commits, buckets time.Duration // of a move, and of each of its buckets
		least, most      uint32        // the move's size after some of them
	}{
		{"nothing takes time", 0, 0, MoveBuckets, MoveBuckets},
		{"a quick machine", 10 * time.Millisecond, 500 * time.Microsecond, MoveBuckets, MoveBuckets},
		{"large buckets", 10 * time.Millisecond, 4 * time.Millisecond, 10, 15},
		{"very large buckets", 10 * time.Millisecond, time.Second, minMoveBuckets, minMoveBuckets},
		{"slow commits", time.Second, 0, minMoveBuckets, minMoveBuckets},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, now := NewProgress(), time.Second
			for i := range 20 {
				n := p.moveSize(1)
				if n < minMoveBuckets || n > MoveBuckets || i == 0 && n != minMoveBuckets {
					t.Fatalf("move %d has %d buckets", i, n)
				}
				ref := meta.MoveRef{Tier: 1, First: 100, Epoch: uint64(i) + 2}
				p.moves = map[meta.MoveRef]moveProgress{ref: {}}
				step := Step{Tier: ref.Tier, First: ref.First, Epoch: ref.Epoch, Count: n}
				began := now
				now += c.commits + time.Duration(n)*c.buckets
				step.Kind = FreezeMove
				p.Done(&step, began, began, Answer{})
				step.Kind = ActivateMove
				p.Done(&step, now, now, Answer{})
			}
			if n := p.moveSize(1); n < c.least || n > c.most {
				t.Errorf("moves have %d buckets in the end, want %d to %d", n, c.least, c.most)
			}
			if n := p.moveSize(2); n != minMoveBuckets {
				t.Errorf("moves of another tier have %d buckets", n)
			}
		})
	}
}

// TestAbortedMoveSaysNothingOfSize: the source serves again under a newer epoch, and that is no end
// of a freeze that fits.
func TestAbortedMoveSaysNothingOfSize(t *testing.T) {
	p := NewProgress()
	ref := meta.MoveRef{Tier: 1, First: 0, Epoch: 2}
	p.moves[ref] = moveProgress{}
	p.Done(&Step{Kind: FreezeMove, Tier: 1, Epoch: 2, Count: 8}, time.Second, time.Second, Answer{})
	p.Done(&Step{Kind: ActivateMove, Tier: 1, Epoch: 3, Count: 8}, time.Second, time.Second, Answer{})
	if got := fmt.Sprint(p.moveSizes); got != "map[]" {
		t.Errorf("sizes are %s", got)
	}
}
