package ratelimit

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/protocol"
)

// ErrClosed is returned by calls on a limiter that was closed.
var ErrClosed = errors.New("the limiter is closed; open another one")

// remoteTry bounds an Allow that asks the server.
const remoteTry = time.Second

// Limiter admits calls within the rate of a resource that a fleet shares. Its methods may be called
// by many goroutines.
type Limiter struct {
	s    *client.Session
	p    *participant
	l    *leaf
	ctx  context.Context
	done context.CancelCauseFunc
}

// Open takes part in the rate limit of a resource, such as api/tenant-a, which must exist and have
// no children. It returns when the server has answered; the first calls may still have to wait,
// because a new lease is empty. Several limiters of a session and a resource share one lease. The
// limiter ends with the session. Errors: NotFound, Forbidden, PreconditionFailed for a resource with
// children, ctx's, the session's.
func Open(ctx context.Context, s *client.Session, path string) (*Limiter, error) {
	if err := protocol.ValidateLimitPath([]byte(path)); err != nil {
		return nil, err
	}
	p, l := open(s, path)
	x := &Limiter{s: s, p: p, l: l}
	x.ctx, x.done = context.WithCancelCause(p.ctx)
	for {
		p.mu.Lock()
		answered := p.opened
		p.mu.Unlock()
		l.mu.Lock()
		err, ready := l.err, l.most.Load() > 0
		l.mu.Unlock()
		if err != nil {
			x.end(err)
			return nil, err
		}
		if ready {
			return x, nil
		}
		select {
		case <-answered:
		case <-ctx.Done():
			x.end(ctx.Err())
			return nil, ctx.Err()
		case <-s.Context().Done():
			x.end(s.Err())
			return nil, s.Err()
		}
	}
}

// end gives the leaf up without a word to the server.
func (x *Limiter) end(err error) (last bool) {
	if x.ctx.Err() != nil {
		return false
	}
	x.done(err)
	if last = x.p.release(x.s, x.l); last {
		x.p.cancel()
		<-x.p.ended
	}
	return last
}

// Close gives the lease back, so that others can have its rate at once. Waiting calls return
// ErrClosed.
func (x *Limiter) Close(ctx context.Context) error {
	if !x.end(ErrClosed) || x.s.Err() != nil {
		return nil
	}
	return x.p.leave(ctx)
}

// Path is the resource's.
func (x *Limiter) Path() string { return x.l.path }

// Context ends with the limiter and with its session; its cause says why.
func (x *Limiter) Context() context.Context { return x.ctx }

// amountOf is units in thousandths; false if there are too many.
func amountOf(units uint64) (amount uint64, ok bool) {
	if units > protocol.MaxLimitBurstSize/1000 {
		return 0, false
	}
	return units * 1000, true
}

// Allow takes n units now, or none: it reports whether it did. The decision is local, without a
// packet. Where a resource is served remotely because there are few units for many clients, it asks
// the server, for a second at most. 0 units are free.
func (x *Limiter) Allow(n uint64) bool {
	amount, ok := amountOf(n)
	if !ok || x.ctx.Err() != nil {
		return false
	}
	return amount == 0 || x.allow(amount)
}

func (x *Limiter) allow(amount uint64) bool {
	l := x.l
	l.attempt(amount)
	if l.queued.Load() == 0 && (l.decide(now(), amount) || l.remote.Load() && x.allowRemotely(amount)) {
		l.allowed.Add(amount)
		return true
	}
	l.denied.Add(amount)
	signal(x.p.poke)
	if l.shadow.Load() {
		l.allowed.Add(amount)
		return true
	}
	return false
}

func (x *Limiter) allowRemotely(amount uint64) bool {
	ctx, cancel := context.WithTimeout(x.ctx, remoteTry)
	defer cancel()
	retry, err := x.l.acquire(ctx, x.p, amount, false)
	return err == nil && retry == 0
}

