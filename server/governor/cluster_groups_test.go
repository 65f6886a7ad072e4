package governor

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// plainGroup is a raft group.
type plainGroup struct {
	change     uint64
	voters     map[uint64]uint64 // replica -> instance
	nonVotings map[uint64]uint64
	removed    map[uint64]bool
	leader     uint64 // replica, 0 for none
	term       uint64
	log        uint64
	applied    map[uint64]uint64
}

type clusterGroups struct{ *cluster }

func (s clusterGroups) Members(_ context.Context, x uint64) (Membership, error) {
	if !s.ensureLeader(x) {
		return Membership{}, errNoLeader
	}
	g := s.groups[x]
	m := Membership{
		ConfigChange: g.change, Voters: map[uint64]string{}, NonVotings: map[uint64]string{},
		Removed: slices.Sorted(maps.Keys(g.removed)),
	}
	for id := range g.voters {
		m.Voters[id] = "x"
	}
	for id := range g.nonVotings {
		m.NonVotings[id] = "x"
	}
	return m, nil
}

// alter makes a change of a group, if it is made for the group as it is. It must be able to decide
// afterwards, as far as could be heard when it was asked for.
func (s clusterGroups) alter(x, change uint64, f func(g *plainGroup) error) error {
	heard := map[uint64]bool{}
	for id, p := range s.procs {
		heard[id] = s.now-p.heard <= DefaultOfflineAfter
	}
	return s.deliver(func() error {
		if !s.ensureLeader(x) {
			return errNoLeader
		}
		g := s.groups[x]
		if g.change != change {
			return protocol.Errorf(protocol.StatusAborted, "the group has changed")
		}
		before := len(g.voters)
		if err := f(g); err != nil {
			return err
		}
		g.change++
		g.log++
		live := 0
		for _, instance := range g.voters {
			if heard[instance] {
				live++
			}
		}
		if len(g.voters) != before && !isQuorum(len(g.voters), live) {
			s.violation(fmt.Sprintf("after a change of shard %d only %d of its voters %v were heard", x, live, g.voters))
		}
		return nil
	})
}

func (s clusterGroups) AddNonVoting(_ context.Context, x, replica uint64, _ string, change uint64) error {
	i, _ := s.machine.Shard(x)
	r, _ := i.Replica(replica)
	return s.alter(x, change, func(g *plainGroup) error {
		if g.removed[replica] || g.voters[replica] != 0 {
			return protocol.Errorf(protocol.StatusPreconditionFailed, "removed, or a voter")
		}
		for id, instance := range g.voters {
			if instance == r.Instance && id != replica {
				s.violation(fmt.Sprintf("instance %d has two replicas of shard %d", instance, x))
			}
		}
		g.nonVotings[replica] = r.Instance
		return nil
	})
}

func (s clusterGroups) Promote(_ context.Context, x, replica, change uint64) error {
	return s.alter(x, change, func(g *plainGroup) error {
		i, ok := g.nonVotings[replica]
		if !ok {
			return protocol.Errorf(protocol.StatusNotFound, "no such replica")
		}
		delete(g.nonVotings, replica)
		g.voters[replica] = i
		return nil
	})
}

func (s clusterGroups) Remove(_ context.Context, x, replica, change uint64) error {
	return s.alter(x, change, func(g *plainGroup) error {
		if len(g.voters) == 1 && g.voters[replica] != 0 {
			return protocol.Errorf(protocol.StatusPreconditionFailed, "the last voter")
		}
		delete(g.voters, replica)
		delete(g.nonVotings, replica)
		g.removed[replica] = true
		return nil
	})
}

func (s clusterGroups) Transfer(_ context.Context, x, replica, after uint64) error {
	return s.deliver(func() error {
		if !s.ensureLeader(x) || !slices.Contains(s.liveVoters(x), replica) {
			return errNoLeader
		}
		if s.groups[x].leader != replica {
			s.elect(x, replica)
		}
		if s.groups[x].term <= after {
			return errNoLeader
		}
		return nil
	})
}
