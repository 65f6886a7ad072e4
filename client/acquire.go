package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/millis"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Max is the largest limit and count: 2^64-1.
const Max uint64 = protocol.Forever

// AcquireOption is an option of Acquire, TryAcquire and the recipes.
type AcquireOption func(*acquireOptions)

type acquireOptions struct {
	count      uint64
	data       []byte
	timeout    uint64 // ms
	ephemeral  bool
	limit      uint64 // to create with, 0: do not
	exact      bool   // no other limit will do
	onAccepted func(token uint64)
	lock       lockMode                 // for the name
	ask        *protocol.AcquireOptions // nil: a plain one
	err        error                    // of the first option that is out of its range
}

// Count is how many units are acquired, 1 up to the semaphore's limit; default 1. Max on an
// ephemeral semaphore acquires it whole.
func Count(n uint64) AcquireOption { return func(o *acquireOptions) { o.count = n } }

// Data is shown beside the entry by Describe and watches; at most 1 MiB. Default: none.
func Data[T ~string | ~[]byte](data T) AcquireOption {
	own := append([]byte(nil), data...) // a change of the lease sends it again later
	return func(o *acquireOptions) { o.data = own }
}

// Wait bounds the wait at the server, 0 .. 1 day; ErrNotAcquired follows. The time runs while this
// client is disconnected. With a Mutex or an RWMutex it includes the wait for other goroutines of
// the session. Default: Forever, so only ctx ends the wait.
func Wait(d time.Duration) AcquireOption {
	return func(o *acquireOptions) {
		if o.timeout = millis.Of("acquire timeout", d, &o.err); d == Forever {
			o.timeout = protocol.Forever
		}
	}
}

// Ephemeral acquires a semaphore that exists while somebody holds it or waits for it, with the
// limit Max. A semaphore that was created otherwise is refused with PreconditionFailed.
func Ephemeral() AcquireOption { return func(o *acquireOptions) { o.ephemeral = true } }

// CreateLimit creates the semaphore with this limit, 1 .. Max, if it does not exist. One that exists
// keeps its limit, whatever that is; see ExactLimit. Acquiring with Ephemeral, Shared or Exclusive
// too is a BadRequest: an ephemeral semaphore has the limit Max.
func CreateLimit(limit uint64) AcquireOption {
	return func(o *acquireOptions) {
		if o.limit = limit; limit == 0 && o.err == nil {
			o.err = protocol.Errorf(protocol.StatusBadRequest, "semaphore limit is 0; it must be at least 1")
		}
	}
}

// ExactLimit is CreateLimit, and refuses a semaphore that has another limit, with
// PreconditionFailed: programs that disagree about it notice. It costs a read at each acquire, which
// does not see a resize at the same moment. After a resize by an operator, programs with the former
// limit are refused; with CreateLimit they go on.
func ExactLimit(limit uint64) AcquireOption {
	return func(o *acquireOptions) {
		CreateLimit(limit)(o)
		o.exact = true
	}
}

// OnAccepted is called once, on the acquiring goroutine, when the request was queued behind others.
// token is the request's place: those ahead have lower ones. It is the fencing token that the request
// will have, unless the semaphore has a policy or slots, or had: then each grant draws a token of
// its own. f must not block.
func OnAccepted(f func(token uint64)) AcquireOption {
	return func(o *acquireOptions) { o.onAccepted = f }
}

// Shared is Ephemeral and Count(1): any number of sessions hold it at once, but not with Exclusive.
func Shared() AcquireOption {
	return func(o *acquireOptions) { o.ephemeral, o.count = true, 1 }
}

// Exclusive is Ephemeral and Count(Max): no other session holds it.
func Exclusive() AcquireOption {
	return func(o *acquireOptions) { o.ephemeral, o.count = true, Max }
}

// waitForOwnLease makes a second acquire of the session wait for the first one's release instead of
// failing with ErrAlreadyHeld.
func waitForOwnLease() AcquireOption { return func(o *acquireOptions) { o.lock = lockFree } }

// Acquire waits in the semaphore's FIFO queue until the session holds the units. When ctx ends
// first, the place in the queue is given up. A grant that is on its way then is given back, in the
// background if need be. The lease does not depend on ctx.
//
// Errors: ErrNotAcquired when Wait ended; ErrAlreadyHeld; ErrSessionExpired and the others of a
// session; NotFound without CreateLimit or Ephemeral; BadRequest for a count of 0 or above the
// limit, a name of 0 or more than 1,024 bytes, or too much data; PreconditionFailed when only one
// of the semaphore and the request is ephemeral; Aborted when an operator deleted the semaphore by
// force.
func (s *Session) Acquire(ctx context.Context, name string, opts ...AcquireOption) (*Lease, error) {
	l, err := s.acquire(ctx, name, opts)
	if err == nil && l == nil {
		err = ErrNotAcquired
	}
	if err != nil {
		return nil, withOp("acquire", name, err)
	}
	return l, nil
}

