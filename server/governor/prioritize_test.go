package governor

import (
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"
)

// TestFailedTransferGoesLast: one leadership is transferred at a time. Of those that wait, one that
// has not failed goes before those that fail again and again, also when their pauses are over.
func TestFailedTransferGoesLast(t *testing.T) {
	l := loop{
		Governor: &Governor{log: slog.New(slog.DiscardHandler)},
		inFlight: make(map[stepKey]bool), locked: make(map[stepKey]bool),
		inFlightByShard: make(map[uint64]int), retries: make(map[stepKey]retryState),
	}
	transfer := func(shard uint64) Step { return Step{Kind: TransferLeader, Shard: shard, Instance: 2, Replica: 2} }
	plan := []Step{transfer(2), transfer(3), {Kind: PromoteReplica, Shard: 5, Replica: 3}, transfer(4)}
	turns := func() (shards []uint64) {
		for _, s := range l.prioritize(plan) {
			shards = append(shards, s.Shard)
		}
		return shards
	}
	fail := func(s Step) {
		l.inFlight[s.key()] = true
		l.inFlightByShard[s.Shard]++
		for _, lock := range s.locks() {
			l.locked[lock] = lock != stepKey{}
		}
		if other := transfer(9); !l.isLocked(&other) {
			t.Error("another transfer may begin beside one")
		}
		if same := (Step{Kind: RemoveReplica, Shard: s.Shard}); !l.isLocked(&same) {
			t.Error("the group may change beside its transfer")
		}
		l.finish(stepResult{step: s, err: errors.New("no")})
		if other := transfer(9); l.isLocked(&other) {
			t.Error("no other transfer may begin after one")
		}
	}
	fail(plan[0])
	fail(plan[0])
	fail(plan[1])
	if got, want := turns(), []uint64{5, 4, 3, 2}; !slices.Equal(got, want) {
		t.Errorf("their turns are %v, want %v", got, want)
	}
	if plan[0].Shard != 2 {
		t.Error("the plan itself was put in another order")
	}
	h := l.retries[plan[0].key()]
	if h.failures != 2 || time.Until(h.until) <= 0 {
		t.Errorf("%d failures, rest until %v", h.failures, h.until)
	}
}
