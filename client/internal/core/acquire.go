package core

import (
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Acquire is one acquire from the call to its outcome. Turn and what the lease is to be are set
// before the call, and so is Lease.
type Acquire struct {
	Request
	Lease *Lease // nil: none is made, the entry is the caller's, and other operations on the name are not waited for
	Turn  Turn
	Msg   protocol.Acquire // Name, Count, Timeout, Data, Ephemeral, Options
	// IgnorePreemption has the lease not end because a waiter preempts it: the server is never told
	// that the bound of a preemption is known. The program is told of it all the same.
	IgnorePreemption bool
	OnQueued         Waiter // is in Ready.Wake when the server has put the request into the queue; nil: nobody
	Token            uint64 // that it will have, set then

	name     *name    // while it has the turn, or waits for it
	mine     bool     // it has the turn
	queued   bool     // OnQueued was woken
	patience patience // ends the wait for the turn
	reply    protocol.AcquireReply
	later    bool    // reply is a result, which came later than the answer
	place    reading // by the answer before it
}

// Queued reports whether the server put the request into the queue.
func (a *Acquire) Queued() bool { return a.queued }

func (a *Acquire) begin(e *Engine, s *Session, key string) {
	a.Request = Request{Waiter: a.Waiter, purpose: purpose{
		kind: protocol.KindAcquire, message: &a.Msg, head: &a.Msg.Head, session: s, op: a,
		to: atName, tier: s.Tier,
	}}
	a.name, a.mine, a.queued = nil, false, false
	a.later, a.place = false, reading{}
	if s.err != nil {
		e.fail(&a.Request, s.err)
		return
	}
	if a.Lease == nil {
		e.send(&a.Request)
		return
	}
	if e.bounded.has(s.Node, key) && !a.knowsBounds() {
		a.sayKnows()
	}
	a.patience.begin(e, a)
	a.name = s.names.take(e, s, key)
	if !a.name.lock(e, &a.Request, a.Turn) {
		a.patience.end(e)
		e.complete(&a.Request, Result{Err: ErrNotAcquired})
	}
}

// patience bounds the wait for the session's own lease by the timeout of the acquire, as the wait at
// the server is bounded.
type patience struct {
	timer timer
	a     *Acquire
	began time.Duration
}

func (p *patience) begin(e *Engine, a *Acquire) {
	if a.Turn == Free && a.Msg.Timeout != protocol.Forever {
		p.a, p.began, p.timer.of = a, e.now, p
		e.timers.set(&p.timer, e.now+millis(a.Msg.Timeout))
	}
}

// end ends it. What has gone by counts for the wait at the server.
func (p *patience) end(e *Engine) {
	if a := p.a; a != nil {
		e.timers.stop(&p.timer)
		a.Msg.Timeout -= min(a.Msg.Timeout, uint64((e.now-p.began)/time.Millisecond))
		p.a = nil
	}
}

func (p *patience) due(e *Engine) {
	a := p.a
	p.end(e)
	e.withdraw(&a.Request)
	e.complete(&a.Request, Result{Err: ErrNotAcquired})
}

func (a *Acquire) turn(e *Engine) {
	a.patience.end(e)
	if a.name.lease != nil {
		a.name.unlock(e)
		e.complete(&a.Request, Result{Err: ErrAlreadyHeld})
		return
	}
	a.mine = true
	e.send(&a.Request)
}

// atName is the leader of the shard that owns the name that an acquire, or a release, is about.
func atName(e *Engine, r *Request) *Conn {
	t := e.routes.table.tier(r.tier)
	if t == nil {
		return e.routes.toLeader(e, r, nil)
	}
	var name []byte
	switch x := r.op.(type) {
	case *Acquire:
		name = x.Msg.Name
	case *Release:
		name = x.Msg.Name
	}
	r.arg = uint64(protocol.Bucket(r.session.Node, name, t.buckets))
	return e.routes.toLeader(e, r, t.owner(uint32(r.arg)))
}

func (a *Acquire) decode(body []byte) (queued bool, err error) {
	err = a.reply.DecodeBody(body)
	a.later = false
	queued = err == nil && a.reply.State == protocol.Queued
	if queued {
		put(&a.session.inQueue, a.seq, a)
	}
	return queued, err
}

func (a *Acquire) decided(e *Engine, err error) {
	switch {
	case a.Lease != nil && protocol.RefusalOf(err) == protocol.RefusalBound && !a.knowsBounds():
		e.bounded.add(a.session.Node, string(a.Msg.Name))
		a.sayKnows()
		a.renumber(e)
		e.send(&a.Request)
		return
	case err != nil:
	case a.reply.State == protocol.Acquired && a.Lease == nil:
		a.end(e)
		e.complete(&a.Request, Result{})
		return
	case a.reply.State == protocol.Acquired:
		a.grant(e)
		return
	case a.reply.State == protocol.NotAcquired && a.Msg.Timeout == protocol.Forever:
		// That wait ends by being ended. Over a lost link the server remembers only that nothing
		// has come of it. See R12.
		err = protocol.Errorf(protocol.StatusAborted,
			"the wait, or the lease that it got, was ended while the connection was lost; acquire again")
	case a.reply.State == protocol.NotAcquired:
		a.end(e)
		e.complete(&a.Request, Result{Err: ErrNotAcquired, Answered: true})
		return
	default:
		err = protocol.Errorf(protocol.StatusInternal, "server answered an acquire with state %d", a.reply.State)
	}
	if a.unanswered && !endsEntry(err) && a.Lease != nil {
		a.undo(e)
	} else {
		a.end(e)
	}
	e.refuse(&a.Request, err)
}

// endsEntry reports whether an acquire that was answered like this leaves the session nothing at
// the semaphore. Any other answer, such as that of a missing right, decides nothing about an
// earlier sending: it may be in the queue, or granted. See R13.
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
	case a.att != s.attachment || a.from.over || e.routes.moved(a.tier, a.arg, a.shard, a.from), a.waitedLong():
		a.unanswered = true // it has an entry at the server
		a.closeNumber(e)    // which may have been taken away since: its number is the question
		e.send(&a.Request)
		return
	case !s.held(e):
		a.unanswered = true
		a.closeNumber(e)
		s.due(e)
		e.pause(&a.Request) // until a ping is answered, or the session is over, which ends it after this step
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
		ephemeral: a.Msg.Ephemeral, seq: a.seq, Slots: slotsOf(a.reply.Grant), Options: a.Msg.Options,
		ignoresPreemption: a.IgnorePreemption,
	}
	l.grantedBy(&a.Request)
	n.lease = l
	if v, ok := reportOf(a.reply.Grant); ok {
		if l.ignoresPreemption && v.preemption != 0 {
			// The report has the earlier one of two moments. It may be the end of the longest hold.
			l.learn(e, report{now: v.now, until: v.until}, a.reading())
		}
		l.learn(e, v, a.reading())
	}
	if n.early != nil && n.early.token == l.Token {
		l.learn(e, n.early.report, reading{})
		n.early = nil
	}
	l.check(e)
	a.end(e)
	e.complete(&a.Request, Result{})
}

