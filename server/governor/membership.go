package governor

import (
	"context"
	"errors"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

var errNoGroups = errors.New("this governor was not given the raft groups; it runs for a cluster of one instance")

// Expel decides that an instance leaves for good. Its leaderships, its vote and, if it is the last
// of its replicaset, its buckets go to others first. Without force it must be Offline and lead
// nothing. With force or without, it is refused if a group is, or would be left, without a
// majority, or if its buckets had nowhere to go. No data is lost either way.
func (g *Governor) Expel(ctx context.Context, instance uint64, force bool) (meta.Instance, error) {
	if why := expelRefusal(g.view(), instance); why != "" {
		return meta.Instance{}, protocol.Errorf(protocol.StatusPreconditionFailed, "%s", why)
	}
	return g.UpdateInstance(ctx, meta.InstanceUpdate{Instance: instance, Target: meta.Expelled,
		Reason: meta.ReasonExpel, Force: force})
}

// changeMembership makes one change of a group's membership and records it in the map. The plan
// went by the map; here the group itself is read, and the change names that membership.
func (g *Governor) changeMembership(ctx context.Context, s *Step) error {
	if g.groups == nil {
		return errNoGroups
	}
	state := g.State()
	x, _ := state.Shard(s.Shard)
	r, ok := x.Replica(s.Replica)
	if !ok {
		return nil // done and recorded
	}
	i, _ := state.Instance(r.Instance)
	m, err := g.groups.Members(ctx, s.Shard)
	if err != nil {
		return err
	}
	_, voter := m.Voters[r.Replica]
	_, nonVoting := m.NonVotings[r.Replica]
	removed := slices.Contains(m.Removed, r.Replica)
	role := meta.RoleNone
	switch s.Kind {
	case JoinReplica:
		role = meta.RoleNonVoting
		switch {
		case r.TargetRole == meta.RoleNone || removed:
			return protocol.Errorf(protocol.StatusAborted, "replica %d of shard %d is to go", r.Replica, s.Shard)
		case voter:
			role = meta.RoleVoter
		case !nonVoting:
			err = g.groups.AddNonVoting(ctx, s.Shard, r.Replica, i.RaftAddress, m.ConfigChange)
		}
	case PromoteReplica:
		role = meta.RoleVoter
		switch {
		case voter:
		case r.TargetRole != meta.RoleVoter || !nonVoting:
			return protocol.Errorf(protocol.StatusAborted, "replica %d of shard %d is to have no vote", r.Replica, s.Shard)
		case !mayPromote(m, r.Replica, g.live(&x)) || !g.fresh(r.Instance):
			return errTooFewVoters(s.Shard)
		default:
			err = g.groups.Promote(ctx, s.Shard, r.Replica, m.ConfigChange)
		}
		if err == nil {
			err = g.awaitMembershipKnown(ctx, s.Shard)
		}
	case RemoveReplica:
		switch {
		case r.TargetRole != meta.RoleNone:
			return protocol.Errorf(protocol.StatusAborted, "replica %d of shard %d is to stay", r.Replica, s.Shard)
		case !voter && !nonVoting && removed:
		case !mayRemove(m, r.Replica, g.live(&x)):
			return errTooFewVoters(s.Shard)
		default:
			// Also if the group does not know it: a late message might still add it, but not after
			// the removal.
			err = g.groups.Remove(ctx, s.Shard, r.Replica, m.ConfigChange)
		}
	}
	if err != nil {
		return err
	}
	return g.proposeMeta(ctx, &meta.ReplicaRole{Shard: s.Shard, Replica: s.Replica, Role: role})
}

// awaitMembershipKnown returns when all voters of a shard that take part have reported the present
// membership as applied. The engine counts votes by the membership that a replica has applied: if
// only the leader knows of a new voter and dies, a majority may not know that it is one. So the map
// shows a new vote only after this.
func (g *Governor) awaitMembershipKnown(ctx context.Context, shard uint64) error {
	m, err := g.groups.Members(ctx, shard)
	if err != nil {
		return err
	}
	for {
		changed := g.changes.wait()
		v := g.view()
		if x, _ := v.State.Shard(shard); v.knowMembership(&x, &m) {
			return nil
		}
		if !sleep(ctx, changed, Backoff) {
			return protocol.Errorf(protocol.StatusUnavailable,
				"not all voters of shard %d have applied its new members yet", shard)
		}
	}
}

func errTooFewVoters(shard uint64) error {
	return protocol.Errorf(protocol.StatusPreconditionFailed,
		"after this change too few voters of shard %d would take part; start more of them", shard)
}

// live returns a test of whether a replica of a shard takes part, by the last heartbeats.
func (g *Governor) live(x *meta.Shard) func(replica uint64) bool {
	v := View{Now: g.clock.Now(), Health: g.health(), OfflineAfter: g.offlineAfter}
	return func(replica uint64) bool {
		r, ok := x.Replica(replica)
		return ok && v.takesPart(&r, x.ID)
	}
}

func (g *Governor) fresh(instance uint64) bool {
	v := View{Now: g.clock.Now(), Health: g.health(), OfflineAfter: g.offlineAfter}
	return v.fresh(instance)
}

// transferLeadership transfers leadership and, for a data shard, records it in the map.
func (g *Governor) transferLeadership(ctx context.Context, s *Step) error {
	if g.groups == nil {
		return errNoGroups
	}
	if s.Kind == TransferLeader {
		if x, _ := g.State().Shard(s.Shard); targetMaster(&x) != s.Instance {
			return protocol.Errorf(protocol.StatusAborted, "shard %d is to be led by another instance", s.Shard)
		}
	}
	if err := g.groups.Transfer(ctx, s.Shard, s.Replica, s.Term); err != nil || s.Kind == TransferGovernor {
		return err
	}
	return g.proposeMeta(ctx, &meta.MasterCurrent{Shard: s.Shard, Instance: s.Instance})
}

// health is the last heartbeats; nil for none.
func (g *Governor) health() map[uint64]Heartbeat {
	if g.instances == nil {
		return nil
	}
	return g.instances.Health()
}
