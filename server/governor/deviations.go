package governor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// WaitForGovernor is the deviation that no instance governs.
const WaitForGovernor = "the cluster to be governed"

// deviations are those without a step that the planner's own waits do not name.
func (p *planner) deviations() (list []Wait) {
	add := func(kind WaitKind, what, format string, args ...any) {
		list = append(list, Wait{What: what, Why: fmt.Sprintf(format, args...), Kind: kind})
	}
	heard := p.Health != nil // else this is one instance, by itself
	for _, i := range p.State.Instances() {
		if i.Expelled() || i.Target.Variant == meta.Expelled {
			continue
		}
		switch what := i.Name + " to be online"; {
		case i.Target.Variant == meta.Offline && i.Current.Variant == meta.Offline:
			add(Outside, what, "%s", p.offlineReason(&i))
		case heard && online(&i) && !p.fresh(i.ID):
			unreached := p.describeUnreached(&i, "it")
			switch {
			case !p.hasMetaQuorum():
				add(Outside, what, "no heartbeat in the last %s; %s", FreshLimit, cmp.Or(unreached, "start it"))
			case unreached != "":
				add(Underway, what, "no heartbeat in the last %s; %s; it is marked offline if that goes on", FreshLimit,
					unreached)
			default:
				add(Underway, what, "no heartbeat in the last %s; it is marked offline if that goes on", FreshLimit)
			}
		case heard && online(&i) && p.describeUnreached(&i, "it") != "":
			add(Outside, i.Name+" to be reached", "%s; %s, %s", p.describeUnreached(&i, "it"), openTheWay, advertiseInstead)
		}
	}
	for i := range p.shards {
		x := &p.shards[i]
		for n := range x.Replicas {
			r := &x.Replicas[n]
			in := p.instances[r.Instance]
			if r.TargetRole == meta.RoleNone || r.Role == meta.RoleNone ||
				in == nil || !online(in) || !p.fresh(in.ID) || p.takesPart(r, x.ID) {
				continue
			}
			add(Outside, fmt.Sprintf("%s on %s to run", x, in.Name),
				"its replica does not run there; the log of that instance says why")
		}
	}
	addApplicants(p, add)
	planDomains(p, add)
	if x := &p.shards[len(p.shards)-1]; heard && !p.hasQuorum(&x.Shard) {
		add(Outside, WaitForGovernor, "%s", p.noQuorumReason(&x.Shard))
	}
	return list
}

// offlineReason returns the cause of an instance's Offline, and the remedy.
func (p *planner) offlineReason(i *meta.Instance) string {
	do, instead := "start it", "or expel it, so that another can take its place"
	reason := cmp.Or(i.Reason, "it has not started yet")
	unreached := p.describeUnreached(i, "it")
	if unreached != "" && p.Unreached[i.ID].From != "" {
		do, instead = openTheWay, advertiseInstead
		reason = cmp.Or(i.Reason, "it has not come online yet")
	}
	if unreached != "" {
		do = unreached + "; " + do
	}
	if x := p.lostGroup(i.ID); p.Health != nil && x != nil {
		return fmt.Sprintf("it is Offline (%s); %s: it cannot be expelled while %s has no majority", reason, do, x)
	}
	return fmt.Sprintf("it is Offline (%s); %s, %s", reason, do, instead)
}

// hasMetaQuorum reports whether a majority of the meta shard takes part: plans can be executed.
func (p *planner) hasMetaQuorum() bool { return p.hasQuorum(&p.shards[len(p.shards)-1].Shard) }

// hasQuorum reports whether a majority of a shard's voters takes part.
func (p *planner) hasQuorum(x *meta.Shard) bool {
	voters, live := p.countVoters(x)
	return isQuorum(voters, live)
}

// countVoters returns the number of a shard's voters, and of those that take part.
func (p *planner) countVoters(x *meta.Shard) (voters, live int) {
	voters, silent := votersOf(x, p.isHeard)
	return voters, voters - len(silent)
}

