package governor

import "github.com/signalbox-dev/signalbox/shard/meta"

// planReplicasets makes shards, readies replicasets, expels them, and deals out the buckets, once.
func (p *planner) planReplicasets() {
	for _, set := range p.State.Replicasets() {
		if set.Phase == meta.ReplicasetExpelled {
			continue
		}
		tier, _ := p.State.Tier(set.Tier)
		var members []*meta.Instance
		onlines, expelled := 0, 0
		for _, i := range p.State.Instances() {
			if i.Replicaset != set.ID || i.Expelled() {
				continue
			}
			members = append(members, p.instances[i.ID])
			if online(&i) {
				onlines++
			}
			if i.Target.Variant == meta.Expelled {
				expelled++
			}
		}
		if set.Phase == meta.ToBeExpelled {
			p.planSetExpel(&set, members)
			continue
		}
		if len(members) > 0 && expelled == len(members) {
			p.add(Step{Kind: ExpelSet, Replicaset: set.ID})
			continue
		}
		if tier.Buckets > 0 && !p.hasShards(set.ID) {
			if founder := p.founder(members); founder != 0 {
				p.add(Step{Kind: CreateShards, Replicaset: set.ID, Instance: founder})
			} else {
				p.wait("replicaset "+set.Name+" to get its shards", "none of its instances is up")
			}
			continue
		}
		if set.Phase == meta.NotReady {
			if onlines >= int(tier.ReplicationFactor) {
				p.add(Step{Kind: ReadySet, Replicaset: set.ID})
			} else {
				p.wait("replicaset "+set.Name+" to be ready", "%d of its instances are online, the replication factor is %d; start more", onlines, tier.ReplicationFactor)
			}
		}
	}
	for _, t := range p.State.Tiers() {
		if t.Buckets > 0 && !t.Bootstrapped {
			p.planDeal(&t)
		}
	}
}

// founder is the instance that starts a replicaset's shards, 0 for none yet.
func (p *planner) founder(members []*meta.Instance) uint64 {
	for _, i := range members {
		if stays(i) && p.alive(i.ID) && p.Health[i.ID].Incarnation == i.Target.Incarnation {
			return i.ID
		}
	}
	return 0
}

// planSetExpel ends a replicaset once nothing is left on it.
func (p *planner) planSetExpel(set *meta.Replicaset, members []*meta.Instance) {
	for _, i := range members {
		if i.Target.Variant != meta.Expelled {
			p.add(Step{Kind: ExpelAgain, Instance: i.ID})
			return
		}
	}
	own := make(map[uint64]bool)
	for i := range p.shards {
		if x := &p.shards[i]; x.ID != meta.MetaShardID && x.Replicaset == set.ID {
			own[x.ID] = true
		}
	}
	what := "replicaset " + set.Name + " to be expelled"
	tier, _ := p.State.Tier(set.Tier)
	buckets := uint32(0)
	for _, run := range tier.Runs {
		if own[run.Shard] {
			buckets += run.Count
		}
	}
	if buckets > 0 {
		p.wait(what, "%d buckets are still on it; they move to other replicasets of tier %s", buckets, tier.Name)
		return
	}
	for _, m := range p.State.Moves() {
		if own[m.From] || own[m.To] {
			p.wait(what, "a move of buckets from shard %d to shard %d is not finished", m.From, m.To)
			return
		}
	}
	for _, i := range members {
		if !p.voteless(i) {
			p.wait(what, "%s has a vote in the meta shard, or was to get one", p.name(i.ID))
			return
		}
	}
	p.add(Step{Kind: FinishSetExpel, Replicaset: set.ID})
}

// planDeal deals out the buckets of a tier when its first replicaset is ready.
func (p *planner) planDeal(t *meta.Tier) {
	for _, set := range p.State.Replicasets() {
		if set.Tier == t.ID && set.Phase == meta.ReplicasetReady && set.Weight > 0 && p.hasShards(set.ID) {
			p.add(Step{Kind: DealBuckets, Tier: t.ID})
			return
		}
	}
	p.wait("the buckets of tier "+t.Name+" to be dealt out", "no replicaset of it is ready and has a weight")
}
