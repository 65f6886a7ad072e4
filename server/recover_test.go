package server

import (
	"testing"

	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// TestOutdatedLogs: a log counts that is of a replica which the newest map has, or has not heard of yet; those of replicas that were taken out, and of shards that are no more, do not.
func TestOutdatedLogs(t *testing.T) {
	state := start(t, nil).meta.State()
	s := &Survivors{state: &meta.Machine{State: *state}}
	for _, x := range state.Shards() {
		if len(x.Replicas) != 1 || x.NextReplica != x.Replicas[0].Replica {
			t.Fatalf("%+v", x)
		}
		for id, want := range map[uint64]bool{x.NextReplica - 1: true, x.NextReplica: false, x.NextReplica + 1: false} {
			if got := s.outdated(&replica.RecoveredLog{Shard: x.ID, Replica: id}); got != want {
				t.Errorf("replica %d of shard %d, of which the map has replica %d: outdated is %v", id, x.ID, x.NextReplica, got)
			}
		}
	}
	if !s.outdated(&replica.RecoveredLog{Shard: 999, Replica: 1}) {
		t.Error("a shard that is no more counts")
	}
	if s.outdated(&replica.RecoveredLog{Shard: replica.MetaShard, Replica: 0}) {
		t.Error("the map judges the logs that say which map is the newest")
	}
	if new(Survivors).outdated(&replica.RecoveredLog{Shard: 2, Replica: 1}) {
		t.Error("without a map a log is outdated")
	}
}
