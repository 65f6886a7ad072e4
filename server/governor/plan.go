package governor

import (
	"fmt"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// Plan is the list of steps that can be executed next, in any order or all at once. It is empty
// when nothing is left to do until the meta state or the heartbeats change. It is pure.
func Plan(v View) []Step {
	p := newPlan(v)
	return p.steps
}

// planner collects the steps, and the reasons of those that wait. Each part of the plan is a
// function of it, in a file plan_*.go.
type planner struct {
	View
	steps      []Step
	epochReads []Step // ReadLeaderEpoch, at most one for each shard
	waits      []Wait

	instances      map[uint64]*meta.Instance
	losingVote     map[[2]uint64]bool // shard and instance: its vote goes to another, or for good
	shards         []shardView        // data shards, the meta shard last
	removingShards map[uint64]bool    // replicasets that get no buckets: their shards are removed
	transferring   map[uint64]bool    // shards whose leadership moves: none of their moves begins
	reconfiguring  map[uint64]bool    // shards whose members change: none of their moves begins
	changingVotes  bool               // of the meta shard: no move of buckets begins, since its commits take longer
	missingVotes   map[uint64]bool    // replicasets with a shard that lacks votes: no leadership is spread there
	surplus        map[uint64]bool    // shards that are to go, since their tier has fewer for each replicaset
}

// shardView is a shard and its leader.
type shardView struct {
	meta.Shard
	leader meta.Replica
	led    bool
}

func newPlan(v View) *planner {
	p := &planner{View: v}
	p.plan()
	return p
}

func (p *planner) plan() {
	if !p.State.Bootstrapped() {
		return
	}
	p.index()
	for i := range p.shards {
		planRoles(p, &p.shards[i])
		planMembership(p, &p.shards[i])
	}
	planMasters(p)
	planInstances(p)
	planReplicasets(p)
	planSpares(p)
	planShardCounts(p)
	planNewShards(p)
	planMoves(p)
	planNodes(p)
	planVersion(p)
}

// index prepares the lookups of the planning functions.
func (p *planner) index() {
	list := p.State.Instances()
	p.instances = make(map[uint64]*meta.Instance, len(list))
	p.losingVote = make(map[[2]uint64]bool)
	p.removingShards = make(map[uint64]bool)
	p.transferring = make(map[uint64]bool)
	p.reconfiguring = make(map[uint64]bool)
	p.missingVotes = make(map[uint64]bool)
	p.surplus = surplusShards(p.State)
	for i := range list {
		p.instances[list[i].ID] = &list[i]
	}
	for _, x := range append(p.State.Shards()[:len(p.State.Shards()):len(p.State.Shards())], p.State.MetaShard()) {
		view := shardView{Shard: x}
		view.leader, view.led = p.leader(&x)
		p.shards = append(p.shards, view)
	}
}

func (p *planner) add(s Step) { p.steps = append(p.steps, s) }

// addDependentWait records why something waits for another part of the plan.
func (p *planner) addDependentWait(what, format string, args ...any) {
	p.addWait(Follows, what, format, args...)
}

// addWait records a wait, its reason, and the cause that ends it.
func (p *planner) addWait(kind WaitKind, what, format string, args ...any) {
	p.waits = append(p.waits, Wait{What: what, Why: fmt.Sprintf(format, args...), Kind: kind})
}

// members are the instances that a group is to run on, in order of id: those of the replicaset, or
// all for the meta shard, without expelled ones.
func (p *planner) members(x *shardView) []*meta.Instance {
	var list []*meta.Instance
	all := p.State.Instances()
	for i := range all {
		if (x.ID == meta.MetaShardID || all[i].Replicaset == x.Replicaset) && !all[i].Expelled() {
			list = append(list, &all[i])
		}
	}
	return list
}

func (p *planner) name(instance uint64) string {
	if i, ok := p.instances[instance]; ok && i.Name != "" {
		return i.Name
	}
	return fmt.Sprintf("instance %d", instance)
}
