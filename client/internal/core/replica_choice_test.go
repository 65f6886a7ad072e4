package core

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestLostReplicaSpreads: the clients of a replica that is lost are spread over all others, as they
// were spread before, and each comes to every replica in turn.
func TestLostReplicaSpreads(t *testing.T) {
	const clients = 6000
	random := rand.New(rand.NewPCG(1, 2))
	for n := uint64(1); n <= 7; n++ {
		w := &shardRoute{shard: random.Uint64N(100)}
		for i := range n {
			w.replicas = append(w.replicas, 10+i)
		}
		first, second := map[uint64]int{}, map[[2]uint64]int{}
		for range clients {
			x := newRoutes(nil, random.Uint64())
			var turn []uint64
			for after := range n {
				turn = append(turn, x.chosen(w, after).instance)
			}
			first[turn[0]]++
			if n > 1 {
				second[[2]uint64{turn[0], turn[1]}]++
			}
			if again := x.chosen(w, n).instance; again != turn[0] {
				t.Errorf("%d replicas: after all of %v comes %d", n, turn, again)
			}
			if slices.Sort(turn); !slices.Equal(turn, w.replicas) {
				t.Fatalf("%d replicas: a client takes %v in turn", n, turn)
			}
		}
		for _, lost := range w.replicas {
			even := clients / int(n)
			if first[lost] < even*4/5 || first[lost] > even*6/5 {
				t.Errorf("%d replicas: %d of %d clients are at %d", n, first[lost], clients, lost)
			}
			for _, next := range w.replicas {
				even := first[lost] / max(1, int(n)-1)
				if got := second[[2]uint64{lost, next}]; next != lost && (got < even/2 || got > even*2) {
					t.Errorf("%d replicas: of %d clients at %d, %d go to %d", n, first[lost], lost, got, next)
				}
			}
		}
	}
}