// Run acquires, and calls work while the session holds the units. The context of work ends with ctx,
// and with the lease, before another session can be granted them; work must return then. It has the
// values of ctx. When work has returned, Run releases the units, and waits up to 2 s for the
// server's answer.
//
// Run returns work's error, and Lost if the lease was lost before work returned, also by errors.Is.
// If it acquires nothing, it does not call work, and returns the error of Acquire.
func (s *Session) Run(
	ctx context.Context, name string, work func(ctx context.Context, l *Lease) error, opts ...AcquireOption,
) error {
	l, err := s.Acquire(ctx, name, opts...)
	if err != nil {
		return err
	}
	return l.run(ctx, work)
}

// TryAcquire acquires what is free at once. If it is not free, the lease is nil, without an error.
func (s *Session) TryAcquire(ctx context.Context, name string, opts ...AcquireOption) (*Lease, error) {
	l, err := s.acquire(ctx, name, append(opts[:len(opts):len(opts)], func(o *acquireOptions) { o.lock, o.timeout = lockNow, 0 }))
	if err != nil {
		return nil, withOp("acquire", name, err)
	}
	return l, nil
}

var errEphemeralLimit = protocol.Errorf(protocol.StatusBadRequest,
	"an ephemeral semaphore is made with the limit %d; leave out CreateLimit and ExactLimit, or acquire without Ephemeral, Shared and Exclusive", Max)

func (s *Session) acquire(ctx context.Context, name string, opts []AcquireOption) (*Lease, error) {
	a, _ := acquirePool.Get().(*acquireOp)
	if a == nil {
		a = new(acquireOp)
	}
	defer a.recycle()
	a.s = s
	a.o = acquireOptions{count: 1, timeout: protocol.Forever}
	for _, f := range opts {
		f(&a.o)
	}
	if a.o.ephemeral && a.o.limit > 0 && a.o.err == nil {
		a.o.err = errEphemeralLimit
	}
	if o := s.c.cfg.Observer; o != nil {
		return a.observed(ctx, name, o)
	}
	return a.start(ctx, name)
}

// start acquires, once nobody else of the session works on the name.
func (a *acquireOp) start(ctx context.Context, name string) (_ *Lease, err error) {
	s := a.s
	if a.o.err != nil {
		return nil, a.o.err
	}
	if a.bucket, err = s.node.bucket(ctx, name); err != nil {
		return nil, err
	}
	e, held, mine, err := a.lockName(ctx, name)
	if err != nil || !mine {
		return nil, err
	}
	if held != nil {
		s.nameLocks.unlockOf(s, e)
		return nil, ErrAlreadyHeld
	}
	a.e = e
	return a.run(ctx)
}

// errWaitOver ends a wait for a name's lock.
var errWaitOver = errors.New("the wait ended")

// lockName waits for the lock of the name; ok is false when it is not to be waited for any longer.
// A wait that would wait for the session's own lease, too, counts as a wait at the server does.
func (a *acquireOp) lockName(ctx context.Context, name string) (e *nameLock, held *Lease, ok bool, err error) {
	s := a.s
	if a.o.lock != lockFree || a.o.timeout == protocol.Forever {
		return s.nameLocks.lock(ctx, s, name, a.o.lock)
	}
	began := s.c.clock.now()
	ctx, cancel := context.WithTimeoutCause(ctx, millis.Duration(a.o.timeout), errWaitOver)
	defer cancel()
	e, held, ok, err = s.nameLocks.lock(ctx, s, name, a.o.lock)
	if errors.Is(err, errWaitOver) {
		return nil, nil, false, nil
	}
	a.o.timeout -= min(a.o.timeout, uint64((s.c.clock.now()-began)/time.Millisecond))
	return e, held, ok, err
}

// acquireOp is one acquire from its first sending to its outcome. It holds the name's lock.
type acquireOp struct {
	s      *Session
	e      *nameLock
	o      acquireOptions
	bucket uint32
	x      requestState
	req    protocol.Acquire
	reply  protocol.AcquireReply
	sent   bool // some sending may have had its effect

	slots    []string // that were granted
	accepted bool     // the server has queued it once
	sendings int
	shard    uint64 // that the last one went to

	// Guarded by session.mu.
	expected bool                    // it is in session.waitingAcquires
	result   *protocol.AcquireResult // of an accepted acquire
	wake     chan struct{}           // closed with the result, if somebody waits
}

// acquirePool are used again: nothing refers to one when its acquire has returned.
var acquirePool sync.Pool

