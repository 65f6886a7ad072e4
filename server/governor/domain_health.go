package governor

import (
	"slices"
	"strings"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// A failure domain is one label, such as DC=MSK, and all instances that have it: they may fail
// together. The loss of a domain is assessed like the loss of an instance.
//
// The configuration promises:
//
//   - A replicaset that survives the loss of an instance survives the loss of a domain. Instances
//     of one domain are not put into one replicaset, unless an operator names the replicaset.
//   - So does the meta shard, for the keys whose values allow it together. With two data centers no
//     choice of voters survives the loss of either one, so nothing is promised for that key. Of two
//     keys that allow it only one at a time, the one with fewer values counts: its domains are the
//     largest.

// failureDomain is a label and the instances that have it.
type failureDomain struct {
	meta.Label
	instances []uint64
}

func (d *failureDomain) String() string { return d.Key + "=" + d.Value }

// failureDomains are those of all instances that stay in the cluster, in order of their text.
func failureDomains(s *meta.State) (list []failureDomain) {
	for _, i := range s.Instances() {
		if i.Expelled() || i.Target.Variant == meta.Expelled {
			continue
		}
		for _, l := range i.Domain {
			n := slices.IndexFunc(list, func(d failureDomain) bool { return d.Label == l })
			if n < 0 {
				n = len(list)
				list = append(list, failureDomain{Label: l})
			}
			list[n].instances = append(list[n].instances, i.ID)
		}
	}
	slices.SortFunc(list, func(a, b failureDomain) int { return strings.Compare(a.String(), b.String()) })
	return list
}

// keysForVoters are the keys of failure domains whose loss the meta shard can be made to survive,
// all at once: see survivableKeys.
func keysForVoters(s *meta.State) (keys []string) {
	var able [][]meta.Label
	for _, i := range s.Instances() {
		if t, _ := s.Tier(i.Tier); t.CanVote && !i.Expelled() && i.Target.Variant != meta.Expelled {
			able = append(able, i.Domain)
		}
	}
	return survivableKeys(able)
}

// inDomain counts the voters of a shard in a failure domain, and how many of them are heard.
func (a *assessment) inDomain(x *meta.Shard, d *failureDomain) (voters, heard int) {
	for _, id := range d.instances {
		if r, ok := x.On(id); ok && r.Role == meta.RoleVoter {
			voters++
			if _, runs := a.heardReplica(&r, x.ID); runs {
				heard++
			}
		}
	}
	return voters, heard
}

// assessDomains lists the failure domains whose loss would stop a group against the configuration,
// although each of their instances alone may be lost. keys are the label keys for which the
// configuration promises it; nil: all.
func (a *assessment) assessDomains(x *meta.Shard, g *protocol.ClusterGroup, keys []string) {
	if !g.Majority || g.ConfiguredTolerance == 0 || g.FaultTolerance == 0 {
		return
	}
	for i := range a.domains {
		d := &a.domains[i]
		if keys != nil && !slices.Contains(keys, d.Key) {
			continue
		}
		if _, heard := a.inDomain(x, d); heard > g.FaultTolerance {
			g.UnsafeDomains = append(g.UnsafeDomains, d.String())
		}
	}
}

// findDomainLosses lists what each failure domain's loss would stop. It leaves out domains that
// stop no more than one of their instances does.
func (a *assessment) findDomainLosses() {
	for i := range a.domains {
		d := &a.domains[i]
		loss, more := protocol.ClusterLoss{Domain: d.String(), Shards: []uint64{}}, false
		stops := func(x *meta.Shard, g *protocol.ClusterGroup) bool {
			_, heard := a.inDomain(x, d)
			if !g.Majority || g.Idle || heard <= g.FaultTolerance {
				return false
			}
			more = more || g.FaultTolerance > 0
			return true
		}
		x := a.State.MetaShard()
		loss.Meta = stops(&x, &a.out.Meta)
		for n := range a.out.Shards {
			g := &a.out.Shards[n]
			if x, _ = a.State.Shard(g.Shard); stops(&x, g) {
				loss.Shards = append(loss.Shards, g.Shard)
			}
		}
		if !more {
			continue
		}
		for _, id := range d.instances {
			if a.isHeard(id) {
				loss.Instances = append(loss.Instances, a.name(id))
			}
		}
		slices.Sort(loss.Instances)
		a.out.NextLoss = append(a.out.NextLoss, loss)
	}
}

// planDomains lists the groups that the loss of a failure domain would stop against the
// configuration, by the places of the voters, heard or not, with the remedy.
func planDomains(p *planner, add func(kind WaitKind, what, format string, args ...any)) {
	domains := failureDomains(p.State)
	var keys []string
	if len(domains) > 0 {
		keys = keysForVoters(p.State)
	}
	reported := map[[2]uint64]bool{} // replicaset and index of the domain
	for n := range p.shards {
		x := &p.shards[n]
		voters := 0
		changing := false
		for i := range x.Replicas {
			changing = changing || (x.Replicas[i].Role == meta.RoleVoter) != (x.Replicas[i].TargetRole == meta.RoleVoter)
			if x.Replicas[i].Role == meta.RoleVoter {
				voters++
			}
		}
		isMeta := x.ID == meta.MetaShardID
		tier, _ := p.State.Tier(x.Tier)
		if changing || voters < 3 || !isMeta && (Tolerance(int(tier.ReplicationFactor)) == 0 ||
			!holdsBuckets(p, x.Replicaset)) {
			continue
		}
		for i := range domains {
			d := &domains[i]
			var in []string
			for _, id := range d.instances {
				if r, ok := x.On(id); ok && r.Role == meta.RoleVoter {
					in = append(in, p.name(id))
				}
			}
			slices.Sort(in)
			switch key := [2]uint64{x.Replicaset, uint64(i)}; {
			case isQuorum(voters, voters-len(in)):
			case isMeta && slices.Contains(keys, d.Key):
				add(Outside, "the meta shard to survive the loss of "+d.String(),
					"it has %d of the %d voters (%s), and no instance that can vote outside %s is free and online; start one",
					len(in), voters, strings.Join(in, ", "), d)
			case !isMeta && !reported[key]:
				reported[key] = true
				set, _ := p.State.Replicaset(x.Replicaset)
				add(Outside, "replicaset "+set.Name+" to survive the loss of "+d.String(),
					"it has %d of the %d voters (%s); start an instance outside %s, then expel one of these, so that it takes the place",
					len(in), voters, strings.Join(in, ", "), d)
			}
		}
	}
}
