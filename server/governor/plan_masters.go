package governor

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// planMasters has each shard led by the instance that the map names. It moves leaderships away from
// leaving instances, and spreads the others evenly over the members of each replicaset.
func planMasters(p *planner) {
	if p.Health == nil {
		return // a single instance
	}
	loads := make(map[uint64]int) // by instance; moving leaderships count at their target
	for i := range p.shards {
		if x := &p.shards[i]; x.ID != meta.MetaShardID && !p.surplus[x.ID] {
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
			switch at := planMaster(p, x, loads); {
			case at == leaderMissing || isStarting(p, x) || p.reconfiguring[x.ID] || p.missingVotes[x.Replicaset]:
				s.blocked = true
			case at == leaderMoving:
				s.moving++
			case p.surplus[x.ID]: // it goes
			default:
				s.shards = append(s.shards, x)
			}
		}
	}
	for _, set := range p.State.Replicasets() {
		if s := spreads[set.ID]; !s.blocked && set.Phase != meta.ToBeExpelled {
			planSpread(p, s, loads)
		}
	}
}

// spreadShare bounds how many leaderships of a replicaset move at a time to be spread evenly: one
// in spreadShare, and at least one. A leadership counts until its new leader's heartbeat arrives,
// so leaderships move more slowly on a slow machine.
const spreadShare = 16

// leaderSpread is the input for spreading a replicaset's leaderships.
type leaderSpread struct {
	shards  []*shardView // whose leadership stays
	moving  int          // how many leaderships move
	blocked bool         // a shard lacks a leader or changes it, or members change: that goes first
}

// leadershipState is the state of a shard's leadership.
type leadershipState uint8

const (
	leaderMissing leadershipState = iota // the shard has no leader, or the leader leaves
	leaderMoving                         // to spread leaderships
	leaderStable
)

// isStarting reports whether a new shard is getting its nodes and buckets. Proposals fail while its
// leader changes, so its leadership is spread later.
func isStarting(p *planner, x *shardView) bool {
	t, _ := p.State.Tier(x.Tier)
	return !x.Ready && t.Bootstrapped
}

// targetMaster is the instance that is to lead a shard.
func targetMaster(x *meta.Shard) uint64 { return cmp.Or(x.TargetMaster, x.Master) }

// planMaster plans the leadership of one shard.
func planMaster(p *planner, x *shardView, loads map[uint64]int) leadershipState {
	what := fmt.Sprintf("%s to be led", x)
	if leavesWhole(p, x) {
		switch {
		case !x.led && len(x.Replicas) > 1:
			p.addWait(p.electionWait(&x.Shard), what, "%s", p.noQuorumReason(&x.Shard))
		case x.led && x.Master != x.leader.Instance:
			p.add(Step{Kind: SetMaster, Shard: x.ID, Instance: x.leader.Instance, Revision: x.Revision})
		}
		return leaderMissing // no other instance need lead it
	}
	if !x.led {
		p.addWait(p.electionWait(&x.Shard), what, "%s", p.noQuorumReason(&x.Shard))
		if transferredRecently(p, x.ID) {
			return leaderMoving
		}
		return leaderMissing
	}
	if mayLeaveWhole(p, x) {
		return leaderMissing // planRoles gives the reason
	}
	want, leader := targetMaster(&x.Shard), x.leader.Instance
	setTarget := func(next uint64) {
		loads[want]--
		loads[next]++
		p.add(Step{Kind: SetTargetMaster, Shard: x.ID, Instance: next, Revision: x.Revision})
	}
	choose := func() {
		if next := leastLoaded(p, x, want, loads); next != 0 {
			setTarget(next)
			return
		}
		p.addWait(successorWait(p, x), what+" by another instance than "+p.name(leader),
			"no other voter of it is online, stays, and has caught up")
	}
	switch {
	case x.Master != leader && want == x.Master && mayStayLeader(p, x, p.instances[leader]) &&
		x.leader.Role == meta.RoleVoter:
		// An election: its winner becomes the target. The target is written first, so that the old
		// master is not taken for it.
		setTarget(leader)
	case x.Master != leader:
		// A transfer that was not recorded, or an election on the way.
		p.add(Step{Kind: SetMaster, Shard: x.ID, Instance: leader, Revision: x.Revision})
		if leader == want {
			return leaderMoving
		}
	case want != leader && canLead(p, x, want) && !p.fresh(want):
		// It may have died just now, and a shard serves nobody while its leadership is offered to a
		// dead replica.
		p.addWait(Underway, what+" by "+p.name(want), "it has not been heard for a moment")
	case want != leader && canLead(p, x, want):
		p.transferring[x.ID] = true
		if isMovingBuckets(p, x.ID) {
			p.addDependentWait(what+" by "+p.name(want), "a move of its buckets is under way")
			break
		}
		r, _ := x.On(want)
		h, _ := p.replicaHealth(&x.leader, x.ID)
		p.add(Step{Kind: TransferLeader, Shard: x.ID, Instance: want, Replica: r.Replica, Term: h.Term})
		if mayStayLeader(p, x, p.instances[leader]) {
			return leaderMoving
		}
	case want != leader:
		// The target cannot lead any more.
		if i := p.instances[leader]; mayStayLeader(p, x, i) {
			setTarget(leader)
		} else {
			choose()
		}
	case !mayStayLeader(p, x, p.instances[leader]):
		choose()
	case x.TargetMaster == 0 && x.leader.Role == meta.RoleVoter: // the target is no member any more
		p.add(Step{Kind: SetTargetMaster, Shard: x.ID, Instance: leader, Revision: x.Revision})
	default:
		return leaderStable
	}
	return leaderMissing
}

