package governor

import (
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// MaxPlannedNodes is how many pending nodes one plan works on, the lowest ids first.
const MaxPlannedNodes = 256

// planNodes finishes changes of coordination nodes: every shard gets the change, then it is
// committed.
func planNodes(p *planner) {
	var commit []meta.NodeRef
	settling, changing := 0, 0
	for n := range p.State.Pending() {
		switch {
		case hasFloor(&n):
			if settling++; settling <= MaxPlannedNodes {
				planGrace(p, &n)
			}
		case changing < MaxPlannedNodes:
			changing++
			if syncNode(p, &n) && parentReady(p, &n, commit) {
				commit = append(commit, meta.NodeRef{Node: n.ID, Revision: n.Revision})
			}
		}
	}
	p.steps = append(p.steps, p.epochReads...)
	if len(commit) > 0 {
		p.add(Step{Kind: CommitNodes, Nodes: commit})
	}
}

// planShards starts new shards. Each gets the nodes that were there before it, then its buckets. It
// gets pending nodes like every other shard does, so that none is missed.
func planShards(p *planner) {
	for i := range p.shards {
		x := &p.shards[i]
		if x.Ready {
			continue
		}
		if isLeaderUnstable(p, x) {
			p.addDependentWait(x.String()+" to be told of its nodes and buckets", "its leader is not known, or changes")
			continue
		}
		tier, _ := p.State.Tier(x.Tier)
		if path, more := nextUnsynced(p, x); more {
			p.add(Step{Kind: SyncNodes, Shard: x.ID, Path: path})
			continue
		}
		ready := tier.Bootstrapped
		for _, run := range tier.Runs {
			if run.Shard != x.ID || p.Progress.activated[bucketsKey{x.ID, run.First}] {
				continue
			}
			ready = false
			p.add(Step{Kind: ActivateBuckets, Shard: x.ID, Tier: tier.ID, Total: tier.Buckets, First: run.First,
				Count: run.Count, Epoch: run.Epoch})
		}
		if ready {
			p.add(Step{Kind: MarkShardReady, Shard: x.ID})
		}
	}
}

// nextUnsynced is the first path of a node that the new shard has not got and that is not pending.
func nextUnsynced(p *planner, x *shardView) (path string, more bool) {
	for n := range p.State.Nodes("", p.Progress.syncedTo[x.ID]) {
		if needsSync(&n, x.Tier) {
			return n.Path, true
		}
	}
	return "", false
}

// needsSync says that a new shard of a tier gets this node before it serves.
func needsSync(n *meta.Node, tier uint8) bool {
	return n.Tier == tier && n.Phase != meta.Creating && n.Phase != meta.Dropping
}

// isLeaderUnstable says that a new shard's leader is not known yet, or changes: proposals may find
// nobody.
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
		case isLeaderUnstable(p, x): // planShards says so
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
	return Step{Kind: PutNode, Shard: shard, Node: n.ID, Revision: n.ShardRevision(final), Config: n.ShardConfig(final)}
}

// parentReady says that the nodes above are visible, or become so in this commit: a child must not
// be found before its parent.
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
