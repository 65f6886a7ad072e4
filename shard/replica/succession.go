package replica

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// successionDelay is how long the second of a group's replicas that may succeed a leader waits for the first, and the third for the second: two that stand at once split the votes.
const successionDelay = 200 * time.Millisecond

// Succeed has the replicas here stand for election in the groups whose leader was on the host at a raft address, because its process has ended: they need not wait until they
// have not heard it for long enough. Agree are the raft addresses of other hosts that found the same; in a group of which they and this host are no majority nothing is done.
// It returns in how many groups a replica here stands. It has no effect on the engine's own transport.
//
// A wrong word costs a needless election and nothing else: raft takes an election at any time. Pre-votes are passed over, and with them the rule that who hears a leader
// grants none; the word of a majority that the leader's process has ended stands in for it.
func (h *Host) Succeed(address string, agree []string) (stands int) {
	if h.campaigner == nil {
		return 0
	}
	infos := h.engineInfos()
	now := time.Now()
	for _, g := range h.running() {
		h.mu.Lock()
		leader := g.leader
		h.mu.Unlock()
		i := infos[g.shard]
		if leader == 0 || leader == g.id || i.Replica != g.id || !sameAddress(i.Voters[leader], address) || i.Voters[g.id] == "" {
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
		// Each group begins with another one, so that leaderships are spread over those that are left.
		rank := (slices.Index(candidates, g.id) + int(g.shard%uint64(len(candidates)))) % len(candidates)
		h.campaigner.add(campaign{campaignKey: campaignKey{shard: g.shard, from: leader, to: g.id}, next: now.Add(time.Duration(rank) * successionDelay)})
		stands++
	}
	return stands
}

func sameAddress(a, b string) bool {
	return strings.EqualFold(strings.TrimSpace(a), strings.TrimSpace(b))
}
