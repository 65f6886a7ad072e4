package replica

import (
	"sync"
	"time"

	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"
)

// TimeoutNow is the engine's message for "campaign now", by which a leader transfers its
// leadership. A replica that has not applied all that it knows to be committed ignores it silently,
// while the leader waits and drops all proposals. Messages may be duplicated, so the interceptor
// repeats it a few times. A group of one is sent the same message, because it would wait for a
// leader that cannot exist.
var (
	repeatDelays = [...]time.Duration{3 * time.Millisecond, 8 * time.Millisecond,
		20 * time.Millisecond, 45 * time.Millisecond}
	maxSingleDelay = 50 * time.Millisecond
)

// campaignKey identifies a TimeoutNow message.
type campaignKey struct{ shard, from, to, term uint64 }

// campaign is a TimeoutNow to be sent. One from a leader has its term and is repeated a fixed
// number of times. So is one for the succession of a leader whose process has ended; it has term 0.
// One from a replica to itself is repeated while it is the only voter and has no leader.
type campaign struct {
	campaignKey
	next  time.Time
	count int
}

func (x *campaign) single() bool { return x.from == x.to }

// campaigner is the goroutine that sends campaigns.
type campaigner struct {
	engine      *engine
	groups      *groupTable
	deployment  uint64
	interceptor *interceptor
	wakeup

	mu         sync.Mutex
	pending    []campaign
	suppressed map[uint64]bool // shards whose replica here is not the only voter, whatever its log says
}

// suppress keeps the replica of a shard here from campaigning as the only voter.
func (n *campaigner) suppress(shard uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.suppressed == nil {
		n.suppressed = make(map[uint64]bool)
	}
	n.suppressed[shard] = true
}

func (n *campaigner) add(x campaign) {
	n.mu.Lock()
	for i := range n.pending {
		if n.pending[i].campaignKey == x.campaignKey {
			n.mu.Unlock()
			return // pending already
		}
	}
	n.pending = append(n.pending, x)
	n.mu.Unlock()
	n.wake()
}

// checkSingle is called on the engine's event goroutine when a group is ready or its members have
// changed. It must not call the engine, which may wait for that goroutine.
func (n *campaigner) checkSingle(shard, replica uint64) {
	n.mu.Lock()
	suppressed := n.suppressed[shard]
	n.mu.Unlock()
	if suppressed {
		return
	}
	n.add(campaign{campaignKey: campaignKey{shard: shard, from: replica, to: replica}, next: time.Now()})
}

func (n *campaigner) run(stop <-chan struct{}) {
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for {
		t.Reset(n.step(time.Now()))
		select {
		case <-stop:
			return
		case <-n.wakeup:
		case <-t.C:
		}
	}
}

// step sends what is due, and returns how long nothing will be.
func (n *campaigner) step(now time.Time) time.Duration {
	n.mu.Lock()
	var due []campaign
	keep := n.pending[:0]
	for _, x := range n.pending {
		if x.next.After(now) {
			keep = append(keep, x)
		} else {
			due = append(due, x)
		}
	}
	clear(n.pending[len(keep):])
	n.pending = keep
	n.mu.Unlock()

	var infos map[uint64]engineInfo
	for _, x := range due {
		if x.single() && infos == nil {
			infos = n.engine.infos()
		}
		if !n.stillWanted(&x, infos) {
			continue
		}
		n.interceptor.handler(raftpb.MessageBatch{
			DeploymentId: n.deployment, BinVer: raftio.TransportBinVersion,
			Requests: []raftpb.Message{{Type: raftpb.TimeoutNow, ShardID: x.shard,
				From: x.from, To: x.to, Term: x.term}},
		})
		x.count++
		switch {
		case x.single():
			x.next = now.Add(min(time.Millisecond<<min(x.count, 10), maxSingleDelay))
		case x.count < len(repeatDelays):
			x.next = now.Add(repeatDelays[x.count] - repeatDelays[x.count-1])
		default:
			continue
		}
		n.mu.Lock()
		n.pending = append(n.pending, x)
		n.mu.Unlock()
	}

	n.mu.Lock()
	defer n.mu.Unlock()
	wait := time.Hour
	for _, x := range n.pending {
		wait = min(wait, x.next.Sub(now))
	}
	return max(wait, 0)
}

// stillWanted reports whether a campaign still has a purpose.
func (n *campaigner) stillWanted(x *campaign, infos map[uint64]engineInfo) bool {
	leader, term := n.groups.leaderOf(x.shard, x.to)
	switch {
	case x.term != 0:
		return term <= x.term
	case !x.single():
		return leader == 0 || leader == x.from
	}
	i, ok := infos[x.shard]
	if !ok || i.Replica != x.to {
		return false
	}
	if _, voter := i.Voters[x.to]; !voter || len(i.Voters) != 1 {
		return false // the next change of members calls again
	}
	return leader != x.to
}
