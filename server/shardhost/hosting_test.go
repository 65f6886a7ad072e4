package shardhost

import (
	"maps"
	"slices"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// TestFindOrphans: data are due to be removed of a replica that the map does not give to this
// instance, or gives no role, and of no other.
func TestFindOrphans(t *testing.T) {
	m := meta.New()
	say := func(c meta.Command) meta.Result {
		t.Helper()
		index := m.AppliedIndex() + 1
		r, err := meta.DecodeResult(m.Apply(index, meta.AppendCommand(nil, meta.OpID{byte(index)}, c)))
		if err != nil || r.Err() != nil {
			t.Fatal(err, r.Err())
		}
		return r
	}
	say(&meta.Bootstrap{Cluster: "test", Instance: 1, Name: "one", Address: "127.0.0.1:1", RaftAddress: "127.0.0.1:2",
		Tier: "default", Buckets: 8, ReplicationFactor: 2, CanVote: true, Shards: []uint64{2, 3}, NodeConfig: protocol.DefaultNodeConfig()})
	here := say(&meta.Join{UUID: "two", Name: "two", Address: "127.0.0.1:3", RaftAddress: "127.0.0.1:4"}).Instance
	var ids []uint64
	for _, x := range m.Shards() {
		ids = append(ids, say(&meta.ReplicaAdd{Shard: x.ID, Instance: here, TargetRole: meta.RoleVoter}).Replica)
	}
	say(&meta.ReplicaTarget{Shard: 3, Replica: ids[1], TargetRole: meta.RoleNone})
	h := &Hosting{instance: here, toPurge: make(map[[2]uint64]bool)}
	stays, unknown := [2]uint64{2, ids[0]}, [2]uint64{2, 1}
	h.findOrphans(&m.State, [][2]uint64{{replica.MetaShard, 1}, stays, unknown, {3, ids[1]}, {4, 1}})
	got := slices.SortedFunc(maps.Keys(h.toPurge), func(a, b [2]uint64) int { return slices.Compare(a[:], b[:]) })
	if want := [][2]uint64{unknown, {3, ids[1]}, {4, 1}}; !slices.Equal(got, want) {
		t.Errorf("%v are to be removed, want %v", got, want)
	}
}