func (a *acquireOp) recycle() {
	name := a.req.Name[:0]
	*a = acquireOp{}
	a.req.Name = name
	acquirePool.Put(a)
}

// run returns a nil lease when the server said that it is not acquired.
func (a *acquireOp) run(ctx context.Context) (*Lease, error) {
	for {
		var l *Lease
		var err error
		if a.o.exact {
			err = a.checkLimit(ctx)
		}
		if err == nil {
			l, err = a.runOnce(ctx)
		}
		if l != nil {
			return l, nil // granting it gave up the turn
		}
		if a.o.limit > 0 && protocol.StatusOf(err) == protocol.StatusNotFound {
			if a.o.count > a.o.limit { // or it would be made, and the acquire refused
				err = protocol.Errorf(protocol.StatusBadRequest,
					"count %d is above %d, the limit that CreateLimit gives the semaphore, which does not exist", a.o.count, a.o.limit)
				a.s.nameLocks.unlockOf(a.s, a.e)
				return nil, err
			}
			err = a.s.Create(ctx, a.e.name, a.o.limit, nil)
			if err == nil || protocol.StatusOf(err) == protocol.StatusAlreadyExists {
				continue
			}
		}
		if err != nil && a.sent && !endsEntry(err) && a.s.endErr() == nil {
			a.releaseInBackground()
		} else {
			a.s.nameLocks.unlockOf(a.s, a.e)
		}
		return nil, err
	}
}

// checkLimit refuses a semaphore that exists with another limit.
func (a *acquireOp) checkLimit(ctx context.Context) error {
	ctx, end := bothContexts(a.s.ctx, ctx)
	defer end()
	sem, err := a.s.node.describe(ctx, a.e.name, ReadConsistency(Strict))
	if over := a.s.endErr(); over != nil {
		return over
	}
	switch {
	case err != nil:
		return err // NotFound: it is created
	case sem.Limit != a.o.limit:
		return protocol.Errorf(protocol.StatusPreconditionFailed,
			"semaphore has the limit %d, not %d; resize it, or acquire with its limit", sem.Limit, a.o.limit)
	}
	return nil
}

// endsEntry says whether an acquire that failed like this leaves the session nothing at the
// semaphore. Any other answer, such as that of a missing right, decides nothing about what an
// earlier sending came to: it may be in the queue, or granted.
func endsEntry(err error) bool {
	switch protocol.StatusOf(err) {
	case protocol.StatusAborted, protocol.StatusNotFound, protocol.StatusPreconditionFailed, protocol.StatusBadRequest:
		return answered(err)
	}
	return false
}

// runOnce runs the acquire under one number, which is closed then.
func (a *acquireOp) runOnce(ctx context.Context) (*Lease, error) {
	s := a.s
	name := append(a.req.Name[:0], a.e.name...)
	a.req = protocol.Acquire{Name: name, Count: a.o.count, Timeout: a.o.timeout, Data: a.o.data, Ephemeral: a.o.ephemeral, Options: a.o.ask}
	a.x = requestState{head: &a.req.Head, acquire: a, queues: a.o.ask != nil}
	l, err := a.attempts(ctx)
	if l != nil {
		return l, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a.close()
	return nil, err
}

// close ends what is kept for the number. session.mu is held.
func (a *acquireOp) close() {
	if a.expected {
		delete(a.s.waitingAcquires, a.x.seq)
		a.expected, a.result, a.wake = false, nil, nil
	}
	if a.x.seq != 0 {
		a.s.seqs.Close(a.x.seq)
	}
}

// expect is called by the reader when an acquire was queued: its result may be the next frame.
func (s *Session) expect(a *acquireOp) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !a.expected {
		a.expected = true
		if s.waitingAcquires == nil {
			s.waitingAcquires = make(map[uint64]*acquireOp)
		}
		s.waitingAcquires[a.x.seq] = a
	}
}

func (a *acquireOp) attempts(ctx context.Context) (*Lease, error) {
	s := a.s
	for {
		state, orderID, route, err := a.outcome(ctx)
		if err != nil || state == protocol.NotAcquired {
			return nil, err
		}
		if l, err := a.grant(route, orderID); l != nil || err != nil {
			return l, err
		} else if err := s.endErr(); err != nil {
			return nil, err
		}
		s.closeSeq(a.x.seq)
		sleep(ctx, s.ctx.Done(), retryBase)
	}
}

