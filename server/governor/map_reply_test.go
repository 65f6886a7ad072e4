package governor

import (
	"reflect"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// TestMapReplyRouting: expelled instances, replicas that are not in their group yet, tiers without
// owners of their buckets, and epochs are no client's concern.
func TestMapReplyRouting(t *testing.T) {
	m := meta.New()
	index := uint64(0)
	apply := func(c meta.Command) {
		t.Helper()
		index++
		res, err := meta.DecodeResult(m.Apply(index, meta.AppendCommand(nil, meta.OpID{}, c)))
		if err == nil {
			err = res.Err()
		}
		if err != nil {
			t.Fatalf("%T: %v", c, err)
		}
	}
	apply(&meta.Bootstrap{
		Cluster: "c", Instance: 1, Name: "one", Address: "one:1", Tier: "default", CanVote: true, Buckets: 16, Shards: []uint64{2, 3},
		Tiers: []meta.TierSpec{{Name: "arbiter"}, {Name: "late", Buckets: 8}}, NodeConfig: protocol.DefaultNodeConfig(),
	})
	apply(&meta.Join{UUID: "u2", Name: "two", Replicaset: "default_1", Address: "two:1"})
	apply(&meta.Join{UUID: "u3", Name: "three", Tier: "arbiter", Address: "three:1"})
	apply(&meta.ReplicaAdd{Shard: 2, Instance: 2, TargetRole: meta.RoleVoter})
	apply(&meta.ReplicaRole{Shard: 2, Replica: 2, Role: meta.RoleVoter})
	apply(&meta.MasterCurrent{Shard: 2, Instance: 2})
	apply(&meta.Join{UUID: "u4", Name: "four", Replicaset: "default_1", Address: "four:1"})
	apply(&meta.ReplicaAdd{Shard: 3, Instance: 4, TargetRole: meta.RoleNonVoting})
	apply(&meta.ReplicaRole{Shard: 3, Replica: 2, Role: meta.RoleNonVoting})
	apply(&meta.InstanceUpdate{Instance: 4, Target: meta.Expelled})
	apply(&meta.InstanceCurrent{Instance: 4, State: meta.InstanceState{Variant: meta.Expelled}})
	apply(&meta.ReplicaAdd{Shard: 3, Instance: 2, TargetRole: meta.RoleVoter})
	apply(&meta.ShardReady{Shard: 2})
	apply(&meta.ShardReady{Shard: 3})
	apply(&meta.MoveBegin{Tier: 0, First: 2, Count: 2, To: 3})
	apply(&meta.MoveAbort{MoveRef: meta.MoveRef{Tier: 0, First: 2, Epoch: 2}})
	apply(&meta.MoveBegin{Tier: 0, First: 6, Count: 2, To: 3})
	apply(&meta.MoveCommit{MoveRef: meta.MoveRef{Tier: 0, First: 6, Epoch: 2}})
	apply(&meta.InstanceUpdate{Instance: 3, Target: meta.Expelled})
	apply(&meta.ReplicasetExpel{Replicaset: 2})
	apply(&meta.ReplicasetIsExpelled{Replicaset: 2})

	want := protocol.MapReply{
		Version: m.MapVersion(), Cluster: "c",
		Instances: []protocol.MapInstance{{ID: 1, Name: "one", Address: "one:1"}, {ID: 2, Name: "two", Address: "two:1"}},
		Shards:    []protocol.MapShard{{ID: 2, Master: 2, Replicas: []uint64{1, 2}}, {ID: 3, Master: 1, Replicas: []uint64{1}}},
		Tiers: []protocol.MapTier{{
			ID: 0, Name: "default", Buckets: 16, Runs: []protocol.MapRun{{Count: 6, Shard: 2}, {Count: 10, Shard: 3}},
		}},
	}
	if got := MapReply(&m.State, 0, nil); !reflect.DeepEqual(got, want) {
		t.Errorf("map\n%+v, want\n%+v", got, want)
	}
	leads := func(shard uint64) (uint64, uint64) { return map[uint64]uint64{2: 1}[shard], 9 }
	if got := MapReply(&m.State, want.Version-1, leads); got.Shards[0].Master != 1 || got.Shards[1].Master != 1 {
		t.Errorf("masters %+v, want those who lead now, or else did", got.Shards)
	}
	if got := MapReply(&m.State, want.Version, nil); len(got.Instances)+len(got.Shards)+len(got.Tiers) > 0 || got.Version != want.Version {
		t.Errorf("a client that knows this version is sent %+v", got)
	}
}
