package governor

import (
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// planNewShards starts new shards. Each gets the nodes that were there before it, then its buckets.
// It gets pending nodes like every other shard does, so that none is missed.
func planNewShards(p *planner) {
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

// needsSync reports whether a new shard of a tier gets this node before it serves.
func needsSync(n *meta.Node, tier uint8) bool {
	return n.Tier == tier && n.Phase != meta.Creating && n.Phase != meta.Dropping
}
