package governor

import (
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"
)

// TestEachTransferHasItsTurn: one leadership is transferred at a time. Of those that wait, one that
// has not failed goes before those that fail again and again, also when their pauses are over.
func TestEachTransferHasItsTurn(t *testing.T) {
	l := loop{
		Governor: &Governor{log: slog.New(slog.DiscardHandler)},
		underway: make(map[stepKey]bool), lanes: make(map[stepKey]bool), shards: make(map[uint64]int), held: make(map[stepKey]hold),
	}
	transfer := func(shard uint64) Step { return Step{Kind: TransferMaster, Shard: shard, Instance: 2, Replica: 2} }
	plan := []Step{transfer(2), transfer(3), {Kind: PromoteReplica, Shard: 5, Replica: 3}, transfer(4)}
	turns := func() (shards []uint64) {
		for _, s := range l.inTurn(plan) {
			shards = append(shards, s.Shard)
		}
		return shards
	}
	fail := func(s Step, err error) {
		l.underway[s.key()] = true
		l.shards[s.Shard]++
		for _, lane := range s.lanes() {
			l.lanes[lane] = lane != stepKey{}
		}
		if other := transfer(9); !l.occupied(&other) {
			t.Error("another transfer may begin beside one")
		}
		if same := (Step{Kind: RemoveReplica, Shard: s.Shard}); !l.occupied(&same) {
			t.Error("the group may change beside its transfer")
		}
		l.finished(outcome{step: s, err: err})
		if other := transfer(9); l.occupied(&other) {
			t.Error("no other transfer may begin after one")
		}
	}
	fail(plan[0], ErrLater)
	fail(plan[0], errors.New("no"))
	fail(plan[1], errors.New("no"))
	if got, want := turns(), []uint64{5, 4, 3, 2}; !slices.Equal(got, want) {
		t.Errorf("their turns are %v, want %v", got, want)
	}
	if plan[0].Shard != 2 {
		t.Error("the plan itself was put in another order")
	}
	h := l.held[plan[0].key()]
	if h.tries != 2 || h.fails != 1 || time.Until(h.until) <= 0 {
		t.Errorf("%d tries, %d failures that were not to be expected, rest until %v", h.tries, h.fails, h.until)
	}
}
