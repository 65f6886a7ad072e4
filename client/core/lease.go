package core

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Lease is a number of units of a semaphore that a session holds. Its maker hands it in with the
// acquire. Fields that begin with a capital do not change after the grant.
type Lease struct {
	Owner   any // the driver's
	Session *Session
	Token   uint64

	name      *name // while it is not over
	bucket    uint64
	count     uint64
	data      []byte
	ephemeral bool
	seq       uint64 // number of the acquire that the server's entry carries
	over      error  // why it ended

	// Where the last answer about it came from: events about it come the same way.
	att   *attachment
	from  *Conn
	shard uint64
	asked *question // that is under way; nil: none is
}

// grantedBy notes where an answer came from that says that the lease is held.
func (l *Lease) grantedBy(r *Request) { l.att, l.from, l.shard = r.att, r.from, r.shard }

// Over is why the lease ended, or nil.
func (l *Lease) Over() error {
	if l.over == nil && l.Session != nil {
		return l.Session.err
	}
	return l.over
}

// Count is how many units are held.
func (l *Lease) Count() uint64 { return l.count }

// Acquire is one acquire from the call to its outcome. Turn and what the lease is to be are set
// before the call, and so is Lease.
type Acquire struct {
	Request
	Lease *Lease
	Turn  Turn
	Msg   protocol.Acquire // Name, Count, Timeout, Data, Ephemeral

	name  *name // while it has the turn, or waits for it
	mine  bool  // it has the turn
	reply protocol.AcquireReply
}

func (a *Acquire) begin(e *Engine, s *Session, key string) {
	a.Request = Request{
		Waiter: a.Waiter, kind: protocol.KindAcquire, message: &a.Msg, head: &a.Msg.Head, session: s, op: a,
		to: atName, tier: s.Tier,
	}
	if s.err != nil {
		e.fail(&a.Request, s.err)
		return
	}
	a.name, a.mine = s.names.take(e, key), false
	if !a.name.lock(e, &a.Request, a.Turn) {
		e.complete(&a.Request, Result{Err: ErrNotAcquired})
	}
}

func (a *Acquire) turn(e *Engine) {
	if a.name.lease != nil {
		a.name.unlock(e, a.session)
		e.complete(&a.Request, Result{Err: ErrAlreadyHeld})
		return
	}
	a.mine = true
	e.send(&a.Request)
}

// atName is the leader of the shard that owns the name.
func atName(e *Engine, r *Request) *Conn {
	t := e.routes.table.tier(r.tier)
	if t == nil {
		return e.routes.toLeader(e, r, nil)
	}
	r.arg = uint64(protocol.Bucket(r.session.Node, r.op.(*Acquire).Msg.Name, t.buckets))
	return e.routes.toLeader(e, r, t.owner(uint32(r.arg)))
}

func (a *Acquire) decode(body []byte) (accepted bool, err error) {
	err = a.reply.DecodeBody(body)
	accepted = err == nil && a.reply.State == protocol.Accepted
	if s := a.session; accepted {
		if s.accepted == nil {
			s.accepted = make(map[uint64]*Acquire)
		}
		s.accepted[a.seq] = a
	}
	return accepted, err
}

// waiters are the session's accepted acquires, in order.
func (s *Session) waiters() (list []*Acquire) {
	for _, seq := range slices.Sorted(maps.Keys(s.accepted)) {
		list = append(list, s.accepted[seq])
	}
	return list
}

// result processes the result of an accepted acquire. One that is not awaited came twice, or is
// answered again by the request that asks for it.
func (s *Session) result(e *Engine, m *protocol.AcquireResult) {
	a := s.accepted[m.Seq]
	if a == nil || a.state != Accepted {
		return
	}
	a.reply = protocol.AcquireReply{State: m.State, OrderID: m.OrderID}
	if m.Status != protocol.StatusOK {
		e.refused(&a.Request, &protocol.Error{Status: m.Status, Message: m.Message})
		return
	}
	e.step(&a.Request, inAnswered, nil)
}

