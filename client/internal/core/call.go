package core

import (
	"bytes"
	"errors"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Call is a request of any kind but those of leases and of sessions themselves: it is sent until it
// is answered, or given up. A call with a number takes effect at most once. One without may arrive
// more than once.
type Call struct {
	Request
	Kind    protocol.Kind
	Msg     protocol.Message
	Head    *protocol.Head   // of Msg; nil: it has no number
	Reply   protocol.Message // filled in if the answer is OK
	Session *Session         // nil: it belongs to none
	To      Target
	Single  bool     // it is sent once: the loss of its connection ends it
	Writes  bool     // it has no number, and changes the shard
	Read    *Read    // it reads; nil: another call, or a read of the leader
	OneShot *OneShot // is armed by it; Msg is a Describe then, and Session is set
}

// Target is where a call goes. The zero value is any instance.
type Target struct {
	Of       TargetKind
	Tier     uint8
	Bucket   uint32 // of AtBucket
	Shard    uint64 // of AtShard
	Instance uint64 // of AtInstance
	Node     uint64 // of AtName and AtProcess
	Name     string
}

// TargetKind is a kind of target.
type TargetKind uint8

const (
	AnyInstance TargetKind = iota
	AtBucket               // the leader of the shard that owns the bucket
	AtShard                // the leader of the shard
	AtName                 // the leader of the shard that owns the name of a semaphore or a rollout
	AtProcess              // the same of a coordination process
	AtInstance             // the instance
)

// ErrShardsChanged: the cluster has no such shard any more.
var ErrShardsChanged = errors.New("the cluster has other shards by now")

func (x *Call) begin(e *Engine) {
	x.Request = Request{Waiter: x.Waiter, purpose: purpose{
		kind: x.Kind, message: x.Msg, head: x.Head, session: x.Session, op: x, to: anyInstance,
		tier: x.To.Tier, once: x.Single,
	}}
	switch x.To.Of {
	case AnyInstance:
	case AtInstance:
		x.to = x.atInstance
	default:
		x.to = x.atOwner
	}
	if s := x.Session; s != nil && s.err != nil {
		e.fail(&x.Request, s.err)
		return
	}
	e.send(&x.Request)
}

// owner is the bucket of a target that is served by a shard, and that shard; nil: the map does not
// have it.
func (t *Target) owner(m *table) (bucket uint32, w *shardRoute) {
	tier := m.tier(t.Tier)
	switch {
	case tier == nil:
		return 0, nil
	case t.Of == AtShard:
		if bucket, ok := tier.someBucket(m.shard(t.Shard)); ok {
			return bucket, m.shard(t.Shard)
		}
		return 0, nil
	case t.Of == AtName:
		bucket = protocol.Bucket(t.Node, []byte(t.Name), tier.buckets)
	case t.Of == AtProcess:
		bucket = protocol.ProcessBucket(t.Node, []byte(t.Name), tier.buckets)
	default:
		bucket = t.Bucket
	}
	return bucket, tier.owner(bucket)
}

// atOwner is the leader of the shard that the call is for.
func (x *Call) atOwner(e *Engine, r *Request) *Conn {
	bucket, w := x.To.owner(e.routes.table)
	if w == nil && x.To.Of == AtShard && e.routes.table.tier(r.tier) != nil {
		e.complete(r, Result{Err: ErrShardsChanged, Unknown: r.unanswered})
		return nil
	}
	r.arg = uint64(bucket)
	if x.Read != nil && w != nil {
		if c := x.Read.replica(e, w); c != nil {
			r.shard = w.shard
			return c
		}
	}
	return e.routes.toLeader(e, r, w)
}

// prepare implements preparer.
func (x *Call) prepare(e *Engine, c *Conn, _ uint64) {
	if x.Read != nil {
		x.Read.prepare(e, x.shard, c)
	}
	if x.OneShot != nil {
		x.OneShot.arm(e, x, c)
	}
}

// atInstance is the connection to the call's instance.
func (x *Call) atInstance(e *Engine, r *Request) *Conn {
	if e.routes.table == nil {
		return e.routes.toLeader(e, r, nil)
	}
	l := e.routes.link(x.To.Instance)
	if l.conn == nil {
		r.awaits = l
		l.await(e, r)
	}
	return l.conn
}

// someBucket is a bucket that a shard owns.
func (t *tier) someBucket(w *shardRoute) (uint32, bool) {
	place := slices.Index(t.owners, w)
	if w == nil || place < 0 {
		return 0, false
	}
	return t.first[slices.Index(t.place, uint16(place))], true
}

func (x *Call) turn(*Engine) {}

func (x *Call) decode(body []byte) (bool, error) {
	return false, protocol.DecodeBody(x.Reply, bytes.Clone(body)) // it may alias the body, which is the reader's
}

func (x *Call) decided(e *Engine, err error) {
	var refusal *protocol.Error
	// A change of the cluster that waits for a shard without a majority may still happen.
	pending := errors.As(err, &refusal) && isPending(refusal)
	if err == nil && x.Read != nil {
		e.routes.memory(x.shard).read(*x.Read.Index)
	}
	if x.Writes && (err == nil || x.unanswered) && x.from != nil {
		e.routes.memory(x.shard).wrote(e.now, x.from.instance)
	}
	x.done(e, err)
	e.complete(&x.Request, Result{Err: err, Answered: err != nil && !pending, Unknown: pending})
}

// left: the number is closed, so a copy that is still on its way is refused once a later request
// has come there. See R15.
func (x *Call) left(e *Engine, err error) {
	sent := x.unanswered || x.state == Sent
	x.done(e, err)
	e.withdraw(&x.Request)
	e.complete(&x.Request, Result{Err: err, Unknown: sent})
}

func (x *Call) over(e *Engine, err error) {
	x.done(e, err)
	e.fail(&x.Request, err)
}

// done arms what the call arms, or not.
func (x *Call) done(e *Engine, err error) {
	if x.OneShot != nil {
		x.OneShot.answered(e, err)
	}
}

// Attempts is how often the request was sent.
func (r *Request) Attempts() int { return int(r.attempts) }

// Shard is where it went last; 0: no shard was found, or needed.
func (r *Request) Shard() uint64 { return r.shard }
