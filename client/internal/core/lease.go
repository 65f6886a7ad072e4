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
// acquire. Fields that begin with a capital do not change after the grant, but for Slots.
type Lease struct {
	Owner   any // the driver's
	Session *Session
	Token   uint64

	Slots   []string                 // that are held, where units have names
	Options *protocol.AcquireOptions // that it was acquired with; nil: none

	name      *name // while it is not over
	bucket    uint64
	count     uint64
	data      []byte
	ephemeral bool
	seq       uint64 // number of the acquire that the server's entry carries
	over      error  // why it ended
	bound     *bound // nil: it is a plain one

	ignoresPreemption bool

	// Where the last answer about it came from: events about it come the same way.
	att   *attachment
	from  *Conn
	shard uint64
	asked *question // that is under way; nil: none is
}

// grantedBy notes where an answer came from that says that the lease is held.
func (l *Lease) grantedBy(r *Request) { l.att, l.from, l.shard = r.att, r.from, r.shard }

// slotsOf are the slots of a grant.
func slotsOf(g *protocol.Grant) []string {
	if g == nil {
		return nil
	}
	return g.Slots
}

// Over is why the lease ended, or nil.
func (l *Lease) Over() error {
	if l.over == nil && l.Session != nil {
		return l.Session.err
	}
	return l.over
}

// end ends the lease, once.
func (l *Lease) end(e *Engine, err error) {
	l.over, l.name = err, nil
	if l.bound != nil {
		e.timers.stop(&l.bound.timer)
	}
}

// Count is how many units are held.
func (l *Lease) Count() uint64 { return l.count }

// Lease returns the session's lease on a semaphore, or nil.
func (s *Session) Lease(name string) *Lease {
	if n := s.names.get(name); n != nil && n.lease != nil && n.lease.over == nil {
		return n.lease
	}
	return nil
}

// Release is one release from the call until it was answered. Msg.To is the caller's.
type Release struct {
	Request
	Msg         protocol.Release
	Released    bool // there was something to give back
	Transferred bool // to the session Msg.To
	name        *name
	closing     *Close        // that it is part of; nil: none
	notBefore   time.Duration // it is sent then at the earliest
	byName      bool          // whatever the session has there is given back
}

// release gives a lease back.
func (r *Release) release(e *Engine, l *Lease) {
	r.Request = Request{Waiter: r.Waiter, purpose: purpose{op: r}}
	l.check(e)
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
	l.end(e, ErrReleased)
	if r.name.locked { // a change of the lease is under way: the release comes next
		r.name.queue.pushFront(&r.Request)
		return
	}
	r.name.locked = true
	e.send(&r.Request)
}

func (r *Release) begin(s *Session, bucket uint64) {
	r.Msg.Name, r.Msg.OrderID, r.Msg.Bound = append(r.Msg.Name[:0], r.name.key...), 0, 0
	r.Request = Request{Waiter: r.Waiter, purpose: purpose{
		kind: protocol.KindRelease, message: &r.Msg, head: &r.Msg.Head, session: s, op: r,
		to: atBucket, arg: bucket, tier: s.Tier,
	}}
}

// releaseName gives back whatever the session has at a name.
func (r *Release) releaseName(e *Engine, s *Session, key string) {
	r.Request = Request{Waiter: r.Waiter, purpose: purpose{op: r, session: s}}
	if s.err != nil {
		e.fail(&r.Request, s.err)
		return
	}
	r.byName, r.name = true, s.names.take(e, s, key)
	r.begin(s, 0)
	r.to = atName
	r.name.lock(e, &r.Request, Next)
}

func (r *Release) turn(e *Engine) {
	if l := r.name.lease; r.byName && l != nil && l.over == nil {
		l.end(e, ErrReleased)
		e.ready.Event = append(e.ready.Event, Event{Kind: LeaseEnded, Session: r.session, Lease: l, Err: ErrReleased})
	}
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
func (n *name) releaseNext(e *Engine, s *Session, bucket, token uint64, pause time.Duration) *Release {
	r := &Release{name: n, notBefore: e.now + pause}
	r.begin(s, bucket)
	r.Msg.OrderID = token
	n.queue.pushFront(&r.Request)
	return r
}

func (r *Release) decode(body []byte) (bool, error) {
	var m protocol.ReleaseReply
	err := m.DecodeBody(body)
	r.Released, r.Transferred = m.Released, m.Transferred
	return false, err
}

func (r *Release) decided(e *Engine, err error) {
	r.closeNumber(e)
	r.name.lease = nil
	r.name.unlock(e)
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

// waiters are the session's queued acquires, in order.
func (s *Session) waiters() (list []*Acquire) {
	for _, seq := range slices.Sorted(maps.Keys(s.inQueue)) {
		list = append(list, s.inQueue[seq])
	}
	return list
}

// result processes the result of a queued acquire. One that is not awaited came twice, or is
// answered again by the request that asks for it.
func (s *Session) result(e *Engine, m *protocol.AcquireResult) {
	a := s.inQueue[m.Seq]
	if a == nil || a.state != Queued {
		return
	}
	a.reply, a.later = protocol.AcquireReply{State: m.State, OrderID: m.OrderID, Grant: m.Grant}, true
	e.routes.memory(a.shard).wrote(e.now, a.on.instance)
	if m.Status != protocol.StatusOK {
		e.refused(&a.Request, &protocol.Error{Status: m.Status, Message: m.Message})
		return
	}
	e.step(&a.Request, inAnswered, nil)
}

// leaseLost processes the event that a lease was taken away.
func (s *Session) leaseLost(e *Engine, m *protocol.LeaseLost) {
	n := s.names.get(string(m.Name))
	switch {
	case n == nil:
	case n.lease != nil && n.lease.Token == m.OrderID:
		n.lose(e, s.lossOf(e, m.Cause, m.Message))
	case n.locked:
		n.lost = max(n.lost, m.OrderID) // of a grant that was not processed yet
	}
}

// lossOf is why a lease is lost, by the server's words.
func (s *Session) lossOf(e *Engine, cause protocol.HoldEnd, message string) error {
	switch {
	case cause == protocol.HoldMaxHold:
		return lostBy(e, s, maxHold, ErrMaxHold)
	case cause == protocol.HoldPreempted:
		return lostBy(e, s, preempted, ErrPreempted)
	case message == protocol.DeletedByForce:
		return lostBy(e, s, deleted, fmt.Errorf("%w: %s", ErrLeaseLost, message))
	case message == "": // it does not say who took it
		return lostBy(e, s, unexplained, ErrLeaseLost)
	}
	return lostBy(e, s, releasedByOperator, fmt.Errorf("%w: %s", ErrLeaseLost, message))
}

// lose ends a lease that the server does not have any more.
func (n *name) lose(e *Engine, err error) {
	l := n.lease
	n.lease = nil
	if l.over == nil {
		l.end(e, err)
		e.ready.Event = append(e.ready.Event, Event{Kind: LeaseEnded, Session: l.Session, Lease: l, Err: err})
	}
	if !n.locked {
		n.locked = true
		n.unlock(e) // of an operation that the lease was in the way of
	}
}
