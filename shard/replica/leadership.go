package replica

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/replica/leaderdriver"
)

// leadership follows the leader, by raft's reports and by the epochs that are applied, and begins
// and ends the work of a leader. Its fields are guarded by applyMu.
type leadership struct {
	s        *Shard
	notified bool // the sink was notified of a leader
	leader   uint64
	leading  bool

	known atomic.Uint64 // leader, readable without applyMu
}

// handleLeaderUpdate acts on raft's report, which proves nothing: it has a take-over proposed, or
// ends a leadership.
func (l *leadership) handleLeaderUpdate() {
	s := l.s
	if !s.proposals.RaftChanged() {
		return
	}
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	leader, c, ok := s.proposals.FollowRaft(s.cfg.Replica)
	if !ok {
		return
	}
	s.proposer.fail(c.Failed, protocol.StatusUnavailable)
	if c.Ended {
		s.driver.End()
	}
	l.notify(leader, c.Leads)
}

// epochApplied is called in the step whose entry changed the shard's epoch register. Older batches
// in flight will be rejected.
func (l *leadership) epochApplied(epoch, logTime uint64) {
	s := l.s
	c := s.proposals.EpochApplied(epoch)
	s.proposer.fail(c.Failed, protocol.StatusUnavailable)
	switch {
	case c.Began:
		l.begin(epoch, logTime)
		l.notify(s.cfg.Replica, true)
	case c.Ended:
		s.driver.End()
		l.notify(0, false)
	}
	s.proposals.Wake()
}

// begin is called in the step that applied this replica's epoch: later events belong to later
// entries.
func (l *leadership) begin(epoch, logTime uint64) {
	s := l.s
	now := millis(s.clock)
	s.barriers.lastProof.at.Store(0)
	s.logTime.start(epoch>>16, now, logTime)
	s.driver.Begin(leaderdriver.Term{Epoch: epoch, LogTime: logTime, Now: now})
}

// notify notifies the sink of a change. The caller holds applyMu.
func (l *leadership) notify(leader uint64, leading bool) {
	if l.notified && l.leader == leader && l.leading == leading {
		return
	}
	l.notified, l.leader, l.leading = true, leader, leading
	s := l.s
	l.known.Store(leader)
	s.sink.LeaderChanged(s, leader, leading)
	s.host.cfg.Changed()
}

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
