package replica

import (
	"sync"
	"time"

	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"

	"github.com/signalbox-dev/signalbox/shard/replica/engine"
	"github.com/signalbox-dev/signalbox/shard/replica/wakeup"
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
// number of times. So is one that replaces a leader whose process has ended; it has term 0.
// One from a replica to itself is repeated while it is the only voter and has no leader.
type campaign struct {
	campaignKey
	next  time.Time
	count int
}

func (c *campaign) single() bool { return c.from == c.to }

// campaigner is the goroutine that sends campaigns.
type campaigner struct {
	engine      *engine.Engine
	groups      *groupTable
	deployment  uint64
	interceptor *interceptor
	wakeup.Wakeup

	mu         sync.Mutex
	pending    []campaign
	suppressed map[uint64]bool // shards whose replica here is not the only voter, whatever its log says
}

// suppress keeps the replica of a shard here from campaigning as the only voter.
func (c *campaigner) suppress(shard uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.suppressed == nil {
		c.suppressed = make(map[uint64]bool)
	}
	c.suppressed[shard] = true
}

func (c *campaigner) add(x campaign) {
	c.mu.Lock()
	for i := range c.pending {
		if c.pending[i].campaignKey == x.campaignKey {
			c.mu.Unlock()
			return // pending already
		}
	}
	c.pending = append(c.pending, x)
	c.mu.Unlock()
	c.Wake()
}

// checkSingle is called on the engine's event goroutine when a group is ready or its members have
// changed. It must not call the engine, which may wait for that goroutine.
func (c *campaigner) checkSingle(shard, replica uint64) {
	c.mu.Lock()
	suppressed := c.suppressed[shard]
	c.mu.Unlock()
	if suppressed {
		return
	}
	c.add(campaign{campaignKey: campaignKey{shard: shard, from: replica, to: replica}, next: time.Now()})
}

func (c *campaigner) run(stop <-chan struct{}) {
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for {
		t.Reset(c.step(time.Now()))
		select {
		case <-stop:
			return
		case <-c.Wakeup:
		case <-t.C:
		}
	}
}

// step sends the due campaigns, and returns the time until the next one.
func (c *campaigner) step(now time.Time) time.Duration {
	c.mu.Lock()
	var due []campaign
	keep := c.pending[:0]
	for _, x := range c.pending {
		if x.next.After(now) {
			keep = append(keep, x)
		} else {
			due = append(due, x)
		}
	}
	clear(c.pending[len(keep):])
	c.pending = keep
	c.mu.Unlock()

	var infos map[uint64]engine.Info
	for _, x := range due {
		if x.single() && infos == nil {
			infos = c.engine.Infos()
		}
		if !c.stillWanted(&x, infos) {
			continue
		}
		c.interceptor.handler(raftpb.MessageBatch{
			DeploymentId: c.deployment, BinVer: raftio.TransportBinVersion,
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
		c.mu.Lock()
		c.pending = append(c.pending, x)
		c.mu.Unlock()
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	wait := time.Hour
	for _, x := range c.pending {
		wait = min(wait, x.next.Sub(now))
	}
	return max(wait, 0)
}

// stillWanted reports whether a campaign still has a purpose.
func (c *campaigner) stillWanted(x *campaign, infos map[uint64]engine.Info) bool {
	leader, term := c.groups.leaderOf(x.shard, x.to)
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
