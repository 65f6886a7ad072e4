package governor

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// planMasters has each shard led by the instance that the map names, moves leaderships away from instances that leave, and spreads the others evenly over
// the members of each replicaset.
func (p *planner) planMasters() {
	if p.Health == nil {
		return // one instance, by itself
	}
	loads := make(map[uint64]int) // masters by instance, those on their way counted where they go
	for i := range p.shards {
		if x := &p.shards[i]; x.ID != meta.MetaShardID {
			loads[targetMaster(&x.Shard)]++
		}
	}
	spreads := make(map[uint64]*leaderSpread)
	for _, set := range p.State.Replicasets() {
		spreads[set.ID] = &leaderSpread{}
	}
	for i := range p.shards {
		switch x := &p.shards[i]; {
		case x.ID == meta.MetaShardID:
			if x.led && x.leader.Instance != x.Master {
				p.add(Step{Kind: SetMaster, Shard: x.ID, Instance: x.leader.Instance, Revision: x.Revision})
			}
		default:
			s := spreads[x.Replicaset]
			switch at := p.planMaster(x, loads); {
			case at == leaderMissing || p.isStarting(x) || p.reconfiguring[x.ID] || p.missingVotes[x.Replicaset]:
				s.blocked = true
			case at == leaderMoving:
				s.moving++
			default:
				s.shards = append(s.shards, x)
			}
		}
	}
	for _, set := range p.State.Replicasets() {
		if s := spreads[set.ID]; !s.blocked && set.Phase != meta.ToBeExpelled {
			p.planSpread(s, loads)
		}
	}
}

// spreadShare bounds how many leaderships of a replicaset move at a time to be spread evenly: one
// of so many, and at least one. A leadership counts until its new leader was heard, so that on a
// slow machine they move as slowly as the shards can bear.
const spreadShare = 16

// spread is what the even distribution of a replicaset's leaderships needs to know.
type leaderSpread struct {
	shards  []*shardView // whose leadership stays where it is
	moving  int          // how many leaderships move
	blocked bool         // a shard has no leader, or has to get another one, or members come or go: that goes first
}

// mastery is how a shard's leadership stands.
type leadershipState uint8

const (
	leaderMissing leadershipState = iota // the shard has no leader, or the leader has to go
	leaderMoving                         // it moves to another instance, for the even distribution
	leaderStable
)

// isStarting says that a new shard is told of its nodes and buckets now. What it is told while its leader changes fails, so its leadership is spread later.
func (p *planner) isStarting(x *shardView) bool {
	t, _ := p.State.Tier(x.Tier)
	return !x.Ready && t.Bootstrapped
}

// wanted is the instance that a shard is to be led by.
func targetMaster(x *meta.Shard) uint64 {
	if x.TargetMaster != 0 {
		return x.TargetMaster
	}
	return x.Master
}

// planMaster plans for one shard.
func (p *planner) planMaster(x *shardView, loads map[uint64]int) leadershipState {
	if set, _ := p.State.Replicaset(x.Replicaset); set.Phase == meta.ToBeExpelled && len(x.Replicas) == 1 {
		return leaderMissing // nobody is left to take it, and nobody has to
	}
	what := fmt.Sprintf("%s to be led", x)
	if !x.led {
		p.addWait(p.electionWait(&x.Shard), what, "%s", p.noQuorumReason(&x.Shard))
		if p.transferredRecently(x.ID) {
			return leaderMoving
		}
		return leaderMissing
	}
	want, leader := targetMaster(&x.Shard), x.leader.Instance
	choose := func() uint64 {
		next := p.leastLoaded(x, want, loads)
		if next != 0 {
			loads[want]--
			loads[next]++
			p.add(Step{Kind: SetTargetMaster, Shard: x.ID, Instance: next, Revision: x.Revision})
		}
		return next
	}
	switch {
	case x.Master != leader && want == x.Master && p.mayStayLeader(x, p.instances[leader]) && x.leader.Role == meta.RoleVoter:
		// An election while nothing was to move: that is wanted from now on, whoever comes back. First this, so that the old one is not taken for a wish.
		loads[want]--
		loads[leader]++
		p.add(Step{Kind: SetTargetMaster, Shard: x.ID, Instance: leader, Revision: x.Revision})
	case x.Master != leader:
		// A transfer whose end nobody has written down, or an election on the way.
		p.add(Step{Kind: SetMaster, Shard: x.ID, Instance: leader, Revision: x.Revision})
		if leader == want {
			return leaderMoving
		}
	case want != leader && p.canLead(x, want) && !p.fresh(want):
		// It may have died just now, and while leadership is offered to the dead nobody is served.
		p.addWait(Underway, what+" by "+p.name(want), "it has not been heard for a moment")
	case want != leader && p.canLead(x, want):
		p.transferring[x.ID] = true
		if p.isMovingBuckets(x.ID) {
			p.addDependentWait(what+" by "+p.name(want), "a move of its buckets is under way") // one interruption after the other
			break
		}
		r, _ := x.On(want)
		h, _ := p.replicaHealth(&x.leader, x.ID)
		p.add(Step{Kind: TransferLeader, Shard: x.ID, Instance: want, Replica: r.Replica, Term: h.Term})
		if p.mayStayLeader(x, p.instances[leader]) {
			return leaderMoving
		}
	case want != leader:
		// The one it was to go to cannot have it any more.
		if i := p.instances[leader]; p.mayStayLeader(x, i) {
			loads[want]--
			loads[leader]++
			p.add(Step{Kind: SetTargetMaster, Shard: x.ID, Instance: leader, Revision: x.Revision})
		} else if choose() == 0 {
			p.addWait(p.successorWait(x), what+" by another instance than "+p.name(leader), "no other voter of it is online, stays, and has caught up")
		}
	case !p.mayStayLeader(x, p.instances[leader]):
		if choose() == 0 {
			p.addWait(p.successorWait(x), what+" by another instance than "+p.name(leader), "no other voter of it is online, stays, and has caught up")
		}
	case x.TargetMaster == 0 && x.leader.Role == meta.RoleVoter: // who was wanted is no member any more
		p.add(Step{Kind: SetTargetMaster, Shard: x.ID, Instance: leader, Revision: x.Revision})
	default:
		return leaderStable
	}
	return leaderMissing
}

