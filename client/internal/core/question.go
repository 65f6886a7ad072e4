package core

import (
	"fmt"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// question asks the server about a lease whose events may have been missed: it may have been taken
// away by force. It is the acquire itself under its old number, with Low as it is now: the server
// answers with the present state, and changes nothing. See R11.
type question struct {
	Request
	l     *Lease
	n     *name
	msg   protocol.Acquire
	reply protocol.AcquireReply
}

// confirm asks about the session's leases whose events may have been missed. One whose bucket has
// moved while a question was on its way is asked about at its new shard.
func (s *Session) confirm(e *Engine) {
	if s.attachment == nil || s.err != nil {
		return // the next attach asks
	}
	s.names.each(func(n *name) { n.confirm(e, s) })
}

// confirm asks about the session's lease of one name, if it has to be asked about.
func (n *name) confirm(e *Engine, s *Session) {
	switch l := n.lease; {
	case l == nil || !l.isUnconfirmed(e):
	case l.asked == nil:
		q := &question{l: l, n: n}
		q.Request = Request{purpose: purpose{
			kind: protocol.KindAcquire, message: &q.msg, head: &q.msg.Head, session: s, op: q, to: atBucket,
			arg: l.bucket, tier: s.Tier,
		}}
		l.asked = q
		n.lock(e, &q.Request, Next)
	case l.asked.state == Sent:
		if w := e.routes.table.tier(s.Tier).owner(uint32(l.bucket)); w != nil && w.shard != l.asked.shard {
			e.step(&l.asked.Request, inLost, errConnLost)
		}
	}
}

// isUnconfirmed reports whether events of the lease may have been missed: its attachment or its
// connection is over, they come from elsewhere by now, or its bound is to be learned.
func (l *Lease) isUnconfirmed(e *Engine) bool {
	s := l.Session
	return l.over == nil && s.err == nil && s.attachment != nil &&
		(l.bound != nil && l.bound.asks || l.att != s.attachment || l.from.over ||
			e.routes.moved(s.Tier, l.bucket, l.shard, l.from))
}

// moved reports whether events about a bucket, which came from a shard on a connection, come from
// elsewhere: another shard owns the bucket, or the instance has no replica of it any more. A leader
// that the map does not list as a replica reports them all the same.
func (x *routes) moved(tier uint8, bucket, shard uint64, from *Conn) bool {
	w := x.table.tier(tier).owner(uint32(bucket))
	if w == nil || w.shard != shard {
		return w != nil
	}
	return w.leader != from.instance && !slices.Contains(w.replicas, from.instance)
}

func (q *question) turn(e *Engine) {
	l := q.l
	if !l.isUnconfirmed(e) {
		q.end(e)
		return
	}
	q.msg = protocol.Acquire{Name: []byte(q.n.key), Count: l.count, Ephemeral: l.ephemeral}
	q.seq, q.closed = l.seq, true
	e.send(&q.Request)
}

func (q *question) decode(body []byte) (bool, error) { return false, q.reply.DecodeBody(body) }

// decided: a refusal does not say whether the lease was taken away and granted to another session.
// So nobody relies on it any more. The server may still have it for this one: it is released there,
// once the work under the lease has had the time to stop.
func (q *question) decided(e *Engine, err error) {
	l, n, s := q.l, q.n, q.session
	switch {
	case l.over != nil: // it is being released
	case err == nil && q.reply.State == protocol.Acquired && q.reply.OrderID == l.Token:
		l.answered(e, &q.Request, q.reply.Grant)
	case protocol.StatusOf(err) == protocol.StatusBadSession: // the next attach decides whose the session is
		q.badSessions = 0
		e.pause(&q.Request)
		return
	case endsEntry(err):
		cause := unexplained
		if protocol.StatusOf(err) == protocol.StatusNotFound {
			cause = deleted
		}
		n.lose(e, lostBy(e, s, cause, fmt.Errorf("%w: %v", ErrLeaseLost, err)))
	case err != nil:
		n.lose(e, lostBy(e, s, unexplained, fmt.Errorf("%w: %v", ErrLeaseLost, err)))
		n.releaseNext(e, s, l.bucket, l.Token, s.machine.Timeout()/20)
	default:
		n.lose(e, lostBy(e, s, unexplained, errTakenUnheard))
	}
	q.end(e)
}

// end gives up the turn.
func (q *question) end(e *Engine) {
	q.ended()
	q.l.asked = nil
	q.n.unlock(e)
}

func (q *question) left(*Engine, error) {} // a connection was refused for good: another one may not be

func (q *question) over(*Engine, error) {
	q.ended()
	q.l.asked = nil
}
