package governor

import "github.com/signalbox-dev/signalbox/shard/meta"

// planReplicasets readies replicasets, creates their shards, expels them, and assigns the buckets
// once, unless they are to be restored. A replicaset gets its shards when it has enough members:
// until then its instances are spare, see planSpares.
func planReplicasets(p *planner) {
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
			planReplicasetExpel(p, &set, members)
			continue
		}
		if len(members) > 0 && expelled == len(members) {
			p.add(Step{Kind: ExpelReplicaset, Replicaset: set.ID})
			continue
		}
		switch {
		case set.Phase == meta.NotReady && onlines >= int(tier.ReplicationFactor):
			p.add(Step{Kind: MarkReplicasetReady, Replicaset: set.ID})
		case set.Phase == meta.NotReady:
			kind := Follows
			if len(members)-expelled < int(tier.ReplicationFactor) {
				kind = Outside
			}
			p.addWait(kind, "replicaset "+set.Name+" to be ready",
				"%d of its instances are online, the replication factor is %d; start more", onlines, tier.ReplicationFactor)
		case tier.Buckets > 0 && !hasShards(p, set.ID):
			if founder := founder(p, members); founder != 0 {
				p.add(Step{Kind: CreateShards, Replicaset: set.ID, Instance: founder})
			} else {
				p.addWait(Outside, "replicaset "+set.Name+" to get its shards", "none of its instances is up")
			}
		}
	}
	for _, t := range p.State.Tiers() {
		switch {
		case t.ToBeRestored():
			p.addWait(Outside, "the data of tier "+t.Name+" to be restored",
				"it is in the backup with digest %016x; run signalbox cluster restore with that file, "+
					"--tier %s and --peer",
				t.Restore.Backup, t.Name)
		case t.Buckets > 0 && !t.Bootstrapped:
			planAssignment(p, &t)
		}
	}
}

// founder is the instance that starts a replicaset's shards; 0 for none yet.
func founder(p *planner, members []*meta.Instance) uint64 {
	for _, i := range members {
		if stays(i) && p.alive(i.ID) && p.Health[i.ID].Incarnation == i.Target.Incarnation {
			return i.ID
		}
	}
	return 0
}

// planReplicasetExpel ends a replicaset once it has no buckets.
func planReplicasetExpel(p *planner, set *meta.Replicaset, members []*meta.Instance) {
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
		p.addDependentWait(what, "%s still on it, to be moved to other replicasets of tier %s", bucketsAre(buckets),
			tier.Name)
		return
	}
	for _, m := range p.State.Moves() {
		if own[m.From] || own[m.To] {
			p.addDependentWait(what, "a move of buckets from shard %d to shard %d is not finished", m.From, m.To)
			return
		}
	}
	for _, i := range members {
		if !hasNoMetaVote(p, i) {
			p.addDependentWait(what, "%s has a vote in the meta shard, or was to get one", p.name(i.ID))
			return
		}
	}
	p.add(Step{Kind: FinishReplicasetExpel, Replicaset: set.ID})
}

// shardMissingCopy is a shard of which an online member of the replicaset has no copy yet; nil for
// none.
func shardMissingCopy(p *planner, replicaset uint64) *shardView {
	for n := range p.shards {
		x := &p.shards[n]
		if x.ID == meta.MetaShardID || x.Replicaset != replicaset {
			continue
		}
		for _, i := range p.members(x) {
			if r, ok := x.On(i.ID); online(i) && stays(i) && (!ok || !p.caughtUp(&r, x.ID)) {
				return x
			}
		}
	}
	return nil
}

// planAssignment assigns the buckets of a tier when its first replicaset is ready.
func planAssignment(p *planner, t *meta.Tier) {
	what := "the buckets of tier " + t.Name + " to be assigned"
	empty := true
	for _, set := range p.State.Replicasets() {
		empty = empty && (set.Tier != t.ID || set.Phase >= meta.ToBeExpelled)
		if set.Tier != t.ID || set.Phase != meta.ReplicasetReady || set.Weight == 0 || !hasShards(p, set.ID) {
			continue
		}
		if shardCountDiffers(p, &set) {
			p.addDependentWait(what, "the number of shards of replicaset %s changes first", set.Name)
			return
		}
		if x := shardMissingCopy(p, set.ID); x != nil {
			p.addDependentWait(what, "not all online instances of replicaset %s have a copy of %s yet", set.Name, x)
			return
		}
		p.add(Step{Kind: AssignBuckets, Tier: t.ID})
		return
	}
	if empty {
		p.addWait(Outside, what, "it has no instance; start one with that tier")
		return
	}
	p.addDependentWait(what, "no replicaset of it is ready and has a weight")
}
