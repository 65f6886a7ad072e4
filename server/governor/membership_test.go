package governor

import (
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// TestMembershipKnown: a change of a group is known when each voter that was heard lately and runs
// has applied it. A replica that is silent or has no vote is not waited for.
func TestMembershipKnown(t *testing.T) {
	t.Parallel()
	x := &meta.Shard{ID: 2, Replicas: []meta.Replica{
		{Instance: 1, Replica: 11}, {Instance: 2, Replica: 12}, {Instance: 3, Replica: 13}, {Instance: 4, Replica: 14},
	}}
	m := &Membership{ConfigChange: 9, Voters: map[uint64]string{11: "x", 12: "x", 13: "x"}, NonVotings: map[uint64]string{14: "x"}}
	type said struct {
		age      time.Duration
		replica  uint64
		knows    uint64
		instance uint64
	}
	for _, c := range []struct {
		name string
		said []said
		want bool
	}{
		{"all know", []said{{0, 11, 9, 1}, {0, 12, 9, 2}, {0, 13, 9, 3}}, true},
		{"one has a newer one", []said{{0, 11, 9, 1}, {0, 12, 10, 2}, {0, 13, 9, 3}}, true},
		{"only the leader knows", []said{{0, 11, 9, 1}, {0, 12, 8, 2}, {0, 13, 8, 3}}, false},
		{"the new voter does not know", []said{{0, 11, 9, 1}, {0, 12, 9, 2}, {0, 13, 8, 3}}, false},
		{"a silent one does not know", []said{{0, 11, 9, 1}, {0, 12, 9, 2}, {time.Minute, 13, 8, 3}}, true},
		{"another replica runs there", []said{{0, 11, 9, 1}, {0, 12, 9, 2}, {0, 23, 8, 3}}, true},
		{"one without a vote does not know", []said{{0, 11, 9, 1}, {0, 12, 9, 2}, {0, 13, 9, 3}, {0, 14, 8, 4}}, true},
	} {
		v := View{Now: time.Hour, Health: map[uint64]Heartbeat{}}
		for _, s := range c.said {
			v.Health[s.instance] = Heartbeat{
				Heard:  v.Now - s.age,
				Shards: map[uint64]ShardReport{2: {Replica: s.replica, Members: s.knows}},
			}
		}
		if got := v.knowMembership(x, m); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
