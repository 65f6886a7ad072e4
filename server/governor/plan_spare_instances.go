package governor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// fillGroup is a replicaset in planSpares.
type fillGroup struct {
	meta.Replicaset
	members []*meta.Instance // that stay in the cluster, and that this plan moves here
	copies  int              // wanted
	buckets bool             // its shards own some, or are in a move
	shards  bool
}

// planSpares moves spare instances to where a copy is missing. An instance is spare if its
// replicaset has fewer members than copies, and no buckets. Replicasets are filled in this order:
// with buckets, with shards, with the most members. One whose shards go at once is not filled.
func planSpares(p *planner) {
	for _, t := range p.State.Tiers() {
		if t.Buckets == 0 {
			continue
		}
		groups := fillGroups(p, &t)
		for n := range groups {
			if g := &groups[n]; !g.holdsExpelled(p) {
				fill(p, &t, groups, n)
			} else {
				removeShards(p, g.ID)
			}
		}
	}
}

// fillGroups are the remaining replicasets of a tier, in the order in which they are filled.
func fillGroups(p *planner, t *meta.Tier) []fillGroup {
	var list []fillGroup
	for _, set := range p.State.Replicasets() {
		if set.Tier != t.ID || set.Phase >= meta.ToBeExpelled {
			continue
		}
		g := fillGroup{Replicaset: set, copies: int(t.ReplicationFactor), shards: hasShards(p, set.ID),
			buckets: holdsBuckets(p, set.ID)}
		all := p.State.Instances()
		for i := range all {
			if all[i].Replicaset == set.ID && all[i].Target.Variant != meta.Expelled {
				g.members = append(g.members, &all[i])
			}
		}
		if len(g.members) > 0 { // else it goes with the last of them
			list = append(list, g)
		}
	}
	rank := func(b bool) int {
		if b {
			return 0
		}
		return 1
	}
	slices.SortFunc(list, func(a, b fillGroup) int {
		return cmp.Or(
			cmp.Compare(rank(a.buckets), rank(b.buckets)),
			cmp.Compare(rank(a.shards), rank(b.shards)),
			cmp.Compare(len(b.members), len(a.members)),
			cmp.Compare(a.ID, b.ID),
		)
	})
	return list
}

// holdsExpelled reports whether an instance being expelled can leave only if the replicaset's
// shards are removed: one of them has lost its majority, so it changes its members no more. They
// have no buckets, and the meta shard lets them go.
func (g *fillGroup) holdsExpelled(p *planner) bool {
	if g.buckets || len(g.members) >= g.copies {
		return false
	}
	return slices.ContainsFunc(p.shards, func(x shardView) bool {
		return x.Replicaset == g.ID && isAbandoned(p, &x) &&
			slices.ContainsFunc(x.Replicas, func(r meta.Replica) bool {
				i := p.instances[r.Instance]
				return i != nil && i.Target.Variant == meta.Expelled
			})
	})
}

// removeShards removes all shards of a replicaset without buckets.
func removeShards(p *planner, replicaset uint64) {
	if !p.removingShards[replicaset] {
		p.removingShards[replicaset] = true
		p.add(Step{Kind: RemoveShards, Replicaset: replicaset})
	}
}

// holdsBuckets reports whether a shard of a replicaset has buckets.
func holdsBuckets(p *planner, replicaset uint64) bool {
	return slices.ContainsFunc(p.shards, func(x shardView) bool {
		return x.ID != meta.MetaShardID && x.Replicaset == replicaset && hasBuckets(p, &x.Shard)
	})
}

// hasBuckets reports whether a data shard has buckets, or is to get or give some.
func hasBuckets(p *planner, x *meta.Shard) bool {
	tier, _ := p.State.Tier(x.Tier)
	return slices.ContainsFunc(tier.Runs, func(r meta.Run) bool { return r.Shard == x.ID }) ||
		slices.ContainsFunc(p.State.Moves(), func(m meta.Move) bool { return m.From == x.ID || m.To == x.ID })
}

// isEmpty reports whether a data shard has no buckets, although its tier's have been assigned.
func isEmpty(p *planner, x *shardView) bool {
	tier, _ := p.State.Tier(x.Tier)
	return x.ID != meta.MetaShardID && tier.Bootstrapped && !hasBuckets(p, &x.Shard)
}

// fill moves instances from later groups to the group at n, while it lacks a copy.
func fill(p *planner, t *meta.Tier, groups []fillGroup, n int) {
	to := &groups[n]
	if to.WeightByUser && to.Weight == 0 && !to.buckets {
		return // it is to have no data
	}
	what := fmt.Sprintf("replicaset %s to have %d copies", to.Name, to.copies)
	for len(to.members) < to.copies {
		from, i, why := spare(p, t, groups, n)
		if i == nil {
			if to.Phase == meta.ReplicasetReady {
				p.addWait(Outside, what, "it has %d, and %s; start another instance, or lower the replication factor",
					len(to.members), why)
			}
			return
		}
		if from.shards {
			removeShards(p, from.ID)
		} else {
			p.add(Step{Kind: ReassignInstance, Instance: i.ID, Replicaset: to.ID, Revision: i.Revision})
		}
		from.members = slices.DeleteFunc(from.members, func(o *meta.Instance) bool { return o == i })
		to.members = append(to.members, i)
	}
}

// spare chooses a spare instance for the group at n: from the smallest group, the one whose failure
// domain is farthest from the members. Without one, best is nil and why the reason.
func spare(p *planner, t *meta.Tier, groups []fillGroup, n int) (from *fillGroup, best *meta.Instance, why string) {
	to := &groups[n]
	far := 0
	var unfit []string
	for k := len(groups) - 1; k > n; k-- {
		g := &groups[k]
		if g.buckets || len(g.members) >= g.copies || g.shards && !t.Bootstrapped {
			continue
		}
		for _, i := range g.members {
			if !online(i) || !stays(i) || !p.alive(i.ID) {
				unfit = append(unfit, p.name(i.ID)+" is not online or is drained")
				continue
			}
			if m := domainConflict(i, to.members); m != nil {
				unfit = append(unfit, fmt.Sprintf("%s shares a failure domain with %s", p.name(i.ID), p.name(m.ID)))
				continue
			}
			d := 0
			for _, m := range to.members {
				d += meta.Distance(i.Domain, m.Domain)
			}
			if best == nil || len(g.members) < len(from.members) || g == from && d >= far {
				from, best, far = g, i, d
			}
		}
	}
	if len(unfit) == 0 {
		return from, best, "no instance of tier " + t.Name + outsideDomains(to.members) + " is free"
	}
	return from, best, "of the free ones " + strings.Join(unfit, ", ")
}

// outsideDomains names the failure domains that another member must not share; empty if there are
// none.
func outsideDomains(members []*meta.Instance) string {
	var taken []string
	for _, i := range members {
		for _, l := range i.Domain {
			if text := l.Key + "=" + l.Value; !slices.Contains(taken, text) {
				taken = append(taken, text)
			}
		}
	}
	if len(taken) == 0 {
		return ""
	}
	slices.Sort(taken)
	return " outside " + strings.Join(taken, ", ")
}

// domainConflict is a member that shares a failure domain with an instance; nil for none.
func domainConflict(i *meta.Instance, members []*meta.Instance) *meta.Instance {
	for _, m := range members {
		if meta.Intersect(i.Domain, m.Domain) {
			return m
		}
	}
	return nil
}
