package request

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/session"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/leader"
	"github.com/signalbox-dev/signalbox/shard/ratelimit"
)

// RateLimits drives the leases of a shard's rate limits while this instance leads it. Lock order:
// the shard's machine, then mu, then a hub.
type RateLimits struct {
	host Shard

	Refreshes, Acquires, Notified atomic.Uint64

	mu     sync.Mutex
	term   uint64 // that leases are of
	leases *leader.RateLimits
	signer session.Signer
	ask    ratelimit.Refresh
	answer ratelimit.Reply
	signed []byte
	timer  *time.Timer
	armed  time.Duration // clock: when it fires; 0: not
	closed bool
}

func newRateLimits(d Shard) *RateLimits { return &RateLimits{host: d, leases: leader.NewRateLimits()} }

// close ends it with the shard.
func (r *RateLimits) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.leases.Reset()
	if r.timer != nil {
		r.timer.Stop()
	}
}

// errNotLeading refuses what only a leader can answer.
var errNotLeading = protocol.Errorf(protocol.StatusUnavailable, "the shard is led elsewhere now; fetch the map and send it again")

// enter begins a call: mu is held after it. A barrier has proved the leadership some time ago, and
// the machine may be another leader's by now.
func (r *RateLimits) enter(m *shard.Machine) bool {
	r.mu.Lock()
	term := r.host.Raft().LedTerm()
	if term != r.term {
		r.leases.Reset()
		r.term = term
	}
	return term != 0 && m.Epoch()>>16 == term && !r.closed
}

// refresh answers a refresh behind a barrier.
func (r *RateLimits) refresh(x reading, q *protocol.LimitRefresh, out *protocol.LimitRefreshReply) error {
	leads := r.enter(x.m)
	defer r.mu.Unlock()
	if !leads {
		return errNotLeading
	}
	r.Refreshes.Add(1)
	current, previous := x.it.conn.server.Routes().Keys()
	node, epoch := x.it.scope.node, x.it.epoch
	ask := &r.ask
	*ask = ratelimit.Refresh{Session: q.Session, Epoch: epoch, Seq: q.Seq,
		Leadership: ratelimit.Leadership{Bucket: q.BucketEpoch, Epoch: q.LeaderEpoch}, Leaves: ask.Leaves[:0]}
	for i := range q.Leaves {
		f := &q.Leaves[i]
		leaf := ratelimit.LeafRefresh{Leaf: string(f.Path), Demand: f.Demand, Waiting: f.Waiting, Need: f.Need,
			Presented: len(f.Statement) > 0, Allowed: f.Allowed, Denied: f.Denied, Waited: f.Waited, Impossible: f.Impossible,
			Units: f.Units, Left: f.Left, Closed: f.Closed}
		if leaf.Presented {
			leaf.Held, _ = r.signer.VerifyLease(f.Statement, current, previous, node, q.Session, epoch, f.Path)
		}
		ask.Leaves = append(ask.Leaves, leaf)
	}
	if err := r.leases.Refresh(x.m, x.logTime, node, q.Path, ask, &r.answer); err != nil {
		return err
	}
	a := &r.answer
	*out = protocol.LimitRefreshReply{BucketEpoch: a.Leadership.Bucket, LeaderEpoch: a.Leadership.Epoch, Length: a.Length,
		Again: a.Learning, Leaves: out.Leaves[:0]}
	r.signed = r.signed[:0]
	for i := range a.Leaves {
		f := &a.Leaves[i]
		lease := protocol.LimitLease{State: protocol.LimitState(f.State), Rate: f.Lease.Rate,
			Burst: f.Lease.Burst, Length: f.Length, Level: f.Level,
			Retry: f.Retry, Most: f.Most, Limit: f.Limit, Floor: f.Floor, Shadow: f.Shadow, Why: protocol.LimitWhy(f.Why), At: []byte(f.At)}
		if f.Lease.Number.Count != 0 {
			start := len(r.signed)
			r.signed = r.signer.AppendLease(r.signed, current, node, q.Session, epoch, q.Leaves[i].Path, &f.Lease)
			lease.Statement = r.signed[start:len(r.signed):len(r.signed)]
		}
		out.Leaves = append(out.Leaves, lease)
	}
	r.schedule(r.leases.Next(r.host.Raft().LogTime()))
	return nil
}

