package governor

import (
	"fmt"
	"time"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// planRoles decides which instances have a replica of a group, and which replicas have a vote.
func planRoles(p *planner, x *shardView) {
	switch {
	case leavesWhole(p, x):
		return
	case mayLeaveWhole(p, x):
		p.addWait(Underway, x.String()+" to leave the instance that is expelled",
			"others of its replicaset may follow in a moment")
		return
	}
	members := p.members(x)
	var list []Candidate
	there, votes := 0, 0
	for _, i := range members {
		r, has := x.On(i.ID)
		switch {
		case !has && (departure(i) != BeingExpelled || (x.ID == meta.MetaShardID && p.alive(i.ID))):
			// An expelled instance needs the map while it serves.
			p.add(Step{Kind: AddReplica, Shard: x.ID, Instance: i.ID})
			fallthrough
		case !has:
			r = meta.Replica{}
		}
		if !p.mayVote(x, i) {
			continue
		}
		c := p.candidate(x, i)
		c.Ready = has && r.Role == meta.RoleNonVoting && r.TargetRole == meta.RoleNonVoting && online(i) &&
			p.caughtUp(&r, x.ID)
		list = append(list, c)
		if p.fresh(i.ID) && departure(i) == Staying {
			there++
		}
		if c.Votes {
			votes++
		}
	}
	if x.ID != meta.MetaShardID && votes < VoterCount(there) {
		p.missingVotes[x.Replicaset] = true
	}
	voter := make(map[uint64]bool)
	for _, id := range Voters(list) {
		voter[id] = true
	}
	for _, r := range x.Replicas {
		i := p.instances[r.Instance]
		member := i != nil && !i.Expelled()
		if r.Role == meta.RoleVoter && !voter[r.Instance] {
			p.losingVote[[2]uint64{x.ID, r.Instance}] = true
		}
		switch {
		case r.TargetRole == meta.RoleNone:
		case r.TargetRole == meta.RoleVoter && !voter[r.Instance], !member:
			p.add(Step{Kind: SetTargetRole, Shard: x.ID, Instance: r.Instance, Replica: r.Replica, Role: meta.RoleNone})
		case r.TargetRole == meta.RoleNonVoting && voter[r.Instance]:
			p.add(Step{Kind: SetTargetRole, Shard: x.ID, Instance: r.Instance, Replica: r.Replica, Role: meta.RoleVoter})
		case r.TargetRole == meta.RoleNonVoting && departure(i) == BeingExpelled && x.ID != meta.MetaShardID:
			// It keeps its replica of the meta shard until it has read there that it is Expelled.
			p.add(Step{Kind: SetTargetRole, Shard: x.ID, Instance: r.Instance, Replica: r.Replica, Role: meta.RoleNone})
		}
	}
}

// mayVote reports whether the instance's tier may vote in a group.
func (p *planner) mayVote(x *shardView, i *meta.Instance) bool {
	t, _ := p.State.Tier(i.Tier)
	return x.ID != meta.MetaShardID || t.CanVote
}

// candidate is an instance for the choice of a group's voters. The caller knows whether it is ready
// to get a vote.
func (p *planner) candidate(x *shardView, i *meta.Instance) Candidate {
	r, has := x.On(i.ID)
	return Candidate{
		Instance: i.ID, Domain: i.Domain, Departure: departure(i),
		Voter: has && r.TargetRole == meta.RoleVoter, Votes: has && r.Role == meta.RoleVoter,
	}
}

// leavesWhole reports whether a data shard goes with its replicaset, all of whose members are
// expelled. Its copies and its leadership stay where they are until its buckets have moved. One
// copy after the other would else be removed first, and the last one alone would have all data.
func leavesWhole(p *planner, x *shardView) bool {
	set, _ := p.State.Replicaset(x.Replicaset)
	return x.ID != meta.MetaShardID && set.Phase == meta.ToBeExpelled
}

// expelPause is how long a replicaset's copies and leaderships stay after one of its instances was
// expelled. An operator who expels all of them names one after the other. What went from the first
// to the second would have to go again, and the shard serves nobody while its leadership moves.
const expelPause = 500 * time.Millisecond

// mayLeaveWhole reports whether a data shard may turn out to leave with its replicaset.
func mayLeaveWhole(p *planner, x *shardView) bool {
	if x.ID == meta.MetaShardID {
		return false
	}
	for id, since := range p.Progress.expelling { // which of them does not matter
		if i := p.instances[id]; i != nil && i.Replicaset == x.Replicaset && p.Now-since < expelPause {
			return true
		}
	}
	return false
}

// planMembership plans the next change of a group's membership. Each listed step is allowed in the
// present group; only one of them can be made.
func planMembership(p *planner, x *shardView) {
	voters, live := p.countVoters(&x.Shard)
	want, changes := 0, false
	for i := range x.Replicas {
		r := &x.Replicas[i]
		if r.TargetRole == meta.RoleVoter {
			want++
		}
		changes = changes || r.Role != r.TargetRole || r.Role == meta.RoleNone
	}
	if !changes {
		return
	}
	if !x.led {
		p.addWait(p.electionWait(&x.Shard), "members of "+x.String(), "%s", p.noQuorumReason(&x.Shard))
		return
	}
	step := func(kind StepKind, r *meta.Replica) {
		p.reconfiguring[x.ID] = true
		p.changingVotes = p.changingVotes || x.ID == meta.MetaShardID && kind != JoinReplica
		p.add(Step{Kind: kind, Shard: x.ID, Instance: r.Instance, Replica: r.Replica})
	}
	stay, pausing := leavesWhole(p, x), mayLeaveWhole(p, x)
	for i := range x.Replicas {
		r := &x.Replicas[i]
		what := fmt.Sprintf("%s on %s", x, p.name(r.Instance))
		follows := p.takesPart(r, x.ID)
		switch {
		case stay && r.TargetRole == meta.RoleNone && follows:
			p.addDependentWait(what+" to be removed", "it goes with its replicaset, when the buckets have moved")
		case stay && r.TargetRole != meta.RoleNone:
		case pausing && r.TargetRole == meta.RoleNone: // planRoles gives the reason
		case r.TargetRole == meta.RoleNone && r.Role != meta.RoleVoter:
			step(RemoveReplica, r)
		case r.TargetRole == meta.RoleNone:
			after := live
			if follows {
				after--
			}
			replaced := voters-1 >= want || (!follows && voters%2 == 1)
			switch {
			case r.Replica == x.leader.Replica && voters > 1:
				p.addDependentWait(what+" to be removed", "it leads; its leadership is transferred first")
			case !replaced:
				p.addDependentWait(what+" to be removed", "another replica gets its vote first")
			case !isQuorum(voters-1, after):
				p.addWait(Outside, what+" to be removed",
					"of the %d voters that would be left only %d would take part; start more of them", voters-1, after)
			default:
				step(RemoveReplica, r)
			}
		case r.Role == meta.RoleNone:
			step(JoinReplica, r)
		case r.Role == meta.RoleNonVoting && r.TargetRole == meta.RoleVoter:
			switch i := p.instances[r.Instance]; {
			case i == nil || !online(i):
				p.addDependentWait(what+" to get its vote", "the instance is not online")
			case !p.fresh(r.Instance):
				p.addWait(Underway, what+" to get its vote", "no heartbeat of the instance in the last %s", FreshLimit)
			case !p.caughtUp(r, x.ID):
				p.addWait(Underway, what+" to get its vote", "it has not caught up yet")
			case !isQuorum(voters+1, live+1):
				p.addWait(Outside, what+" to get its vote",
					"of %d voters only %d would take part; start more of them", voters+1, live+1)
			case voters%2 == 1 && deadVoterGoesFirst(p, x, voters, live):
				p.addDependentWait(what+" to get its vote", "a dead voter is removed before")
			default:
				step(PromoteReplica, r)
			}
		}
	}
}

// deadVoterGoesFirst reports whether a dead voter is removed before another replica gets its vote.
// An odd group with one more voter tolerates no more failures, and with a dead one in it fewer.
func deadVoterGoesFirst(p *planner, x *shardView, voters, live int) bool {
	for i := range x.Replicas {
		r := &x.Replicas[i]
		if r.Role == meta.RoleVoter && r.TargetRole == meta.RoleNone && !p.takesPart(r, x.ID) && isQuorum(voters-1, live) {
			return true
		}
	}
	return false
}

// mayPromote and mayRemove are the last look before a change of a group, at the membership that it
// has.

func mayRemove(m Membership, replica uint64, live func(replica uint64) bool) bool {
	_, voter := m.Voters[replica]
	return !voter || isQuorum(len(m.Voters)-1, liveVoters(m, replica, live))
}

func mayPromote(m Membership, replica uint64, live func(replica uint64) bool) bool {
	return live(replica) && isQuorum(len(m.Voters)+1, liveVoters(m, replica, live)+1)
}

// liveVoters counts the voters that take part, without a replica.
func liveVoters(m Membership, without uint64, live func(replica uint64) bool) (n int) {
	for id := range m.Voters {
		if id != without && live(id) {
			n++
		}
	}
	return n
}
