package governor

import (
	"time"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// DrainTimeout is how long an instance that goes offline may stay Online while its leaderships
// and votes are transferred.
const DrainTimeout = 2 * time.Second

// planInstances brings each instance's current state to its target state.
func planInstances(p *planner) {
	list := p.State.Instances()
	for n := range list {
		i := &list[n]
		if i.Current == i.Target || i.Expelled() {
			continue
		}
		ready := false
		switch i.Target.Variant {
		case meta.Offline:
			ready = readyToGoOffline(p, i)
		case meta.Online:
			ready = readyToGoOnline(p, i)
		case meta.Expelled:
			ready = readyToBeExpelled(p, i)
		}
		if ready {
			p.add(Step{Kind: SetCurrentState, Instance: i.ID, State: i.Target})
		}
	}
	planGovernorTransfer(p)
}

// readyToGoOffline reports whether an instance that goes offline has nothing left that another
// instance could take. A silent instance is not waited for: elections take its leaderships.
func readyToGoOffline(p *planner, i *meta.Instance) bool {
	if !p.alive(i.ID) || p.Now-p.Progress.goingOffline[i.ID] >= DrainTimeout {
		return true
	}
	what := p.name(i.ID) + " to go offline"
	for n := range p.shards {
		x := &p.shards[n]
		if x.led && x.leader.Instance == i.ID && successor(p, x, i.ID) != 0 {
			p.addWait(Underway, what, "it leads %s, whose leadership is transferred first", x)
			return false
		}
		if r, ok := x.On(i.ID); ok && r.Role == meta.RoleVoter && p.losingVote[[2]uint64{x.ID, i.ID}] {
			p.addWait(Underway, what, "it has a vote in %s, which another gets first", x)
			return false
		}
	}
	return true
}

// readyToGoOnline reports whether the replicas of a started instance run and have caught up.
func readyToGoOnline(p *planner, i *meta.Instance) bool {
	what := p.name(i.ID) + " to come online"
	h, heard := p.Health[i.ID]
	switch {
	case !heard || !p.alive(i.ID):
		p.addWait(Underway, what,
			"it has not been heard; see that it runs and reaches the instance that leads the meta shard")
		return false
	case h.Incarnation != i.Target.Incarnation:
		p.addWait(Underway, what, "it has not said yet that it was started as %s", i.Target)
		return false
	}
	for n := range p.shards {
		x := &p.shards[n]
		if x.ID != meta.MetaShardID && x.Replicaset != i.Replicaset {
			continue
		}
		if !x.led && isEmpty(p, x) {
			continue // nobody is served by it, and its founder may be gone for good
		}
		r, ok := x.On(i.ID)
		switch {
		case !ok || r.TargetRole == meta.RoleNone:
			p.addDependentWait(what, "it has no replica of %s yet", x)
		case !x.led:
			p.addWait(p.electionWait(&x.Shard), what,
				"%s has no leader that this governor has heard of; more of its replicas must come up", x)
		case r.Role == meta.RoleNone:
			p.addDependentWait(what, "its replica of %s is not in the group yet", x)
		case !p.takesPart(&r, x.ID):
			p.addWait(Underway, what, "its replica of %s does not run yet", x)
		case !p.caughtUp(&r, x.ID):
			p.addWait(Underway, what, "its replica of %s has not caught up yet", x)
		default:
			continue
		}
		return false
	}
	return true
}

// readyToBeExpelled reports whether an instance has no data and no vote, and that its replicaset
// has other members. The last member goes with its replicaset: see planReplicasetExpel.
func readyToBeExpelled(p *planner, i *meta.Instance) bool {
	what := p.name(i.ID) + " to be expelled"
	for n := range p.shards {
		x := &p.shards[n]
		_, has := x.On(i.ID)
		switch {
		case !has || x.ID == meta.MetaShardID:
			continue
		case isAbandoned(p, x): // see expelRefusal
			p.addWait(Outside, what, "it has a replica of %s, which has no buckets and no majority; "+
				"lower the number of shards, or expel all of its replicaset", x)
		default:
			p.addDependentWait(what, "it has a replica of %s", x)
		}
		return false
	}
	if !hasNoMetaVote(p, i) {
		p.addDependentWait(what, "it has a vote in the meta shard, or was to get one")
		return false
	}
	if hasOtherMembers(p, i) {
		return true
	}
	set, _ := p.State.Replicaset(i.Replicaset)
	p.addDependentWait(what, "it is the last of replicaset %s, which is expelled first", set.Name)
	return false
}

// hasNoMetaVote reports whether an instance certainly has no vote in the meta shard. If its replica
// was to get a vote and is to go now, that is not known before the replica is removed.
func hasNoMetaVote(p *planner, i *meta.Instance) bool {
	r, has := p.shards[len(p.shards)-1].On(i.ID)
	return !has || (r.Role != meta.RoleVoter && r.TargetRole == meta.RoleNonVoting)
}

// hasOtherMembers reports whether the instance's replicaset has another member that is not
// expelled.
func hasOtherMembers(p *planner, i *meta.Instance) bool {
	for _, o := range p.instances {
		if o.ID != i.ID && o.Replicaset == i.Replicaset && !o.Expelled() {
			return true
		}
	}
	return false
}

func hasShards(p *planner, replicaset uint64) bool {
	for i := range p.shards {
		if p.shards[i].Replicaset == replicaset && p.shards[i].ID != meta.MetaShardID {
			return true
		}
	}
	return false
}

// planGovernorTransfer transfers the meta shard's leadership, and with it the governor's work, when
// its instance leaves or loses its vote.
func planGovernorTransfer(p *planner) {
	x := &p.shards[len(p.shards)-1]
	if !x.led || mayStayLeader(p, x, p.instances[x.leader.Instance]) {
		return
	}
	next := successor(p, x, x.leader.Instance)
	if next == 0 {
		p.addDependentWait("the governor to move from "+p.name(x.leader.Instance),
			"no other instance that stays has a vote in the meta shard and has caught up")
		return
	}
	r, _ := x.On(next)
	p.add(Step{Kind: TransferGovernor, Shard: x.ID, Instance: next, Replica: r.Replica})
}