// transferredRecently reports whether a shard's leadership was transferred a moment ago, and the
// new leader's next heartbeat is still to come.
func transferredRecently(p *planner, shard uint64) bool {
	h, ok := p.Progress.transfers[shard]
	return ok && p.Now-h.at <= FreshLimit
}

// isMovingBuckets reports whether a move needs this shard until a copy of its buckets serves: both
// shards until the move is decided, then the owner.
func isMovingBuckets(p *planner, shard uint64) bool {
	return slices.ContainsFunc(p.State.Moves(), func(m meta.Move) bool {
		needed := m.From == shard && m.Phase != meta.Committed || m.To == shard && m.Phase != meta.Aborted
		return needed && !p.Progress.moves[m.Ref()].activated
	})
}

// successorWait is the kind of a wait for an instance that could take over a shard: Underway if one
// is there and has only to catch up.
func successorWait(p *planner, x *shardView) WaitKind {
	for _, r := range x.Replicas {
		i := p.instances[r.Instance]
		if i != nil && r.Instance != x.leader.Instance && r.Role == meta.RoleVoter && r.TargetRole == meta.RoleVoter &&
			online(i) && stays(i) && p.fresh(i.ID) {
			return Underway
		}
	}
	return Outside
}

// mayStayLeader reports whether the leader need not transfer.
func mayStayLeader(p *planner, x *shardView, i *meta.Instance) bool {
	if i == nil || !stays(i) {
		return false
	}
	r, ok := x.On(i.ID)
	return ok && r.TargetRole != meta.RoleNone
}

// canLead reports whether an instance can take over a shard's leadership. A leaving instance can if
// there is no other candidate and the leading replica is being removed: otherwise neither could
// ever go.
func canLead(p *planner, x *shardView, instance uint64) bool {
	if isCandidate(p, x, instance) {
		return true
	}
	r, _ := x.On(instance)
	return x.leader.TargetRole == meta.RoleNone && isCaughtUpVoter(p, x, &r) &&
		!slices.ContainsFunc(x.Replicas, func(r meta.Replica) bool { return isCandidate(p, x, r.Instance) })
}

// isCandidate reports whether an instance that stays can lead the shard.
func isCandidate(p *planner, x *shardView, instance uint64) bool {
	i := p.instances[instance]
	r, ok := x.On(instance)
	return ok && i != nil && online(i) && stays(i) && isCaughtUpVoter(p, x, &r)
}

// isCaughtUpVoter reports whether a replica has a vote, keeps it, and has caught up.
func isCaughtUpVoter(p *planner, x *shardView, r *meta.Replica) bool {
	return r.Role == meta.RoleVoter && r.TargetRole == meta.RoleVoter && p.caughtUp(r, x.ID)
}

// successor is the instance with the lowest id that can take a shard over from another; 0 for none.
func successor(p *planner, x *shardView, from uint64) uint64 {
	for _, r := range x.Replicas {
		if r.Instance != from && canLead(p, x, r.Instance) {
			return r.Instance
		}
	}
	return 0
}

// leastLoaded is the instance that leads the fewest shards, of those that can take this one over
// and sent a heartbeat a moment ago. Ties go to the lowest id; 0 for none.
func leastLoaded(p *planner, x *shardView, from uint64, loads map[uint64]int) uint64 {
	best := uint64(0)
	for _, r := range x.Replicas {
		if r.Instance == from || r.Instance == x.leader.Instance || !canLead(p, x, r.Instance) || !p.fresh(r.Instance) {
			continue
		}
		if best == 0 || loads[r.Instance] < loads[best] || (loads[r.Instance] == loads[best] && r.Instance < best) {
			best = r.Instance
		}
	}
	return best
}

// planSpread moves leaderships from the member with the most to the one with the fewest, while the
// difference is two or more. Shards whose records changed longest ago move first: a leadership
// moved by an operator stays longest.
func planSpread(p *planner, s *leaderSpread, loads map[uint64]int) {
	slices.SortFunc(s.shards, func(a, b *shardView) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), cmp.Compare(a.ID, b.ID))
	})
	for free := max(1, (len(s.shards)+s.moving)/spreadShare) - s.moving; free > 0; free-- {
		gain, best, target := 1, -1, uint64(0)
		for i, x := range s.shards {
			if to := leastLoaded(p, x, 0, loads); to != 0 && loads[x.Master]-loads[to] > gain {
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
