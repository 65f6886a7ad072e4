package governor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// expelRefusal returns why an instance cannot be expelled now, and the remedy; empty if it can. The
// governor could not carry out such an expel, and it would not end.
func expelRefusal(v View, instance uint64) string {
	return refuseExpel(v, instance, func(silent uint64) bool {
		return refuseExpel(v, silent, func(uint64) bool { return false }) == ""
	})
}

// refuseExpel is expelRefusal, which advises to expel silent voters first that can be expelled.
func refuseExpel(v View, instance uint64, canExpel func(silent uint64) bool) string {
	leaving, ok := v.State.Instance(instance)
	if !ok || v.Health == nil || leaving.Target.Variant == meta.Expelled {
		return ""
	}
	p := &planner{View: v}
	p.index()
	if x := p.lostGroup(instance); x != nil {
		return fmt.Sprintf("instance '%s' cannot be expelled now: %s", leaving.Name, p.withoutMajority(x, p.isUp))
	}
	leaving.Target.Variant = meta.Expelled
	p.instances[instance] = &leaving
	set, _ := v.State.Replicaset(leaving.Replicaset)
	tier, _ := v.State.Tier(set.Tier)
	others, ofSet := 0, 0
	for _, i := range v.State.Instances() {
		if i.ID != instance && i.Target.Variant != meta.Expelled {
			others++
			if i.Replicaset == set.ID {
				ofSet++
			}
		}
	}
	// The meta shard refuses to expel the last instance of all.
	if others > 0 && ofSet == 0 && holdsBuckets(p, set.ID) && !otherHasWeight(v.State, &set) {
		return fmt.Sprintf(
			"instance '%s' is the last of replicaset %s, and no other one of tier %s is ready and has a weight: "+
				"its buckets have nowhere to go; start more instances of that tier, or give another replicaset a weight first",
			leaving.Name, set.Name, tier.Name)
	}
	for n := range p.shards {
		x := &p.shards[n]
		if r, ok := x.On(instance); !ok || r.Role != meta.RoleVoter {
			continue
		}
		if isAbandoned(p, x) {
			continue // it goes with its replicaset, or as a surplus shard
		}
		var list []Candidate
		whole := true // the group goes with its replicaset
		for _, i := range p.members(x) {
			i = p.instances[i.ID]
			if !p.mayVote(x, i) {
				continue
			}
			c := p.candidate(x, i)
			r, has := x.On(i.ID)
			c.Ready = has && r.Role == meta.RoleNonVoting && r.TargetRole == meta.RoleNonVoting &&
				online(i) && p.takesPart(&r, x.ID)
			whole = whole && c.Departure == BeingExpelled
			list = append(list, c)
		}
		if whole {
			continue
		}
		var names, silent, expelFirst []string
		for _, id := range Voters(list) {
			names = append(names, p.name(id))
			if r, _ := x.On(id); !p.takesPart(&r, x.ID) {
				silent = append(silent, p.name(id))
				if p.hasQuorum(&x.Shard) && canExpel(id) {
					expelFirst = append(expelFirst, p.name(id))
				}
			}
		}
		if isQuorum(len(names), len(names)-len(silent)) {
			continue
		}
		slices.Sort(names)
		slices.Sort(silent)
		remedy := fmt.Sprintf("start %s again", strings.Join(silent, ", "))
		if slices.Sort(expelFirst); len(expelFirst) > 0 {
			remedy += fmt.Sprintf(", or expel %s first", strings.Join(expelFirst, ", "))
		}
		return fmt.Sprintf(
			"expelling instance '%s' would leave %s without a majority: of the voters that stay (%s), %s would not take part; %s",
			leaving.Name, x, strings.Join(names, ", "), strings.Join(silent, ", "), remedy)
	}
	return ""
}

// lostGroup returns a group with a replica on instance that has lost its majority and has data, or
// is the meta shard; nil if all have their majority. Such a group neither changes its members nor
// gives its buckets away, so the instance stays.
func (p *planner) lostGroup(instance uint64) *meta.Shard {
	for n := range p.shards {
		x := &p.shards[n].Shard
		if _, has := x.On(instance); has && (x.ID == meta.MetaShardID || hasBuckets(p, x)) && p.lostMajority(x) {
			return x
		}
	}
	return nil
}

// isAbandoned reports whether a shard without buckets, and not before its tier gets them, has
// neither a leader nor a majority.
func isAbandoned(p *planner, x *shardView) bool {
	return isEmpty(p, x) && !x.led && p.lostMajority(&x.Shard)
}

// lostMajority reports whether a majority of a group's voters is down.
func (p *planner) lostMajority(x *meta.Shard) bool {
	voters, down := votersOf(x, p.isUp)
	return !isQuorum(voters, voters-len(down))
}

// isUp goes by the map, and not by heartbeats: a governor that was just elected has heard none, and
// an instance that has just ended was heard a moment ago. Without a majority of the meta shard the
// map is not changed any more, so for its own voters heartbeats count.
func (p *planner) isUp(x *meta.Shard, r *meta.Replica) bool {
	if x.ID == meta.MetaShardID {
		return p.takesPart(r, x.ID)
	}
	i := p.instances[r.Instance]
	return i != nil && i.Current.Variant == meta.Online
}

// CannotExpel returns why an instance that is gone cannot be expelled now, so that nobody can take
// its place, and the remedy; empty if it can.
func CannotExpel(o Observation, instance uint64) string {
	p := &planner{View: o.View}
	p.index()
	if x := p.lostGroup(instance); x != nil {
		return p.withoutMajority(x, p.isUp)
	}
	return ""
}
