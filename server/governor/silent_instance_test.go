package governor

import (
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// TestSilentInstanceGetsNoLeadership: leadership does not go to an instance that was not
// heard a moment ago, though no other one takes it for dead yet.
func TestSilentInstanceGetsNoLeadership(t *testing.T) {
	t.Parallel()
	voter := func(instance uint64) meta.Replica {
		return meta.Replica{Instance: instance, Replica: 10 + instance, Role: meta.RoleVoter, TargetRole: meta.RoleVoter}
	}
	up := meta.InstanceState{Variant: meta.Online, Incarnation: 1}
	x := &shardView{
		Shard: meta.Shard{ID: 2, Replicas: []meta.Replica{voter(1), voter(2)}, Master: 2, TargetMaster: 2},
		led:   true, leader: voter(2),
	}
	for age, want := range map[time.Duration]uint64{FreshLimit: 1, FreshLimit + 1: 0} {
		health := func(instance uint64, age time.Duration) Heartbeat {
			report := ShardReport{Replica: 10 + instance, Leader: 12, Term: 3, Applied: 7}
			return Heartbeat{Heard: time.Hour - age, Shards: map[uint64]ShardReport{2: report}}
		}
		progress := NewProgress()
		progress.catchUpMarks[2] = catchUpMark{index: 7}
		p := &planner{
			View:      View{Now: time.Hour, Progress: progress, Health: map[uint64]Heartbeat{1: health(1, age), 2: health(2, 0)}},
			instances: map[uint64]*meta.Instance{1: {ID: 1, Current: up, Target: up}, 2: {ID: 2, Current: up, Target: up}},
		}
		if got := leastLoaded(p, x, 0, map[uint64]int{2: 3}); got != want {
			t.Errorf("heard %v ago: leadership would go to %d, want %d", age, got, want)
		}
	}
}