func (a *Acquire) decided(e *Engine, err error) {
	switch {
	case err != nil:
	case a.reply.State == protocol.Acquired:
		a.grant(e)
		return
	case a.reply.State == protocol.NotAcquired && a.Msg.Timeout == protocol.Forever:
		// That wait ends by being ended. Over a lost link the server remembers only that nothing
		// has come of it. See R12.
		err = protocol.Errorf(protocol.StatusAborted,
			"the wait, or what it came to, was ended while the connection was lost; acquire again")
	case a.reply.State == protocol.NotAcquired:
		a.end(e)
		e.complete(&a.Request, Result{Err: ErrNotAcquired, Answered: true})
		return
	default:
		err = protocol.Errorf(protocol.StatusInternal, "server answered an acquire with state %d", a.reply.State)
	}
	if a.unanswered && !endsEntry(err) {
		a.undo(e)
	} else {
		a.end(e)
	}
	e.refuse(&a.Request, err)
}

// endsEntry says whether an acquire that was answered like this leaves the session nothing at the
// semaphore. Any other answer, such as that of a missing right, decides nothing about an earlier
// sending: it may be in the queue, or granted. See R13.
func endsEntry(err error) bool {
	switch protocol.StatusOf(err) {
	case protocol.StatusAborted, protocol.StatusNotFound, protocol.StatusPreconditionFailed, protocol.StatusBadRequest:
		return true
	}
	return false
}

// grant makes the lease and gives up the turn.
func (a *Acquire) grant(e *Engine) {
	s, n, l := a.session, a.name, a.Lease
	switch {
	case a.att != s.attachment || a.from.over || e.routes.moved(a.tier, a.arg, a.shard, a.from):
		a.closeNumber(e) // it may have been taken away since: its number is the question
		e.send(&a.Request)
		return
	case !s.held(e):
		a.closeNumber(e)
		if s.due(e); s.err != nil {
			a.over(e, s.err)
		} else {
			e.pause(&a.Request) // until a ping is answered
		}
		return
	}
	if n.lost >= a.reply.OrderID {
		a.end(e)
		e.refuse(&a.Request, protocol.Errorf(protocol.StatusAborted,
			"the semaphore was taken away right after it was acquired"))
		return
	}
	*l = Lease{
		Owner: l.Owner, Session: s, Token: a.reply.OrderID, name: n, bucket: a.arg, count: a.Msg.Count, data: a.Msg.Data,
		ephemeral: a.Msg.Ephemeral, seq: a.seq,
	}
	l.grantedBy(&a.Request)
	n.lease = l
	a.end(e)
	e.complete(&a.Request, Result{})
}

// end ends what is kept for the acquire, and its turn.
func (a *Acquire) end(e *Engine) {
	a.closeNumber(e)
	delete(a.session.accepted, a.seq)
	a.name.unlock(e, a.session)
}

// left gives up the place in the queue. What was sent is undone before anything else is done with
// the name. See R14.
func (a *Acquire) left(e *Engine, err error) {
	sent := a.unanswered || a.state == Sent
	e.withdraw(&a.Request)
	switch {
	case sent:
		a.undo(e)
	case a.mine:
		a.end(e)
	}
	e.complete(&a.Request, Result{Err: err})
}

func (a *Acquire) over(e *Engine, err error) {
	delete(a.session.accepted, a.seq)
	e.complete(&a.Request, Result{Err: err})
}

// undo releases, under a later number, what an acquire has or may get. It keeps the name's turn.
func (a *Acquire) undo(e *Engine) {
	delete(a.session.accepted, a.seq)
	a.closeNumber(e)
	r := &Release{name: a.name}
	r.begin(a.session, a.arg)
	r.after, r.via, r.several = a.seq, a.via, a.several
	e.send(&r.Request)
}

