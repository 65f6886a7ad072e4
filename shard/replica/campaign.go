package replica

import (
	"sync"
	"time"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"
)

// The engine's word for "campaign now" is the message TimeoutNow, by which a leader hands over. A replica that has not applied all that it knows to be committed
// ignores it, silently, and the leader goes on waiting and drops all proposals meanwhile. Messages may come twice, so the relay repeats it a few times.
// The same message, made here, ends a group of one's waiting for a leader that it cannot have.
var (
	repeatDelays   = [...]time.Duration{3 * time.Millisecond, 8 * time.Millisecond, 20 * time.Millisecond, 45 * time.Millisecond}
	maxSingleDelay = 50 * time.Millisecond
)

// interceptor stands between the engine and the transport on the way in.
type interceptor struct {
	next       config.TransportFactory
	campaigner *campaigner
	handler    raftio.MessageHandler // set once, before the engine starts a group
}

func (r *interceptor) Create(c config.NodeHostConfig, messages raftio.MessageHandler, chunks raftio.ChunkHandler) raftio.ITransport {
	r.handler = messages
	return r.next.Create(c, r.receive, chunks)
}

func (r *interceptor) Validate(address string) bool { return r.next.Validate(address) }

func (r *interceptor) receive(b raftpb.MessageBatch) {
	for i := range b.Requests {
		if m := &b.Requests[i]; m.Type == raftpb.TimeoutNow {
			// The engine may reuse the batch: what is needed is copied before it gets it.
			defer r.campaigner.add(campaign{campaignKey: campaignKey{shard: m.ShardID, from: m.From, to: m.To, term: m.Term}, next: time.Now().Add(repeatDelays[0])})
		}
	}
	r.handler(b)
}

// campaignKey is the message that tells a replica to campaign.
type campaignKey struct{ shard, from, to, term uint64 }

// campaign is a call that is to be made. A call of a leader has its term and is made a fixed number of times, and so is one that tells a replica to succeed a leader whose process
// has ended, which has term 0. One from the replica itself is made as long as it is the only voter and has no leader.
type campaign struct {
	campaignKey
	next  time.Time
	count int
}

func (x *campaign) single() bool { return x.from == x.to }

// campaigner is the goroutine that sends what the relay repeats, and looks after groups of one.
type campaigner struct {
	h           *Host
	interceptor *interceptor
	wakeup      chan struct{}

	mu         sync.Mutex
	pending    []campaign
	suppressed map[uint64]bool // shards whose replica here is not the only voter, whatever it reads in its log
}

// SuppressElections says that the shard's replica here is one of several voters, before it is started: while it reads its log, in which it may once have been the only one, it calls no
// election. It would take the leadership from who has it, with a log that lags behind. It has no effect on the engine's own transport.
func (h *Host) SuppressElections(shard uint64) {
	if h.campaigner == nil {
		return
	}
	h.campaigner.mu.Lock()
	defer h.campaigner.mu.Unlock()
	if h.campaigner.suppressed == nil {
		h.campaigner.suppressed = make(map[uint64]bool)
	}
	h.campaigner.suppressed[shard] = true
}

func (n *campaigner) add(x campaign) {
	n.mu.Lock()
	for i := range n.pending {
		if n.pending[i].campaignKey == x.campaignKey {
			n.mu.Unlock()
			return // under way
		}
	}
	n.pending = append(n.pending, x)
	n.mu.Unlock()
	select {
	case n.wakeup <- struct{}{}:
	default:
	}
}

// checkSingle is called by the engine's event goroutine when a group here has become ready, or its members have changed. It only notes it: a call of the engine could
// wait for the very goroutine that it is on.
func (n *campaigner) checkSingle(shard, replica uint64) {
	n.mu.Lock()
	suppressed := n.suppressed[shard]
	n.mu.Unlock()
	if suppressed {
		return
	}
	n.add(campaign{campaignKey: campaignKey{shard: shard, from: replica, to: replica}, next: time.Now()})
}

func (n *campaigner) run() {
	defer n.h.wg.Done()
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for {
		t.Reset(n.step(time.Now()))
		select {
		case <-n.h.stopC:
			return
		case <-n.wakeup:
		case <-t.C:
		}
	}
}

// step does what is due, and returns how long nothing is.
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
			infos = n.h.engineInfos()
		}
		if !n.stillWanted(&x, infos) {
			continue
		}
		n.interceptor.handler(raftpb.MessageBatch{
			DeploymentId: n.h.cfg.Deployment, BinVer: raftio.TransportBinVersion,
			Requests: []raftpb.Message{{Type: raftpb.TimeoutNow, ShardID: x.shard, From: x.from, To: x.to, Term: x.term}},
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

// stillWanted says whether a nudge still has a purpose.
func (n *campaigner) stillWanted(x *campaign, infos map[uint64]engineInfo) bool {
	leader, term := n.h.leaderOf(x.shard, x.to)
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
		return false // another change of the members calls again
	}
	return leader != x.to
}
