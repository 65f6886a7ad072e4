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
	repeatAfter = [...]time.Duration{3 * time.Millisecond, 8 * time.Millisecond, 20 * time.Millisecond, 45 * time.Millisecond}
	soloLongest = 50 * time.Millisecond
)

// relay stands between the engine and the transport on the way in.
type relay struct {
	next    config.TransportFactory
	nudger  *nudger
	handler raftio.MessageHandler // set once, before the engine starts a group
}

func (r *relay) Create(c config.NodeHostConfig, messages raftio.MessageHandler, chunks raftio.ChunkHandler) raftio.ITransport {
	r.handler = messages
	return r.next.Create(c, r.receive, chunks)
}

func (r *relay) Validate(address string) bool { return r.next.Validate(address) }

func (r *relay) receive(b raftpb.MessageBatch) {
	for i := range b.Requests {
		if m := &b.Requests[i]; m.Type == raftpb.TimeoutNow {
			// The engine may reuse the batch: what is needed is copied before it gets it.
			defer r.nudger.add(nudge{call: call{shard: m.ShardID, from: m.From, to: m.To, term: m.Term}, next: time.Now().Add(repeatAfter[0])})
		}
	}
	r.handler(b)
}

// call is the message that tells a replica to campaign.
type call struct{ shard, from, to, term uint64 }

// nudge is a call that is to be made. A call of a leader has its term and is made a fixed number of times, and so is one that tells a replica to succeed a leader whose process
// has ended, which has term 0. One from the replica itself is made as long as it is the only voter and has no leader.
type nudge struct {
	call
	next  time.Time
	count int
}

func (x *nudge) solo() bool { return x.from == x.to }

// nudger is the goroutine that sends what the relay repeats, and looks after groups of one.
type nudger struct {
	h     *Host
	relay *relay
	wakeC chan struct{}

	mu   sync.Mutex
	list []nudge
	calm map[uint64]bool // shards whose replica here is not the only voter, whatever it reads in its log
}

// Calm says that the shard's replica here is one of several voters, before it is started: while it reads its log, in which it may once have been the only one, it calls no
// election. It would take the leadership from who has it, with a log that lags behind. It has no effect on the engine's own transport.
func (h *Host) Calm(shard uint64) {
	if h.nudger == nil {
		return
	}
	h.nudger.mu.Lock()
	defer h.nudger.mu.Unlock()
	if h.nudger.calm == nil {
		h.nudger.calm = make(map[uint64]bool)
	}
	h.nudger.calm[shard] = true
}

func (n *nudger) add(x nudge) {
	n.mu.Lock()
	for i := range n.list {
		if n.list[i].call == x.call {
			n.mu.Unlock()
			return // under way
		}
	}
	n.list = append(n.list, x)
	n.mu.Unlock()
	select {
	case n.wakeC <- struct{}{}:
	default:
	}
}

// look is called by the engine's event goroutine when a group here has become ready, or its members have changed. It only notes it: a call of the engine could
// wait for the very goroutine that it is on.
func (n *nudger) look(shard, replica uint64) {
	n.mu.Lock()
	calm := n.calm[shard]
	n.mu.Unlock()
	if calm {
		return
	}
	n.add(nudge{call: call{shard: shard, from: replica, to: replica}, next: time.Now()})
}

func (n *nudger) run() {
	defer n.h.wg.Done()
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for {
		t.Reset(n.step(time.Now()))
		select {
		case <-n.h.stopC:
			return
		case <-n.wakeC:
		case <-t.C:
		}
	}
}

// step does what is due, and returns how long nothing is.
func (n *nudger) step(now time.Time) time.Duration {
	n.mu.Lock()
	var due []nudge
	keep := n.list[:0]
	for _, x := range n.list {
		if x.next.After(now) {
			keep = append(keep, x)
		} else {
			due = append(due, x)
		}
	}
	clear(n.list[len(keep):])
	n.list = keep
	n.mu.Unlock()

	var infos map[uint64]engineInfo
	for _, x := range due {
		if x.solo() && infos == nil {
			infos = n.h.engineInfos()
		}
		if !n.wanted(&x, infos) {
			continue
		}
		n.relay.handler(raftpb.MessageBatch{
			DeploymentId: n.h.cfg.Deployment, BinVer: raftio.TransportBinVersion,
			Requests: []raftpb.Message{{Type: raftpb.TimeoutNow, ShardID: x.shard, From: x.from, To: x.to, Term: x.term}},
		})
		x.count++
		switch {
		case x.solo():
			x.next = now.Add(min(time.Millisecond<<min(x.count, 10), soloLongest))
		case x.count < len(repeatAfter):
			x.next = now.Add(repeatAfter[x.count] - repeatAfter[x.count-1])
		default:
			continue
		}
		n.mu.Lock()
		n.list = append(n.list, x)
		n.mu.Unlock()
	}

	n.mu.Lock()
	defer n.mu.Unlock()
	wait := time.Hour
	for _, x := range n.list {
		wait = min(wait, x.next.Sub(now))
	}
	return max(wait, 0)
}

// wanted says whether a nudge still has a purpose.
func (n *nudger) wanted(x *nudge, infos map[uint64]engineInfo) bool {
	leader, term := n.h.leaderOf(x.shard, x.to)
	switch {
	case x.term != 0:
		return term <= x.term
	case !x.solo():
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