// Release is one release from the call until it was answered.
type Release struct {
	Request
	Msg       protocol.Release
	name      *name
	closing   *Close        // that it is part of; nil: none
	notBefore time.Duration // it is sent then at the earliest
}

// release gives a lease back.
func (r *Release) release(e *Engine, l *Lease) {
	if over := l.Over(); over != nil {
		if errors.Is(over, ErrReleased) {
			over = nil
		}
		e.complete(&r.Request, Result{Err: over})
		return
	}
	r.name = l.name
	r.begin(l.Session, l.bucket)
	r.Msg.OrderID = l.Token
	l.over, l.name = ErrReleased, nil
	if r.name.locked { // a change of the lease is under way: the release comes next
		r.name.queue.pushFront(&r.Request)
		return
	}
	r.name.locked = true
	e.send(&r.Request)
}

func (r *Release) begin(s *Session, bucket uint64) {
	r.Msg.Name, r.Msg.OrderID = append(r.Msg.Name[:0], r.name.key...), 0
	r.Request = Request{
		Waiter: r.Waiter, kind: protocol.KindRelease, message: &r.Msg, head: &r.Msg.Head, session: s, op: r,
		to: atBucket, arg: bucket, tier: s.Tier,
	}
}

func (r *Release) turn(e *Engine) {
	if e.now < r.notBefore {
		r.state = Waiting
		r.session.later.pushBack(&r.Request)
		r.delay.of = r
		e.timers.set(&r.delay, r.notBefore)
		return
	}
	e.send(&r.Request)
}

// releaseNext releases, after a pause, what nobody relies on. It does so before anybody else works
// on the name, whose turn the caller has.
func (n *name) releaseNext(e *Engine, s *Session, bucket, token uint64, pause time.Duration) {
	r := &Release{name: n, notBefore: e.now + pause}
	r.begin(s, bucket)
	r.Msg.OrderID = token
	n.queue.pushFront(&r.Request)
}

func (r *Release) decode(body []byte) (bool, error) {
	var m protocol.ReleaseReply
	return false, m.DecodeBody(body)
}

func (r *Release) decided(e *Engine, err error) {
	r.closeNumber(e)
	r.name.lease = nil
	r.name.unlock(e, r.session)
	if r.closing != nil {
		r.closing.released(e)
	} else if !r.waited() && err != nil {
		e.ready.Event = append(e.ready.Event, Event{Kind: ReleaseRefused, Session: r.session, Err: err})
	}
	e.complete(&r.Request, Result{Err: err, Answered: err != nil})
}

// left: the release goes on in the background.
func (r *Release) left(e *Engine, err error) {
	e.notify(&r.Request, Result{Err: err, InBackground: true})
}

func (r *Release) over(e *Engine, err error) {
	r.unanswered = true // the units are free when the server ends the session
	e.fail(&r.Request, err)
	if r.closing != nil {
		r.closing.released(e)
	}
}

// leaseLost processes the event that a lease was taken away.
func (s *Session) leaseLost(e *Engine, m *protocol.LeaseLost) {
	n := s.names.get(string(m.Name))
	switch {
	case n == nil:
	case n.lease != nil && n.lease.Token == m.OrderID:
		n.lose(e, m.Message)
	case n.locked:
		n.lost = max(n.lost, m.OrderID) // of a grant that was not processed yet
	}
}

// lose ends a lease that the server does not have any more.
func (n *name) lose(e *Engine, message string) {
	l := n.lease
	err := ErrLeaseLost
	if message != "" {
		err = fmt.Errorf("%w: %s", ErrLeaseLost, message)
	}
	n.lease = nil
	if l.over == nil {
		l.over, l.name = err, nil
		e.ready.Event = append(e.ready.Event, Event{Kind: LeaseEnded, Session: l.Session, Lease: l, Err: err})
	}
	if !n.locked {
		n.locked = true
		n.unlock(e, l.Session) // to whom the lease was in the way
	}
}