// transferredRecently says that a shard's leadership was handed over a moment ago, and the next heartbeat of
// who took it is still to come.
func (p *planner) transferredRecently(shard uint64) bool {
	h, ok := p.Progress.transfers[shard]
	return ok && p.Now-h.at <= FreshLimit
}

// isMovingBuckets says that a move needs the shard as it is until a copy of its buckets serves: both
// sides until it is decided, the owner then.
func (p *planner) isMovingBuckets(shard uint64) bool {
	return slices.ContainsFunc(p.State.Moves(), func(m meta.Move) bool {
		needed := m.From == shard && m.Phase != meta.Committed || m.To == shard && m.Phase != meta.Aborted
		return needed && !p.Progress.moves[m.Ref()].activated
	})
}

// heirless is the kind of a wait for an instance that could take a shard over: one that is there may do so
// once it has caught up.
func (p *planner) successorWait(x *shardView) WaitKind {
	for _, r := range x.Replicas {
		i := p.instances[r.Instance]
		if i != nil && r.Instance != x.leader.Instance && r.Role == meta.RoleVoter && r.TargetRole == meta.RoleVoter && online(i) && stays(i) && p.fresh(i.ID) {
			return Underway
		}
	}
	return Outside
}

// mayStayLeader says that the leader may stay.
func (p *planner) mayStayLeader(x *shardView, i *meta.Instance) bool {
	if i == nil || !stays(i) {
		return false
	}
	r, ok := x.On(i.ID)
	return ok && r.TargetRole != meta.RoleNone
}

// canLead says that an instance can take a shard's leadership over. One that goes away itself can only if nobody else is there and the replica that leads is
// to be removed: else neither of them could ever go.
func (p *planner) canLead(x *shardView, instance uint64) bool {
	if p.isCandidate(x, instance) {
		return true
	}
	r, _ := x.On(instance)
	return x.leader.TargetRole == meta.RoleNone && p.isCaughtUpVoter(x, &r) && !slices.ContainsFunc(x.Replicas, func(r meta.Replica) bool { return p.isCandidate(x, r.Instance) })
}

func (p *planner) isCandidate(x *shardView, instance uint64) bool {
	i := p.instances[instance]
	r, ok := x.On(instance)
	return ok && i != nil && online(i) && stays(i) && p.isCaughtUpVoter(x, &r)
}

// isCaughtUpVoter says that a replica has a vote, keeps it, and has caught up.
func (p *planner) isCaughtUpVoter(x *shardView, r *meta.Replica) bool {
	return r.Role == meta.RoleVoter && r.TargetRole == meta.RoleVoter && p.caughtUp(r, x.ID)
}

// successor is an instance that can take a shard's leadership over from another: the one with the lowest id, 0 for none.
func (p *planner) successor(x *shardView, from uint64) uint64 {
	for _, r := range x.Replicas {
		if r.Instance != from && p.canLead(x, r.Instance) {
			return r.Instance
		}
	}
	return 0
}

// lightest is the instance that leads the fewest shards of those that can take this one over and were heard a moment ago, of equals the lowest id; 0 for none.
func (p *planner) leastLoaded(x *shardView, from uint64, loads map[uint64]int) uint64 {
	best := uint64(0)
	for _, r := range x.Replicas {
		if r.Instance == from || r.Instance == x.leader.Instance || !p.canLead(x, r.Instance) || !p.fresh(r.Instance) {
			continue
		}
		if best == 0 || loads[r.Instance] < loads[best] || (loads[r.Instance] == loads[best] && r.Instance < best) {
			best = r.Instance
		}
	}
	return best
}

// planSpread moves leaderships from the member that has the most to the one that has the fewest,
// while the difference is two or more. A smaller one cannot be made smaller, and whoever has a
// leadership keeps it. It moves those that were touched least lately: what somebody moved by hand
// stays longest.
func (p *planner) planSpread(s *leaderSpread, loads map[uint64]int) {
	slices.SortFunc(s.shards, func(a, b *shardView) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), cmp.Compare(a.ID, b.ID))
	})
	for free := max(1, (len(s.shards)+s.moving)/spreadShare) - s.moving; free > 0; free-- {
		gain, best, target := 1, -1, uint64(0)
		for i, x := range s.shards {
			if to := p.leastLoaded(x, 0, loads); to != 0 && loads[x.Master]-loads[to] > gain {
				gain, best, target = loads[x.Master]-loads[to], i, to
			}
		}
		if best < 0 {
			return
		}
		x := s.shards[best]
		s.shards = slices.Delete(s.shards, best, best+1)
		loads[x.Master]--
		loads[target]++
		p.add(Step{Kind: SetTargetMaster, Shard: x.ID, Instance: target, Revision: x.Revision})
	}
}