// acquire takes units behind a barrier.
func (r *RateLimits) acquire(x reading, q *protocol.LimitAcquire, out *protocol.LimitAcquireReply) (err error) {
	leads := r.enter(x.m)
	defer r.mu.Unlock()
	if !leads {
		return errNotLeading
	}
	r.Acquires.Add(1)
	ask := ratelimit.Acquire{Session: q.Session, Epoch: x.it.epoch, Seq: q.Seq, Done: q.Done, Within: q.Within,
		Wait: q.Wait, Back: q.Back}
	for i := range q.Leaves {
		ask.Leaves = append(ask.Leaves, string(q.Leaves[i].Path))
		ask.Demands = append(ask.Demands, q.Leaves[i].Demand)
	}
	for i := range q.Calls {
		ask.Amounts = append(ask.Amounts, q.Calls[i].Amount)
	}
	var a ratelimit.Acquired
	err = r.leases.Acquire(x.m, x.logTime, x.it.scope.node, q.Path, &ask, &a)
	*out = protocol.LimitAcquireReply{Granted: uint64(a.Granted), Retry: a.Retry,
		BucketEpoch: a.Leadership.Bucket, LeaderEpoch: a.Leadership.Epoch}
	r.schedule(r.leases.Next(r.host.Raft().LogTime()))
	return err
}

// usersShown bounds the sessions that an error names.
const usersShown = 5

// checkParent refuses a child of a leaf that sessions have open: all of them would fail. What a
// session has not said yet, it does not know.
func (r *RateLimits) checkParent(node uint64, q *protocol.LimitCreate) (bad *protocol.Error) {
	at := bytes.LastIndexByte(q.Path, '/')
	if q.Force || at < 0 {
		return nil
	}
	r.host.Raft().View(func(m *shard.Machine) {
		leads := r.enter(m)
		defer r.mu.Unlock()
		if !leads {
			return
		}
		parent := q.Path[:at]
		users, count := r.leases.Users(m, r.host.Raft().LogTime(), node, parent, usersShown)
		if count == 0 {
			return
		}
		list := ""
		for _, id := range users {
			list += fmt.Sprintf(" %d", id)
		}
		if count > len(users) {
			list += " ..."
		}
		bad = protocol.Errorf(protocol.StatusPreconditionFailed,
			"%d sessions use %s, and could not with a child below it:%s; move them to another resource, or force it", count, parent, list)
	})
	return bad
}

// describe reads a tree behind a barrier.
func (r *RateLimits) describe(x reading, q *protocol.LimitDescribe, out *protocol.LimitStatus) error {
	leads := r.enter(x.m)
	defer r.mu.Unlock()
	if !leads {
		return errNotLeading
	}
	err := r.leases.Describe(x.m, x.logTime, q, out)
	r.schedule(r.leases.Next(r.host.Raft().LogTime()))
	return err
}

// LimitUsage is what metrics show of the rate limits that are led here.
type LimitUsage struct {
	Learning    uint64 // ms, the longest of any tree
	Unconfirmed int
	Leaves      []LeafUsage
}

// LeafUsage is of a leaf in a node.
type LeafUsage struct {
	Node uint64
	ratelimit.Usage
}

// Usage shows at most so many leaves.
func (r *RateLimits) Usage(most int) (u LimitUsage) {
	r.host.Raft().View(func(m *shard.Machine) {
		leads := r.enter(m)
		defer r.mu.Unlock()
		if !leads {
			return
		}
		r.leases.All(m, r.host.Raft().LogTime(), func(node, now uint64, l *ratelimit.Leases) bool {
			u.Learning = max(u.Learning, l.Learning(now))
			u.Unconfirmed += l.Unconfirmed()
			l.Usage(func(x *ratelimit.Usage) bool {
				if len(u.Leaves) == most {
					return false
				}
				u.Leaves = append(u.Leaves, LeafUsage{node, *x})
				return true
			})
			return true
		})
	})
	return u
}

// schedule has tick called after so many ms, unless it is called earlier. mu is held.
func (r *RateLimits) schedule(in uint64, due bool) {
	wait := time.Duration(in) * time.Millisecond
	at := r.host.Requests().server.cfg.Clock.Now() + wait
	if !due || r.closed || r.armed != 0 && r.armed <= at {
		return
	}
	if r.armed = at; r.timer == nil {
		r.timer = time.AfterFunc(wait, r.tick)
	} else {
		r.timer.Reset(wait)
	}
}

// tick notifies sessions that are to refresh at once.
func (r *RateLimits) tick() {
	server := r.host.Requests().server
	defer server.Guard("rate limits", func() {})
	defer server.Flush() // nobody else sends what a timer says
	r.host.Raft().View(func(m *shard.Machine) {
		leads := r.enter(m)
		defer r.mu.Unlock()
		if r.armed = 0; !leads {
			return
		}
		r.leases.Tick(m, r.host.Raft().LogTime(), func(node uint64, name string, session, revision uint64) {
			r.Notified.Add(1)
			r.host.Hubs().Limits.Notify(node, name, session, revision)
		})
		r.schedule(r.leases.Next(r.host.Raft().LogTime()))
	})
}
