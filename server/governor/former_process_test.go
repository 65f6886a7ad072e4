package governor

import (
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// TestFormerProcess: the heartbeats of an instance's former process, and those of a process that
// does not know its incarnation yet, do not count for the process that was started since. It comes
// online, or starts the shards of its replicaset, by its own heartbeats only.
func TestFormerProcess(t *testing.T) {
	t.Parallel()
	up := meta.InstanceState{Variant: meta.Online, Incarnation: 3}
	for heard, counts := range map[uint64]bool{0: false, 2: false, 3: true} {
		i := &meta.Instance{ID: 1, Target: up, Replicaset: 7}
		p := &planner{
			View: View{Now: time.Hour, Progress: NewProgress(), Health: map[uint64]Heartbeat{1: {
				Heard: time.Hour, Incarnation: heard, Shards: map[uint64]ShardReport{2: {Replica: 11, Leader: 11, Term: 4, Applied: 9}},
			}}},
			instances: map[uint64]*meta.Instance{1: i},
			shards: []shardView{{
				Shard: meta.Shard{ID: 2, Replicaset: 7, Replicas: []meta.Replica{
					{Instance: 1, Replica: 11, Role: meta.RoleVoter, TargetRole: meta.RoleVoter}}},
				led: true, leader: meta.Replica{Instance: 1, Replica: 11},
			}},
		}
		if got := readyToGoOnline(p, i); got != counts {
			t.Errorf("a heartbeat of incarnation %d of an instance wanted %v: ready %v, want %v", heard, up, got, counts)
		}
		want := uint64(0)
		if counts {
			want = 1
		}
		if got := founder(p, []*meta.Instance{i}); got != want {
			t.Errorf("a heartbeat of incarnation %d of an instance wanted %v: the founder is %d, want %d", heard, up, got, want)
		}
	}
}