// votersOf is how many voters a group has, and the instances of those that are not up.
func votersOf(x *meta.Shard, up func(*meta.Shard, *meta.Replica) bool) (voters int, down []uint64) {
	for i := range x.Replicas {
		if r := &x.Replicas[i]; r.Role == meta.RoleVoter {
			voters++
			if !up(x, r) {
				down = append(down, r.Instance)
			}
		}
	}
	return voters, down
}

func (p *planner) isHeard(x *meta.Shard, r *meta.Replica) bool { return p.takesPart(r, x.ID) }

// electionWait is the kind of a wait for a leader: Underway if a majority takes part.
func (p *planner) electionWait(x *meta.Shard) WaitKind {
	if p.hasQuorum(x) {
		return Underway
	}
	return Outside
}

// noQuorumReason returns why a shard cannot decide, and the remedy.
func (p *planner) noQuorumReason(x *meta.Shard) string {
	voters, live := p.countVoters(x)
	if isQuorum(voters, live) {
		return fmt.Sprintf("%s has no leader that is heard; an election is under way", x)
	}
	return p.withoutMajority(x, p.isHeard)
}

// withoutMajority is the sentence about a group without a majority of voters that are up.
func (p *planner) withoutMajority(x *meta.Shard, up func(*meta.Shard, *meta.Replica) bool) string {
	voters, down := votersOf(x, up)
	var names []string
	remedy := ""
	for _, id := range down {
		if p.Unreached[id].From != "" {
			i, _ := p.State.Instance(id)
			remedy += "; " + p.describeUnreached(&i, i.Name) + ": " + openTheWay
			continue
		}
		names = append(names, p.name(id))
	}
	if slices.Sort(names); len(names) > 0 {
		remedy = "; start " + strings.Join(names, ", ") + " again" + remedy
	}
	lost := "; if a disk is lost for good, see signalbox cluster recover --help"
	switch {
	case voters > 1:
	case x.ID != meta.MetaShardID && !hasBuckets(p, x):
		lost = ""
	default: // cluster recover makes no backup without a log of each shard
		lost = "; if its disk is lost for good, restore a backup"
	}
	return fmt.Sprintf("%s has no majority: %d of %d voters up%s%s", x, voters-len(down), voters, remedy, lost)
}

// lostQuorum returns a shard without a majority that changes of the cluster wait for, with the
// cause and the remedy; why is empty if every such shard has a majority. Changes of nodes wait for
// data shards of their tier too. A shard that is not ready may be new and not have been heard yet.
func lostQuorum(v View, ofNodes bool) (shard uint64, why string) {
	p := &planner{View: v}
	if p.Health == nil || !p.State.Bootstrapped() {
		return 0, ""
	}
	p.index()
	changing := make(map[uint8]bool) // tiers
	for n := range v.State.Pending() {
		if ofNodes && !hasFloor(&n) {
			changing[n.Tier] = true
		}
	}
	for i := range slices.Backward(p.shards) { // the meta shard is the last
		x := &p.shards[i].Shard
		if (x.ID == meta.MetaShardID || changing[x.Tier] && x.Ready) && !p.hasQuorum(x) {
			return x.ID, p.noQuorumReason(x)
		}
	}
	return 0, ""
}

// NoQuorum returns why the meta shard cannot decide, as one instance sees it, and the remedy; empty
// if it can.
func NoQuorum(o Observation) string {
	p := &planner{View: o.View}
	if o.Confirmed || !o.State.Bootstrapped() {
		return ""
	}
	p.index()
	x := o.State.MetaShard()
	return p.noQuorumReason(&x)
}

// shardWithoutQuorum is the shard that a step needs and that has no majority; nil for none.
func (p *planner) shardWithoutQuorum(s *Step) *meta.Shard {
	switch s.Kind {
	case ActivateBuckets, PutNode, DropNode, ReadLeaderEpoch, SyncNodes, JoinReplica, PromoteReplica,
		RemoveReplica, TransferLeader, TransferGovernor, FreezeMove, CopyMove, ActivateMove,
		DiscardMove:
	default:
		return nil
	}
	for i := range p.shards {
		if x := &p.shards[i]; (x.ID == s.Shard || x.ID == s.To) && p.Health != nil && !p.hasQuorum(&x.Shard) {
			return &x.Shard
		}
	}
	return nil
}
