package governor

import (
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// MaxPlannedNodes is how many pending nodes of a tier one plan works on, the lowest ids first.
// Those of a tier with a shard that is down would else stand in the way of all others.
const MaxPlannedNodes = 256

// planNodes finishes changes of coordination nodes: every shard gets the change, then it is
// committed.
func planNodes(p *planner) {
	var commit []meta.NodeRef
	settling, changing := make(map[uint8]int), make(map[uint8]int) // by tier
	for n := range p.State.Pending() {
		switch {
		case hasFloor(&n):
			if settling[n.Tier]++; settling[n.Tier] <= MaxPlannedNodes {
				planGrace(p, &n)
			}
		case changing[n.Tier] < MaxPlannedNodes:
			changing[n.Tier]++
			if syncNode(p, &n) && parentReady(p, &n, commit) {
				commit = append(commit, meta.NodeRef{Node: n.ID, Revision: n.Revision})
			}
		}
	}
	p.steps = append(p.steps, p.epochReads...)
	if len(commit) > 0 {
		p.add(Step{Kind: CommitNodes, Nodes: commit, Token: p.Progress.highestToken})
	}
}

// isLeaderUnstable reports whether a new shard's leader is not known yet, or changes: proposals may
// find nobody.
func isLeaderUnstable(p *planner, x *shardView) bool {
	return p.Health != nil && !x.Ready && (!x.led || x.leader.Instance != targetMaster(&x.Shard))
}

// syncNode sends the pending change to every shard of the node's tier. True if all have it.
func syncNode(p *planner, n *meta.Node) bool {
	all := true
	final := n.GraceFloor == 0
	for i := range p.shards {
		x := &p.shards[i]
		has := p.Progress.nodeRevisions[shardNodeKey{x.ID, n.ID}]
		switch {
		case x.Tier != n.Tier || x.ID == meta.MetaShardID:
			continue
		case isLeaderUnstable(p, x): // planNewShards says so
		case n.Phase == meta.Dropping && has < revisionDropped:
			p.add(Step{Kind: DropNode, Shard: x.ID, Node: n.ID})
		case n.Phase != meta.Dropping && has < n.ShardRevision(final):
			p.add(putNode(x.ID, n, final))
		default:
			continue
		}
		all = false
	}
	return all
}

func putNode(shard uint64, n *meta.Node, final bool) Step {
	return Step{Kind: PutNode, Shard: shard, Node: n.ID, Revision: n.ShardRevision(final), Config: n.ShardConfig(final),
		Token: n.TokenFloor}
}

// parentReady reports whether the nodes above are visible, or become so in this commit: a child
// must not be found before its parent.
func parentReady(p *planner, n *meta.Node, commit []meta.NodeRef) bool {
	if n.Phase != meta.Creating {
		return true
	}
	up, ok := p.State.NodeAt(meta.Parent(n.Path))
	if !ok || up.Phase != meta.Creating {
		return true
	}
	return slices.ContainsFunc(commit, func(ref meta.NodeRef) bool { return ref.Node == up.ID })
}

// planGrace ends a grace floor. A shard may go by the lower grace period once one leader has led
// it for as long as the floor: any former leader has stopped using the higher one by then. A leader
// change between the read and the put does no harm: a shard fixes the grace period of a take-over
// when it happens.
func planGrace(p *planner, n *meta.Node) {
	since := p.Progress.floors[n.ID].since
	// 2 % for different clock rates.
	long := time.Duration(n.GraceFloor+(n.GraceFloor+49)/50) * time.Millisecond
	all := true
	for _, x := range p.State.Shards() {
		if x.Tier != n.Tier || p.Progress.nodeRevisions[shardNodeKey{x.ID, n.ID}] >= n.ShardRevision(true) {
			continue
		}
		all = false
		l, ok := p.Progress.leaderEpochs[x.ID]
		due := max(since, l.first) + long
		switch {
		case !ok:
			readEpoch(p, x.ID, 0)
		case l.last >= due:
			p.add(putNode(x.ID, n, true))
		default:
			readEpoch(p, x.ID, due)
		}
	}
	if all {
		p.add(Step{Kind: ClearGraceFloor, Node: n.ID, Revision: n.Revision})
	}
}

// readEpoch plans a read of the shard's leader epoch, at the earliest of the requested times.
func readEpoch(p *planner, shard uint64, at time.Duration) {
	for i := range p.epochReads {
		if p.epochReads[i].Shard == shard {
			p.epochReads[i].At = min(p.epochReads[i].At, at)
			return
		}
	}
	p.epochReads = append(p.epochReads, Step{Kind: ReadLeaderEpoch, Shard: shard, At: at})
}
