package replica

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// candidateDelay is the delay of the second candidate of a group behind the first, and of the
// third behind the second: two that campaign at once split the votes.
const candidateDelay = 200 * time.Millisecond

// replaceLeader is [Host.ReplaceLeader].
func (c *campaigner) replaceLeader(address string, agree []string) (stands int) {
	infos := c.engine.Infos()
	now := time.Now()
	for _, g := range c.groups.running() {
		leader, _ := c.groups.leaderOf(g.shard, g.id)
		i := infos[g.shard]
		if leader == 0 || leader == g.id || i.Replica != g.id || !sameAddress(i.Voters[leader], address) ||
			i.Voters[g.id] == "" {
			continue
		}
		candidates := slices.Sorted(maps.Keys(i.Voters))
		candidates = slices.DeleteFunc(candidates, func(id uint64) bool { return id == leader })
		agreed := 1
		for _, id := range candidates {
			if id != g.id && slices.ContainsFunc(agree, func(a string) bool { return sameAddress(i.Voters[id], a) }) {
				agreed++
			}
		}
		if agreed <= len(i.Voters)/2 {
			continue
		}
		// Each group starts with another candidate, so that leaderships are spread over the
		// remaining replicas.
		rank := (slices.Index(candidates, g.id) + int(g.shard%uint64(len(candidates)))) % len(candidates)
		c.add(campaign{campaignKey: campaignKey{shard: g.shard, from: leader, to: g.id},
			next: now.Add(time.Duration(rank) * candidateDelay)})
		stands++
	}
	return stands
}

func sameAddress(a, b string) bool {
	return strings.EqualFold(strings.TrimSpace(a), strings.TrimSpace(b))
}
