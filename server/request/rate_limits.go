package request

import (
	"bytes"
	"fmt"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/session"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/leader"
	"github.com/signalbox-dev/signalbox/shard/ratelimit"
)

// limitAnswers answers requests for leases of a shard's rate limits, on the shard's barrier
// goroutine. The leases are those of [replica.Shard.RateLimits].
type limitAnswers struct {
	signer session.Signer
	ask    ratelimit.Refresh
	answer ratelimit.Reply
	signed []byte
}

// errNotLeading refuses a request that only a leader can answer.
var errNotLeading = protocol.Errorf(protocol.StatusUnavailable, "the shard is led elsewhere now; fetch the map and send it again")

// leases runs fn with the leases of the shard's rate limits, while this instance leads the shard.
func (x reading) leases(fn func(*leader.RateLimits) error) (err error) {
	if !x.host.Replica().RateLimits(x.m, func(l *leader.RateLimits) { err = fn(l) }) {
		return errNotLeading
	}
	return err
}

// refreshLeases answers a refresh behind a barrier.
func (x reading) refreshLeases(leases *leader.RateLimits, q *protocol.LimitRefresh,
	out *protocol.LimitRefreshReply) error {
	requests := x.host.Requests()
	requests.LimitRefreshes.Add(1)
	r := &requests.limits
	current, previous := x.it.conn.server.Routes().Keys()
	node, epoch := x.it.scope.node, x.it.epoch
	ask := &r.ask
	*ask = ratelimit.Refresh{Session: q.Session, Epoch: epoch, Seq: q.Seq,
		Leadership: ratelimit.Leadership{Bucket: q.BucketEpoch, Epoch: q.LeaderEpoch}, Open: q.Open, Leaves: ask.Leaves[:0]}
	for i := range q.Leaves {
		f := &q.Leaves[i]
		leaf := ratelimit.LeafRefresh{Leaf: string(f.Path), Demand: f.Demand, Waiting: f.Waiting, Need: f.Need, Elsewhere: f.Elsewhere,
			Presented: len(f.Statement) > 0, Allowed: f.Allowed, Denied: f.Denied, Waited: f.Waited, Impossible: f.Impossible, Closed: f.Closed}
		if leaf.Presented {
			leaf.Held, _ = r.signer.VerifyLease(f.Statement, current, previous, node, q.Session, epoch, f.Path)
		}
		ask.Leaves = append(ask.Leaves, leaf)
	}
	if err := leases.Refresh(x.m, x.logTime, node, q.Path, ask, &r.answer); err != nil {
		return err
	}
	a := &r.answer
	*out = protocol.LimitRefreshReply{BucketEpoch: a.Leadership.Bucket, LeaderEpoch: a.Leadership.Epoch, Length: a.Length,
		Again: a.Again, Leaves: out.Leaves[:0], Clock: a.Clock}
	r.signed = r.signed[:0]
	for i := range a.Leaves {
		f := &a.Leaves[i]
		lease := protocol.LimitLease{State: protocol.LimitState(f.State), Rate: f.Lease.Rate,
			Burst: f.Lease.Burst, Length: f.Length, Level: f.Level,
			Most: f.Most, Limit: f.Limit, Floor: f.Floor, Shadow: f.Shadow, Why: protocol.LimitWhy(f.Why), At: []byte(f.At)}
		if f.Lease.Number.Count != 0 {
			start := len(r.signed)
			r.signed = r.signer.AppendLease(r.signed, current, node, q.Session, epoch, q.Leaves[i].Path, &f.Lease)
			lease.Statement = r.signed[start:len(r.signed):len(r.signed)]
		}
		out.Leaves = append(out.Leaves, lease)
	}
	return nil
}

// acquireUnits takes a call that waits for units behind a barrier. It is answered by [Outbox.AnswerLimit], at once if
// there are units.
func (x reading) acquireUnits(leases *leader.RateLimits, q *protocol.LimitAcquire) error {
	x.host.Requests().LimitAcquires.Add(1)
	ask := ratelimit.Acquire{Session: q.Session, Epoch: x.it.epoch, Seq: q.Seq, Used: q.Used, Back: q.Back,
		Amount: q.Amount, Wait: q.Hold, From: ratelimit.Origin{Conn: x.it.conn.ID(), Request: x.it.id}}
	for i := range q.Leaves {
		ask.Leaves = append(ask.Leaves, string(q.Leaves[i].Path))
		ask.Demands = append(ask.Demands, q.Leaves[i].Demand)
	}
	err := leases.Acquire(x.m, x.logTime, x.it.scope.node, q.Path, &ask)
	if err == nil {
		x.it.conn.held.Add(1)
	}
	return err
}

// admit admits the calls that wait, behind the same barrier.
func (x reading) admit(leases *leader.RateLimits) {
	leases.Admit(x.m, x.logTime, x.host.Replica().LogTime(), func(a *ratelimit.Answer) bool { return x.host.Requests().out.AnswerLimit(x.host, a) })
}

// AnswerLimit answers a call that waited for units, or returns false if its connection is gone.
func (o *Outbox) AnswerLimit(d Shard, a *ratelimit.Answer) bool {
	c := o.server.Client(a.To.Conn)
	if c == nil {
		return false
	}
	c.held.Add(-1)
	if a.Err != nil {
		e := asError(a.Err)
		o.RejectByShard(c, d, protocol.KindLimitAcquire, a.To.Request, e.Status, e.Refusal, e.Message)
		return true
	}
	r := protocol.LimitAcquireReply{Retry: a.Retry, BucketEpoch: a.Leadership.Bucket, LeaderEpoch: a.Leadership.Epoch, Until: a.Until, Granted: a.Granted}
	o.Reply(c, protocol.KindLimitAcquire, a.To.Request, &r)
	return true
}

// usersShown bounds the sessions that an error names.
const usersShown = 5

// checkCreate refuses a child of a leaf that sessions have open, and checkDelete the end of one:
// all their calls would fail. What a session has not said yet, the leader does not know.
func checkCreate(d Shard, node uint64, q *protocol.LimitCreate) *protocol.Error {
	at := bytes.LastIndexByte(q.Path, '/')
	if q.Force || at < 0 {
		return nil
	}
	return checkUse(d, node, q.Path[:at], "with a child below it their calls would fail; move them to another resource, or force it")
}

func checkDelete(d Shard, node uint64, q *protocol.LimitDelete) *protocol.Error {
	if q.Force {
		return nil
	}
	return checkUse(d, node, q.Path, "without it their calls would fail; end them, or force it")
}

// checkUse is an error if sessions have a leaf open.
func checkUse(d Shard, node uint64, leaf []byte, why string) *protocol.Error {
	var users []uint64
	count := 0
	d.Replica().View(func(m *shard.Machine) {
		d.Replica().RateLimits(m, func(l *leader.RateLimits) {
			users, count = l.Users(m, d.Replica().LogTime(), node, leaf, usersShown)
		})
	})
	if count == 0 {
		return nil
	}
	list := ""
	for _, id := range users {
		list += fmt.Sprintf(" %d", id)
	}
	if count > len(users) {
		list += fmt.Sprintf(" and %d more", count-len(users))
	}
	return protocol.Errorf(protocol.StatusPreconditionFailed, "%s is in use by sessions%s; %s", leaf, list, why)
}
