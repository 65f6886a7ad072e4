package governor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// majorityLost says which group has no majority of voters that take part, or would have none if an
// instance were expelled, and what to do; empty if there is none. The governor could not make such
// a change, and the expel would not end.
func majorityLost(v View, instance uint64) string {
	leaving, ok := v.State.Instance(instance)
	if !ok || v.Health == nil || leaving.Target.Variant == meta.Expelled {
		return ""
	}
	p := &planner{View: v}
	p.index()
	leaving.Target.Variant = meta.Expelled
	p.instances[instance] = &leaving
	for n := range p.shards {
		x := &p.shards[n]
		if r, ok := x.On(instance); !ok || r.Role != meta.RoleVoter {
			continue
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
		tier, _ := p.State.Tier(x.Tier)
		if !p.hasQuorum(&x.Shard) && (!whole || hasBuckets(p, &tier, x.Replicaset)) {
			return fmt.Sprintf("instance '%s' cannot be expelled now: %s", leaving.Name, p.noQuorumReason(&x.Shard))
		}
		if whole {
			continue
		}
		var names, silent []string
		for _, id := range Voters(list) {
			names = append(names, p.name(id))
			if r, _ := x.On(id); !p.takesPart(&r, x.ID) {
				silent = append(silent, p.name(id))
			}
		}
		if isQuorum(len(names), len(names)-len(silent)) {
			continue
		}
		slices.Sort(names)
		slices.Sort(silent)
		return fmt.Sprintf(
			"expelling instance '%s' would leave %s without a majority: of the voters that stay (%s), %s would not take part; start %s again, or expel it first",
			leaving.Name, x, strings.Join(names, ", "), strings.Join(silent, ", "), strings.Join(silent, ", "))
	}
	return ""
}