// end ends what is kept for the acquire, and its turn.
func (a *Acquire) end(e *Engine) {
	a.closeNumber(e)
	delete(a.session.inQueue, a.seq)
	if a.name != nil {
		a.name.unlock(e)
	}
}

// left gives up the place in the queue. What was sent is undone before anything else is done with
// the name. See R14.
func (a *Acquire) left(e *Engine, err error) {
	sent := a.unanswered || a.state == Sent
	a.patience.end(e)
	e.withdraw(&a.Request)
	switch {
	case sent && a.Lease != nil:
		a.undo(e)
	case a.mine || a.Lease == nil:
		a.end(e)
	}
	e.complete(&a.Request, Result{Err: err})
}

func (a *Acquire) over(e *Engine, err error) {
	a.patience.end(e)
	delete(a.session.inQueue, a.seq)
	e.complete(&a.Request, Result{Err: err})
}

// undo releases, under a later number, the units that an acquire has or may get. It keeps the
// name's turn.
func (a *Acquire) undo(e *Engine) {
	delete(a.session.inQueue, a.seq)
	a.closeNumber(e)
	r := &Release{name: a.name}
	r.begin(a.session, a.arg)
	r.after, r.via, r.several = a.seq, a.via, a.several
	e.send(&r.Request)
}

// renumber has the acquire sent under another number: the last one has come to nothing.
func (a *Acquire) renumber(e *Engine) {
	a.closeNumber(e)
	delete(a.session.inQueue, a.seq)
	a.seq, a.closed, a.unanswered = 0, false, false
}

// noteQueued notes that the server has put the request into the queue.
func (a *Acquire) noteQueued(e *Engine) {
	a.place = readingOf(&a.Request, a.reply.Grant)
	if !a.queued {
		a.queued, a.Token = true, a.reply.OrderID
		if a.OnQueued != nil {
			e.ready.Wake = append(e.ready.Wake, a.OnQueued)
		}
	}
}

// A hold that would have a bound is refused to a client that does not say that it knows bounds. So
// plain acquires ask for nothing; one that is refused is asked for again, and the name is remembered.

func (a *Acquire) knowsBounds() bool {
	return a.Msg.Options != nil && a.Msg.Options.Flags&protocol.KnowsBounds != 0
}

// sayKnows has the acquire say that it knows bounds. Options are the caller's, and are not changed.
func (a *Acquire) sayKnows() {
	var o protocol.AcquireOptions
	if a.Msg.Options != nil {
		o = *a.Msg.Options
	}
	o.Flags |= protocol.KnowsBounds
	a.Msg.Options = &o
}

// waitedLong reports whether the wait lasted longer than the hold does. The reading of its beginning
// is too coarse then, or there is none: the server is asked for another one.
func (a *Acquire) waitedLong() bool {
	g := a.reply.Grant
	if !a.later || g == nil || g.Until == 0 {
		return false
	}
	return !a.place.ok || g.Now-min(g.Now, a.place.now) > g.Until-min(g.Until, g.Now)
}

// reading is that of the answer to the acquire: of a result, that of the answer before it.
func (a *Acquire) reading() reading {
	if a.later {
		return a.place
	}
	return readingOf(&a.Request, a.reply.Grant)
}

// maxBoundedNames is how many names are remembered; then it begins again.
const maxBoundedNames = 10_000

// boundedNames are the names of semaphores, by node, that were found to have a longest hold.
type boundedNames map[boundedName]struct{}

type boundedName struct {
	node uint64
	name string
}

func (x boundedNames) has(node uint64, name string) bool {
	if len(x) == 0 {
		return false
	}
	_, ok := x[boundedName{node, name}]
	return ok
}

func (x *boundedNames) add(node uint64, name string) {
	if *x == nil || len(*x) >= maxBoundedNames {
		*x = make(boundedNames)
	}
	(*x)[boundedName{node, name}] = struct{}{}
}
