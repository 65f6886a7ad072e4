package core

import (
	"fmt"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Change is a change of a held lease: the acquire is set again, with another count or other data.
type Change struct {
	Request
	Count   uint64 // units to keep; 0: as many as are held
	Data    []byte // beside the entry, if SetData
	SetData bool
	Keep    []string // slots, as many as Count; nil: the first ones
	Hold    uint64   // ms: for so much more time from now on; 0: the bound stays

	known uint64 // a preemption whose bound is known here; 0: none
	l     *Lease
	n     *name
	mine  bool // it has the name's turn
	msg   protocol.Acquire
	reply protocol.AcquireReply
}

func (x *Change) begin(e *Engine, l *Lease) {
	x.l, x.mine = l, false
	s := l.Session
	x.Request = Request{Waiter: x.Waiter, purpose: purpose{
		kind: protocol.KindAcquire, message: &x.msg, head: &x.msg.Head, session: s, op: x,
		to: atBucket, arg: l.bucket, tier: s.Tier,
	}}
	l.check(e)
	if over := l.Over(); over != nil {
		e.complete(&x.Request, Result{Err: over})
		return
	}
	x.n = l.name
	x.n.lock(e, &x.Request, Next)
}

func (x *Change) turn(e *Engine) {
	l := x.l
	x.mine = true
	if l.over != nil {
		x.end(e)
		e.complete(&x.Request, Result{Err: l.over})
		return
	}
	x.msg = protocol.Acquire{Name: []byte(x.n.key), Count: l.count, Data: l.data, Ephemeral: l.ephemeral}
	if x.Count > 0 {
		x.msg.Count = x.Count
	}
	if x.SetData {
		x.msg.Data = x.Data
	}
	x.setOptions()
	e.send(&x.Request)
}

// setOptions repeats what the lease was acquired with, without what chooses slots. A lease with a bound
// says again that bounds are known.
func (x *Change) setOptions() {
	b := x.l.bound
	bounded := x.Hold != 0 || b != nil && (b.until != 0 || b.preempt.said != 0)
	if x.l.Options == nil && len(x.Keep) == 0 && !bounded {
		return
	}
	o := &protocol.AcquireOptions{Names: x.Keep, Hold: x.Hold, Known: x.known}
	if was := x.l.Options; was != nil {
		o.Priority, o.Key, o.Flags = was.Priority, was.Key, was.Flags
	}
	if bounded {
		o.Flags |= protocol.KnowsBounds
	}
	x.msg.Options = o
}

func (x *Change) decode(body []byte) (bool, error) { return false, x.reply.DecodeBody(body) }

// decided: a change that was sent, and is refused when it is sent again, loses the lease: how much
// the server has of it, and under which number, is not known.
func (x *Change) decided(e *Engine, err error) {
	l, n, s := x.l, x.n, x.session
	x.closeNumber(e)
	unknown := false
	switch {
	case err != nil:
		l.bound.unsaid(x.known)
		if unknown = x.unanswered && !endsEntry(err); unknown {
			pause := s.machine.Timeout() / 20 // in which the work under the lease stops
			if l.over == nil && n.lease == l {
				n.lose(e, lostBy(e, s, unexplained, fmt.Errorf("%w: %v", ErrLeaseLost, err)))
			} else {
				pause = 0
			}
			n.releaseNext(e, s, x.arg, 0, pause)
		}
	case x.reply.State == protocol.Acquired && x.reply.OrderID == l.Token:
		l.count, l.data, l.seq, l.Slots = x.msg.Count, x.msg.Data, x.seq, slotsOf(x.reply.Grant)
		l.answered(e, &x.Request, x.reply.Grant)
		if x.Hold != 0 {
			l.check(e)
			err = l.over // it came too late
		}
	default:
		// The server had nothing of ours to change: the lease was taken away, and nobody could say so.
		if n.lease == l {
			n.lose(e, lostBy(e, s, unexplained, errNotKnown))
		}
		if x.reply.State == protocol.Acquired { // what it granted instead is nobody's
			n.releaseNext(e, s, x.arg, x.reply.OrderID, 0)
		}
		err = errNotKnown
	}
	x.end(e)
	e.complete(&x.Request, Result{Err: err, Answered: err != nil, Unknown: unknown})
}

// left: a change that may be on its way is completed. Behind a release it would be an acquire that
// nobody waits for.
func (x *Change) left(e *Engine, err error) {
	if x.unanswered || x.state == Sent {
		e.notify(&x.Request, Result{Err: err, Unknown: true, InBackground: true})
		return
	}
	e.withdraw(&x.Request)
	x.l.bound.unsaid(x.known)
	if x.mine {
		x.closeNumber(e)
		x.end(e)
	}
	e.complete(&x.Request, Result{Err: err})
}

func (x *Change) over(e *Engine, err error) { e.fail(&x.Request, err) }

// end gives up the turn.
func (x *Change) end(e *Engine) { x.n.unlock(e) }
