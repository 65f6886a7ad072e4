package governor

import (
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/signalbox-dev/signalbox/protocol"
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

// TestVoterDiesAfterThePlan: a change of a group that was planned while its voters took part is
// refused when one of them has died since: too few would be left after it, or the new one is dead.
func TestVoterDiesAfterThePlan(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name string
		kind StepKind
		lead func(s *clusterScript, b, c uint64) // what has the step planned
		dies string
	}{
		{"removal", RemoveReplica, func(s *clusterScript, _, c uint64) {
			s.apply(&meta.InstanceUpdate{Instance: c, Target: meta.Expelled, Reason: meta.ReasonExpel, Force: true})
		}, "b"},
		{"promotion", PromoteReplica, func(s *clusterScript, _, _ uint64) { s.join("d", "", "", ""); s.join("e", "", "", "") }, ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			s := &clusterScript{progress: NewProgress()}
			datadriven.RunTestFromString(t, "bootstrap factor=3 shards=1 buckets=8\n----\n\njoin b\n----\n\n"+
				"join c\n----\n\nconverge quiet\n----\n", s.run)
			b, _ := s.machine.InstanceByName("b")
			c, _ := s.machine.InstanceByName("c")
			x.lead(s, b.ID, c.ID)
			var found *Step
			for range 200 {
				s.heartbeat()
				s.detectFailures()
				for _, step := range Plan(s.view(s.progress)) {
					if step.Kind == x.kind && step.Shard == meta.MetaShardID {
						found = &step
						break
					}
					if answer, err := s.gov.execute(t.Context(), &step); err == nil {
						s.progress.Done(&step, s.now, s.now, answer)
					}
				}
				if found != nil {
					break
				}
			}
			if found == nil {
				t.Fatalf("it is not planned:\n%s", s.explain())
			}
			dead := found.Instance
			if x.dies != "" {
				i, _ := s.machine.InstanceByName(x.dies)
				dead = i.ID
			}
			s.kill(dead)
			for end := s.now + 2*DefaultOfflineAfter; s.now < end; {
				s.heartbeat()
			}
			g := s.groups[meta.MetaShardID]
			before := maps.Clone(g.voters)
			if _, err := s.gov.execute(t.Context(), found); !errors.Is(err, protocol.StatusPreconditionFailed) {
				t.Errorf("%s: %v", found, err)
			}
			if !maps.Equal(g.voters, before) {
				t.Errorf("%s: the voters are %v, and were %v", found, g.voters, before)
			}
		})
	}
}
