package recovery

import (
	"slices"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// TestOutdatedLogs: a log is current if the newest map has its replica, or does not know it yet.
// Logs of removed replicas, and of shards that are gone, are outdated.
func TestOutdatedLogs(t *testing.T) {
	m := meta.New()
	m.Apply(1, meta.AppendCommand(nil, meta.OpID{}, &meta.Bootstrap{
		Cluster: "c-1", Instance: 1, UUID: "uuid-a", Name: "a", Address: "a:7070", RaftAddress: "a:7071",
		Tier: "default", Buckets: 16, ReplicationFactor: 1, CanVote: true,
		Shards: []uint64{2, 3}, NodeConfig: protocol.DefaultNodeConfig(),
	}))
	s := &Survivors{state: m}
	if len(m.Shards()) != 2 {
		t.Fatalf("%d shards", len(m.Shards()))
	}
	for _, x := range m.Shards() {
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
	log := func(shard, index uint64, outdated bool) SurvivingLog {
		return SurvivingLog{RecoveredLog: replica.RecoveredLog{Shard: shard, LastIndex: index, LastTerm: 4}, Folder: "a", Outdated: outdated}
	}
	newest := log(replica.MetaShard, 17, false)
	got := s.unknown([]SurvivingLog{newest, log(2, 5, false), log(3, 6, true), log(999, 7, true)}, &newest)
	want := []string{`shard 999 in "a", up to entry 7 of term 4, is not read: the newest map, entry 17 in "a", does not have it; ` +
		`if the shard was not removed, give a folder with a newer map`}
	if !slices.Equal(got, want) {
		t.Errorf("logs that no map has: %q, want %q", got, want)
	}
	if s.outdated(&replica.RecoveredLog{Shard: replica.MetaShard, Replica: 0}) {
		t.Error("the map judges the logs that say which map is the newest")
	}
	if new(Survivors).outdated(&replica.RecoveredLog{Shard: 2, Replica: 1}) {
		t.Error("without a map a log is outdated")
	}
}
