package replica

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// successionDelay is the delay of the second candidate of a group behind the first, and of the
// third behind the second: two that campaign at once split the votes.
const successionDelay = 200 * time.Millisecond

// Succeed makes replicas here campaign in the groups whose leader was on the host at a raft
// address, because its process has ended. They need not wait for the election timeout. Agree are
// the raft addresses of other hosts that found the same: a group in which these and this host are
// no majority is left alone. It returns the number of groups in which a replica here campaigns.
//
// A wrong report costs a needless election, which raft tolerates at any time. The pre-vote is
// skipped, which would protect a live leader; the finding of a majority that the leader's process
// has ended replaces it.
func (h *Host) Succeed(address string, agree []string) (stands int) {
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
		// Each group starts with another candidate, so that leaderships are spread over the
		// remaining replicas.
		rank := (slices.Index(candidates, g.id) + int(g.shard%uint64(len(candidates)))) % len(candidates)
		h.campaigner.add(campaign{campaignKey: campaignKey{shard: g.shard, from: leader, to: g.id}, next: now.Add(time.Duration(rank) * successionDelay)})
		stands++
	}
	return stands
}

func sameAddress(a, b string) bool {
	return strings.EqualFold(strings.TrimSpace(a), strings.TrimSpace(b))
}