// Wait takes n units, and waits for them if it has to. Calls are admitted in the order in which
// they came. Errors: ctx's; BadRequest at once for more units than can ever be admitted together;
// NotFound for a resource that was deleted; the session's, ErrClosed.
func (x *Limiter) Wait(ctx context.Context, n uint64) error {
	r, err := x.Reserve(n)
	if err != nil {
		return err
	}
	return r.Wait(ctx)
}

// Reserve takes a place in the queue for n units, without waiting for them. Errors: those of Wait
// that come at once.
func (x *Limiter) Reserve(n uint64) (*Reservation, error) {
	amount, ok := amountOf(n)
	if most := x.l.most.Load(); !ok || amount > most {
		return nil, protocol.Errorf(protocol.StatusBadRequest,
			"%d units are more than the burst of %s allows at once, %d; ask for less, or raise the burst", n, x.l.path, most/1000)
	}
	if err := context.Cause(x.ctx); err != nil {
		return nil, err
	}
	l := x.l
	if amount == 0 {
		return &Reservation{x: x}, nil
	}
	l.attempt(amount)
	if l.queued.Load() == 0 && l.decide(now(), amount) {
		l.allowed.Add(amount)
		return &Reservation{x: x}, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return nil, l.err
	}
	r := &Reservation{x: x, w: l.enqueue(amount)}
	l.wake(x.p)
	return r, nil
}

// Reservation is a place in the queue of a limiter.
type Reservation struct {
	x *Limiter
	w *waiter // nil: it was admitted at once
}

// admittedAtOnce is closed.
var admittedAtOnce = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// Done is closed when the units were taken, or will never be: see Err.
func (r *Reservation) Done() <-chan struct{} {
	if r.w == nil {
		return admittedAtOnce
	}
	return r.w.done
}

// Err is why the units were not taken, once Done is closed; nil: they were.
func (r *Reservation) Err() error {
	if r.w == nil {
		return nil
	}
	<-r.w.done
	return r.w.err
}

// Cancel leaves the queue. Units that were taken stay taken.
func (r *Reservation) Cancel() {
	if r.w == nil {
		return
	}
	l := r.x.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unqueue(r.w) {
		r.w.err = context.Canceled
		close(r.w.done)
		l.wake(r.x.p)
	}
}

// Wait waits until the units are taken. It leaves the queue when ctx ends.
func (r *Reservation) Wait(ctx context.Context) error {
	select {
	case <-r.Done():
	case <-r.x.ctx.Done():
		r.Cancel()
		if r.Err() != nil {
			return context.Cause(r.x.ctx)
		}
	case <-ctx.Done():
		r.Cancel()
		if err := r.Err(); errors.Is(err, context.Canceled) {
			return ctx.Err()
		}
	}
	return r.Err()
}

// Spent counts n units of a call whose cost was known only afterwards. It never waits: later calls
// do. The level goes down to ten bursts below zero.
func (x *Limiter) Spent(n uint64) {
	amount, ok := amountOf(n)
	if !ok {
		amount = protocol.MaxLimitBurstSize
	}
	x.l.attempt(0)
	x.l.attempted.Add(amount)
	if x.l.spend(now(), amount) {
		x.l.allowed.Add(amount)
	} else { // it has no lease at present, or none because the resource is served remotely
		x.l.mu.Lock()
		defer x.l.mu.Unlock()
		x.l.oweSpent(amount)
		x.l.wake(x.p)
	}
	signal(x.p.poke)
}

// RetryAfter is after how long n units can be admitted, as far as is known: what the header
// Retry-After is for. It is at least a millisecond, and a second if nothing is known.
func (x *Limiter) RetryAfter(n uint64) time.Duration {
	amount, ok := amountOf(n)
	at := now()
	b := x.l.bucket.Load()
	if !ok || at >= b.until.Load() {
		return time.Second
	}
	ns, ok := b.delay(at, amount)
	if !ok || ns > math.MaxInt64/2 {
		return time.Second
	}
	return max(time.Duration(ns), time.Millisecond)
}