// outcome sends the acquire until the server has decided it: state is acquired, or not acquired
// because its timeout ended.
func (a *acquireOp) outcome(ctx context.Context) (state protocol.AcquireState, orderID uint64, route requestRoute, err error) {
	s := a.s
	for {
		route, sent, err := s.send(ctx, protocol.KindAcquire, a.bucket, &a.x, &a.req, &a.reply)
		a.sent, a.shard = a.sent || sent || err == nil, route.shard
		if err != nil {
			return 0, 0, route, err
		}
		outcome := protocol.AcquireResult{State: a.reply.State, OrderID: a.reply.OrderID, Grant: a.reply.Grant}
		if outcome.State == protocol.Accepted {
			s.closeSeq(a.x.seq)
			if !a.accepted && a.o.onAccepted != nil {
				a.o.onAccepted(outcome.OrderID)
			}
			a.accepted = true
			result, err := a.await(ctx, route)
			if err != nil {
				return 0, 0, route, err
			}
			if result == nil {
				// It may have been missed. Sent again, the acquire is answered with what became of
				// it: its entry carries the number, and when the entry is gone the server remembers
				// the end, or says that nothing is held by it.
				continue
			}
			outcome = *result
		}
		switch {
		case outcome.Status != protocol.StatusOK:
			if outcome.Status == protocol.StatusSessionExpired {
				s.endedByServer(protocol.Errorf(outcome.Status, "%s", outcome.Message))
				return 0, 0, route, s.Err()
			}
			return 0, 0, route, &protocol.Error{Status: outcome.Status, Message: outcome.Message}
		case outcome.State == protocol.NotAcquired:
			if a.o.timeout == protocol.Forever {
				// That wait ends by being ended. Over a lost link the server remembers only that
				// nothing has come of it.
				return 0, 0, route, protocol.Errorf(protocol.StatusAborted,
					"the wait, or what it came to, was ended while the connection was lost; acquire again")
			}
		case outcome.State != protocol.Acquired:
			return 0, 0, route, protocol.Errorf(protocol.StatusInternal, "server answered an acquire with state %d", outcome.State)
		}
		a.slots = slotsOf(outcome.Grant)
		return outcome.State, outcome.OrderID, route, nil
	}
}

// await waits for the result of an accepted acquire. It is nil, without an error, when the result
// may have gone another way.
func (a *acquireOp) await(ctx context.Context, route requestRoute) (*protocol.AcquireResult, error) {
	s := a.s
	s.mu.Lock()
	if a.wake == nil {
		a.wake = make(chan struct{})
		if a.result != nil {
			close(a.wake)
		}
	}
	s.mu.Unlock()
	defer s.c.needMap()()
	for {
		mapped := s.c.mapChanged()
		if s.c.routes.Load().changed(route, s.node.tier, a.bucket) {
			return nil, nil
		}
		select {
		case <-a.wake:
			s.mu.Lock()
			defer s.mu.Unlock()
			return a.result, nil
		case <-route.att.gone:
			return nil, nil
		case <-route.cn.done:
			return nil, nil
		case <-mapped:
		case <-s.ctx.Done():
			return nil, s.Err()
		case <-ctx.Done():
			return nil, interrupted(ctx, nil)
		}
	}
}

// grant makes the lease, closes the number and gives up the turn. It is nil, without an error, when
// the route was lost meanwhile, or the bucket moved: ask again whether the semaphore is held.
func (a *acquireOp) grant(route requestRoute, orderID uint64) (*Lease, error) {
	s := a.s
	l := &Lease{
		s: s, name: a.e.name, bucket: a.bucket, token: orderID, count: a.o.count, data: a.o.data,
		ephemeral: a.o.ephemeral, seq: a.x.seq, route: route, ask: a.o.ask, slots: a.slots,
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.e.lost >= orderID {
		return nil, protocol.Errorf(protocol.StatusAborted, "the semaphore was taken away right after it was acquired")
	}
	if s.attachment != route.att || route.isBroken(s, a.bucket) || !s.heldAt(s.c.clock.now()) {
		return nil, nil
	}
	a.e.lease = l
	route.recordWrite(nil)
	a.close()
	s.nameLocks.unlock(a.e)
	return l, nil
}

// releaseInBackground leaves the queue, or releases what was granted, in the background, and then
// unlocks the name. The acquire's number is closed. A copy that arrives after the release, over a
// connection that was given up, is rejected. For that the release is sent only when all numbers up
// to the acquire's are closed, or on the only connection that the acquire was sent on.
func (a *acquireOp) releaseInBackground() {
	s, r := a.s, &releaseOp{s: a.s, e: a.e, bucket: a.bucket, after: a.x.seq, on: a.x.sentVia} // a is another's when this runs
	if !s.c.run(r.finish) {
		s.nameLocks.unlockOf(s, r.e)
	}
}

// acquireResult passes the result of an accepted acquire to its caller.
func (s *Session) acquireResult(m protocol.AcquireResult) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.waitingAcquires[m.Seq]
	if a == nil || a.result != nil {
		return // nobody waits any more, or it came twice
	}
	a.result = &m
	if a.wake != nil {
		close(a.wake)
	}
}
