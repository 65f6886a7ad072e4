package governor

import (
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
			loads[wanted(&x.Shard)]++
		}
	}
	settled := make(map[uint64]bool) // replicasets in which no leadership moves
	for _, set := range p.State.Replicasets() {
		settled[set.ID] = true
	}
	for i := range p.shards {
		switch x := &p.shards[i]; {
		case x.ID == meta.MetaShardID:
			if x.led && x.leader.Instance != x.Master {
				p.add(Step{Kind: FollowMaster, Shard: x.ID, Instance: x.leader.Instance, Revision: x.Revision})
			}
		case !p.planMaster(x, loads), p.comesToWork(x):
			settled[x.Replicaset] = false
		}
	}
	for _, set := range p.State.Replicasets() {
		if settled[set.ID] && set.Phase != meta.ToBeExpelled {
			p.planSpread(set.ID, loads)
		}
	}
}

// comesToWork says that a new shard is told of its nodes and buckets now. What it is told while its leader changes fails, so its leadership is spread later.
func (p *planner) comesToWork(x *shardView) bool {
	t, _ := p.State.Tier(x.Tier)
	return !x.Ready && t.Bootstrapped
}

// wanted is the instance that a shard is to be led by.
func wanted(x *meta.Shard) uint64 {
	if x.WantMaster != 0 {
		return x.WantMaster
	}
	return x.Master
}

// planMaster plans for one shard. False when its leadership moves, is to move, or is nobody's.
func (p *planner) planMaster(x *shardView, loads map[uint64]int) bool {
	if set, _ := p.State.Replicaset(x.Replicaset); set.Phase == meta.ToBeExpelled && len(x.Replicas) == 1 {
		return false // nobody is left to take it, and nobody has to
	}
	what := fmt.Sprintf("%s to be led", x)
	if !x.led {
		p.because(p.leaderless(&x.Shard), what, "%s", p.noMajority(&x.Shard))
		return false
	}
	want, leader := wanted(&x.Shard), x.leader.Instance
	choose := func() uint64 {
		next := p.lightest(x, want, loads)
		if next != 0 {
			loads[want]--
			loads[next]++
			p.add(Step{Kind: WantMaster, Shard: x.ID, Instance: next, Revision: x.Revision})
		}
		return next
	}
	switch {
	case x.Master != leader && want == x.Master && p.mayKeep(x, p.instances[leader]) && x.leader.Role == meta.RoleVoter:
		// An election while nothing was to move: that is wanted from now on, whoever comes back. First this, so that the old one is not taken for a wish.
		loads[want]--
		loads[leader]++
		p.add(Step{Kind: WantMaster, Shard: x.ID, Instance: leader, Revision: x.Revision})
	case x.Master != leader:
		// A transfer whose end nobody has written down, or an election on the way.
		p.add(Step{Kind: FollowMaster, Shard: x.ID, Instance: leader, Revision: x.Revision})
	case want != leader && p.canLead(x, want) && !p.fresh(want):
		// It may have died just now, and while leadership is offered to the dead nobody is served.
		p.because(Underway, what+" by "+p.name(want), "it has not been heard for a moment")
	case want != leader && p.canLead(x, want):
		r, _ := x.On(want)
		h, _ := p.runs(&x.leader, x.ID)
		p.add(Step{Kind: TransferMaster, Shard: x.ID, Instance: want, Replica: r.Replica, Term: h.Term})
	case want != leader:
		// The one it was to go to cannot have it any more.
		if i := p.instances[leader]; p.mayKeep(x, i) {
			loads[want]--
			loads[leader]++
			p.add(Step{Kind: WantMaster, Shard: x.ID, Instance: leader, Revision: x.Revision})
		} else if choose() == 0 {
			p.because(p.heirless(x), what+" by another instance than "+p.name(leader), "no other voter of it is online, stays, and has caught up")
		}
	case !p.mayKeep(x, p.instances[leader]):
		if choose() == 0 {
			p.because(p.heirless(x), what+" by another instance than "+p.name(leader), "no other voter of it is online, stays, and has caught up")
		}
	case x.WantMaster == 0 && x.leader.Role == meta.RoleVoter: // who was wanted is no member any more
		p.add(Step{Kind: WantMaster, Shard: x.ID, Instance: leader, Revision: x.Revision})
	default:
		return true
	}
	return false
}

// heirless is the kind of a wait for an instance that could take a shard over: one that is there may do so
// once it has caught up.
func (p *planner) heirless(x *shardView) WaitKind {
	for _, r := range x.Replicas {
		i := p.instances[r.Instance]
		if i != nil && r.Instance != x.leader.Instance && r.Role == meta.RoleVoter && r.Want == meta.RoleVoter && online(i) && stays(i) && p.fresh(i.ID) {
			return Underway
		}
	}
	return Outside
}

// mayKeep says that the leader may stay.
func (p *planner) mayKeep(x *shardView, i *meta.Instance) bool {
	if i == nil || !stays(i) {
		return false
	}
	r, ok := x.On(i.ID)
	return ok && r.Want != meta.RoleNone
}

// canLead says that an instance can take a shard's leadership over. One that goes away itself can only if nobody else is there and the replica that leads is
// to be removed: else neither of them could ever go.
func (p *planner) canLead(x *shardView, instance uint64) bool {
	if p.canLeadLong(x, instance) {
		return true
	}
	r, _ := x.On(instance)
	return x.leader.Want == meta.RoleNone && p.hasUp(x, &r) && !slices.ContainsFunc(x.Replicas, func(r meta.Replica) bool { return p.canLeadLong(x, r.Instance) })
}

func (p *planner) canLeadLong(x *shardView, instance uint64) bool {
	i := p.instances[instance]
	r, ok := x.On(instance)
	return ok && i != nil && online(i) && stays(i) && p.hasUp(x, &r)
}

// hasUp says that a replica has a vote, keeps it, and has caught up.
func (p *planner) hasUp(x *shardView, r *meta.Replica) bool {
	return r.Role == meta.RoleVoter && r.Want == meta.RoleVoter && p.caughtUp(r, x.ID)
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
func (p *planner) lightest(x *shardView, from uint64, loads map[uint64]int) uint64 {
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

// planSpread moves one leadership from the member that has the most to the one that has the fewest, if the difference is two or more. A smaller one cannot be
// made smaller, and whoever has a leadership keeps it. It moves the one that was touched least lately: what somebody moved by hand stays longest.
func (p *planner) planSpread(replicaset uint64, loads map[uint64]int) {
	var list []*shardView
	for i := range p.shards {
		if x := &p.shards[i]; x.ID != meta.MetaShardID && x.Replicaset == replicaset {
			list = append(list, x)
		}
	}
	slices.SortFunc(list, func(a, b *shardView) int {
		if c := order(a.Revision, b.Revision); c != 0 {
			return c
		}
		return order(a.ID, b.ID)
	})
	gain := 1
	var from *shardView
	for _, x := range list {
		to := p.lightest(x, 0, loads)
		if to == 0 {
			continue
		}
		if d := loads[x.Master] - loads[to]; d > gain {
			gain, from = d, x
		}
	}
	if from != nil {
		p.add(Step{Kind: WantMaster, Shard: from.ID, Instance: p.lightest(from, 0, loads), Revision: from.Revision})
	}
}
