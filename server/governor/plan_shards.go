package governor

import "github.com/signalbox-dev/signalbox/shard/meta"

// surplusShards are the shards that are to go: see meta.State.Surplus.
func surplusShards(s *meta.State) map[uint64]bool {
	surplus, left := make(map[uint64]bool), make(map[uint64]uint32)
	for _, x := range s.Shards() { // the oldest stay
		if _, ok := left[x.Replicaset]; !ok {
			t, _ := s.Tier(x.Tier)
			left[x.Replicaset] = t.ShardsPerReplicaset
		}
		if left[x.Replicaset] == 0 {
			surplus[x.ID] = true
		} else {
			left[x.Replicaset]--
		}
	}
	return surplus
}

// shardCountDiffers reports whether a replicaset has shards, and more or fewer than its tier says.
func shardCountDiffers(p *planner, set *meta.Replicaset) bool {
	t, _ := p.State.Tier(set.Tier)
	n := len(p.State.ShardsOf(set.ID))
	return n > 0 && n != int(t.ShardsPerReplicaset)
}

// planShardCounts gives each replicaset as many shards as its tier says. Missing shards are made
// one after the other, each founded by the member that leads the fewest. planNewShards and
// planMembership complete them, and planBalance moves buckets to them. It also takes the buckets
// off surplus shards, which are removed when nothing is left in them.
func planShardCounts(p *planner) {
	for _, set := range p.State.Replicasets() {
		if set.Phase != meta.ReplicasetReady || p.removingShards[set.ID] || !shardCountDiffers(p, &set) {
			continue
		}
		t, _ := p.State.Tier(set.Tier)
		shards := p.State.ShardsOf(set.ID)
		if n := uint32(len(shards)); n < t.ShardsPerReplicaset {
			if founder := shardFounder(p, &set, shards); founder != 0 {
				p.add(Step{Kind: AddShard, Replicaset: set.ID, Instance: founder, Count: n})
			} else {
				p.addWait(Outside, "replicaset "+set.Name+" to get another shard",
					"it has %d, its tier says %d, and none of its instances is up and stays", n, t.ShardsPerReplicaset)
			}
		}
		for i := range shards {
			if p.surplus[shards[i].ID] {
				planShardRemoval(p, &t, &set, &shards[i])
			}
		}
	}
}

// shardFounder is the member that starts another shard of a replicaset: of those that are up and
// stay, the one that leads the fewest. Ties go to the lowest id; 0 for none.
func shardFounder(p *planner, set *meta.Replicaset, shards []meta.Shard) uint64 {
	leads := make(map[uint64]int)
	for i := range shards {
		leads[targetMaster(&shards[i])]++
	}
	var members []*meta.Instance
	all := p.State.Instances()
	for n := range all {
		if i := &all[n]; i.Replicaset == set.ID && online(i) {
			members = append(members, i)
		}
	}
	best := uint64(0)
	for len(members) > 0 {
		id := founder(p, members)
		if id == 0 {
			break
		}
		if best == 0 || leads[id] < leads[best] {
			best = id
		}
		for members[0].ID != id {
			members = members[1:]
		}
		members = members[1:]
	}
	return best
}

// planShardRemoval removes a surplus shard when its buckets have moved.
func planShardRemoval(p *planner, t *meta.Tier, set *meta.Replicaset, x *meta.Shard) {
	what := x.String() + " of replicaset " + set.Name + " to be removed"
	buckets := uint32(0)
	for _, run := range t.Runs {
		if run.Shard == x.ID {
			buckets += run.Count
		}
	}
	if buckets > 0 {
		p.addDependentWait(what, "%s still in it, to be moved to the shards that stay", bucketsAre(buckets))
		return
	}
	for _, m := range p.State.Moves() {
		if m.From == x.ID || m.To == x.ID {
			p.addDependentWait(what, "a move of buckets from shard %d to shard %d is not finished", m.From, m.To)
			return
		}
	}
	p.add(Step{Kind: RemoveShard, Shard: x.ID})
}

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
