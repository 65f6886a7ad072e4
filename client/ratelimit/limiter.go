package ratelimit

import (
	"context"
	"errors"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/internal/access"
	"github.com/signalbox-dev/signalbox/protocol"
)

// ErrClosed is returned by calls on a limiter that was closed.
var ErrClosed = errors.New("the limiter is closed; join again")

// Limiter admits calls within the rate of a resource that a fleet shares. Its methods may be called
// by many goroutines.
type Limiter struct {
	e    *engine
	part *homePart
	l    *leaf
	ctx  context.Context
	done context.CancelCauseFunc
}

// Join takes part in the rate limit of a resource of a node, such as api/tenant-a, which must exist
// and have no children. It returns when the server has answered. A limiter without calls costs the
// others nothing, and its first call is admitted at once if there are units.
//
// While the cluster is away, Join returns after two seconds, and the client's log says so. The
// limiter then denies, and joins by itself; what the server refuses is the error of its calls.
//
// The client has a session of its own for all limiters of a node. When that ends, as it does when
// the server was away for longer than its timeout, another one takes its place: the limiter lasts
// until Close, or until the client is closed. Limiters of one resource share one lease.
//
// Errors: ErrNotFound, ErrForbidden, ErrPreconditionFailed for a resource with children, ctx's,
// ErrUnauthenticated and ErrHandshake.
func Join(ctx context.Context, c *client.Client, node, path string) (*Limiter, error) {
	return join(ctx, c, homeKey{node: node}, path)
}

// JoinSession is Join for a session of the program's: the limiter ends with it.
func JoinSession(ctx context.Context, s *client.Session, path string) (*Limiter, error) {
	if err := s.Err(); err != nil {
		return nil, err
	}
	return join(ctx, s.Client(), homeKey{session: s}, path)
}

// awayAfter is how long Join waits for a cluster that does not answer.
const awayAfter = 2 * time.Second

func join(ctx context.Context, c *client.Client, key homeKey, path string) (*Limiter, error) {
	if err := protocol.ValidateLimitPath([]byte(path)); err != nil {
		return nil, err
	}
	e := engineOf(c)
	x := &Limiter{e: e}
	x.part, x.l = e.join(c, key, path)
	x.ctx, x.done = context.WithCancelCause(x.part.ctx)
	away := time.NewTimer(awayAfter)
	defer away.Stop()
	for {
		e.beginStep()
		opened, err, ready, noSession := x.part.opened, x.l.err, !x.l.stale, x.part.home.err
		if err == nil {
			err = x.part.err
		}
		if err == nil && (errors.Is(noSession, client.ErrUnauthenticated) || errors.Is(noSession, client.ErrHandshake)) {
			err = noSession
		}
		e.endStep()
		if err == nil && ready {
			return x, nil
		}
		if err == nil {
			select {
			case <-opened:
				continue
			case <-away.C:
				if key.session == nil {
					access.Client(c).Logger.Warn("rate limit is not joined yet, the limiter denies until it is", "node", key.node,
						"resource", path, "error", noSession)
					return x, nil
				}
				continue
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		x.end(err)
		return nil, err
	}
}

// end gives the leaf up. left is closed when the server knows; nil: there is nothing to wait for.
func (x *Limiter) end(err error) (left <-chan struct{}) {
	at := x.e.beginStep()
	defer x.e.endStep()
	if x.ctx.Err() != nil {
		return nil
	}
	x.done(err)
	left = x.e.m.release(at, x.l, err)
	x.e.forget()
	return left
}

// Close gives the lease back, so that others can have its rate at once. Waiting calls return
// ErrClosed.
func (x *Limiter) Close(ctx context.Context) error {
	left := x.end(ErrClosed)
	if left == nil {
		return nil
	}
	select {
	case <-left:
	case <-ctx.Done():
		at := x.e.beginStep()
		if len(x.part.leaves) == 0 {
			x.e.m.lost(at, x.part.part, nil) // what is leased ends by itself
		}
		x.e.forget()
		x.e.endStep()
		return ctx.Err()
	}
	x.e.beginStep()
	x.e.forget()
	home, last := x.part.home, len(x.part.home.parts) == 0
	x.e.endStep()
	if last && home.key.session == nil {
		select {
		case <-home.ended: // with its session
		case <-ctx.Done():
		}
	}
	return nil
}

// Path is the resource's.
func (x *Limiter) Path() string { return x.l.path }

// Context ends with the limiter, or with the session or the client that it is of; its cause says
// why.
func (x *Limiter) Context() context.Context { return x.ctx }

// amountOf is units in thousandths; false if there are too many.
func amountOf(units uint64) (amount uint64, ok bool) {
	if units > protocol.MaxLimitBurstSize/1000 {
		return protocol.MaxLimitBurstSize, false
	}
	return units * 1000, true
}

// Allow takes n units now, or none: it reports whether it did. It never blocks: the decision is
// local, without a packet. Without a lease it asks for one, or for the units, in the background,
// and refuses meanwhile. 0 units are free. More units than can ever be admitted are refused, and
// counted as impossible.
func (x *Limiter) Allow(n uint64) bool {
	amount, ok := amountOf(n)
	if x.ctx.Err() != nil {
		return false
	}
	l := x.l
	if amount > 1000 {
		l.attempt(amount)
	}
	if amount == 0 || ok && l.queued.Load() == 0 && l.decide(now(), amount) {
		l.allowed.Add(amount)
		if amount > 0 && l.bucket.Load().rate == 0 {
			x.poke() // the units for the next call are asked for
		}
		return true
	}
	return x.denied(amount, ok)
}

// denied counts a call of Allow that there are no units for. In shadow mode it is admitted.
func (x *Limiter) denied(amount uint64, ok bool) bool {
	l := x.l
	if most := l.most.Load(); !ok || amount > most {
		l.impossible.Add(amount)
	} else {
		l.refuse(amount)
	}
	x.poke()
	if l.shadow.Load() {
		l.allowed.Add(amount)
		return true
	}
	return false
}

// poke has the machine know that calls were refused, unless it does.
func (x *Limiter) poke() {
	if x.l.poked.Swap(true) {
		return
	}
	at := x.e.beginStep()
	x.e.m.poke(at, x.l)
	x.e.endStep()
}

// Wait takes n units, and waits for them if it has to. Calls are admitted in the order in which
// they came. Errors: ctx's; ErrBadRequest at once for more units than can ever be admitted
// together; ErrNotFound for a resource that was deleted; ErrClosed; the session's, or the client's.
func (x *Limiter) Wait(ctx context.Context, n uint64) error {
	r, err := x.Reserve(n)
	if err != nil {
		return err
	}
	return r.Wait(ctx)
}

// Reserve takes a place in the queue for n units, without waiting for them. Errors: those of Wait
// that come at once.
func (x *Limiter) Reserve(n uint64) (*Reservation, error) { return x.reserve(n, false) }

func (x *Limiter) reserve(n uint64, try bool) (*Reservation, error) {
	amount, ok := amountOf(n)
	if err := context.Cause(x.ctx); err != nil {
		return nil, err
	}
	l := x.l
	switch {
	case amount == 0:
		return &Reservation{}, nil
	case l.shadow.Load():
		if !ok || l.queued.Load() > 0 || !l.decide(now(), amount) {
			l.waited.Add(amount) // it would have
			x.poke()
		}
		l.allowed.Add(amount)
		return &Reservation{}, nil
	case !ok || amount > l.most.Load():
		l.impossible.Add(amount)
		return nil, impossible(l, amount)
	}
	l.attempt(amount)
	if l.queued.Load() == 0 && l.decide(now(), amount) {
		l.allowed.Add(amount)
		return &Reservation{}, nil
	}
	return enqueue(x.e, &call{leaves: []*leaf{l}, amount: amount, try: try}, x.ctx)
}

// enqueue has a call wait. ctx is the limiter's.
func enqueue(e *engine, c *call, ctx context.Context) (*Reservation, error) {
	at := e.beginStep()
	defer e.endStep()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	for _, l := range c.leaves {
		if l.err != nil {
			return nil, l.err
		}
	}
	e.m.enqueue(at, c)
	return &Reservation{e: e, c: c}, nil
}

// Reservation is a place in the queue of a limiter.
type Reservation struct {
	e *engine
	c *call // nil: it was admitted at once
}

// admittedAtOnce is closed.
var admittedAtOnce = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// Done is closed when the units were taken, or will never be: see Err.
func (r *Reservation) Done() <-chan struct{} {
	if r.c == nil {
		return admittedAtOnce
	}
	return r.c.done
}

// Err is why the units were not taken. It is nil until Done is closed, and if they were.
func (r *Reservation) Err() error {
	select {
	case <-r.Done():
	default:
		return nil
	}
	if r.c == nil {
		return nil
	}
	return r.c.err
}

// Cancel leaves the queue. Units that were taken stay taken.
func (r *Reservation) Cancel() { r.cancel(context.Canceled) }

func (r *Reservation) cancel(err error) {
	if r.c == nil {
		return
	}
	at := r.e.beginStep()
	r.e.m.cancel(at, r.c, err)
	r.e.endStep()
	<-r.c.done
}

// Wait waits until the units are taken. It leaves the queue when ctx ends.
func (r *Reservation) Wait(ctx context.Context) error {
	select {
	case <-r.Done():
	default:
		select {
		case <-r.Done():
		case <-ctx.Done():
			r.cancel(ctx.Err())
		}
	}
	return r.Err()
}

// WaitAtMost takes n units if they are there, or will be within a time. With 0 it asks the server,
// if it has to, and waits for its answer. It reports whether it took them. Errors: those of Wait.
func (x *Limiter) WaitAtMost(ctx context.Context, n uint64, most time.Duration) (ok bool, err error) {
	r, err := x.reserve(n, most <= 0)
	if err != nil {
		return false, err
	}
	return r.waitAtMost(ctx, most)
}

func (r *Reservation) waitAtMost(ctx context.Context, most time.Duration) (ok bool, err error) {
	if r.c == nil {
		return true, nil
	}
	if answered := r.e.answered(r.c); most <= 0 {
		select {
		case <-r.Done():
			return r.Err() == nil, r.Err()
		case <-ctx.Done():
		case <-answered:
		}
	} else {
		timer := time.NewTimer(most)
		defer timer.Stop()
		select {
		case <-r.Done():
			return r.Err() == nil, r.Err()
		case <-ctx.Done():
		case <-timer.C:
		}
	}
	r.cancel(errNotInTime)
	switch err := r.Err(); {
	case errors.Is(err, errNotInTime):
		return false, ctx.Err()
	default:
		return err == nil, err
	}
}

var errNotInTime = errors.New("the units did not come in time")

// Spent counts n units of a call whose cost was known only afterwards. It never waits: later calls
// do. The level goes down to ten bursts below zero.
func (x *Limiter) Spent(n uint64) {
	amount, _ := amountOf(n)
	if amount == 0 || x.ctx.Err() != nil {
		return
	}
	if x.l.spend(now(), amount) {
		x.l.allowed.Add(amount)
		x.poke()
		return
	}
	at := x.e.beginStep() // it has no lease at present, or none because the server gives out the units
	x.e.m.oweSpent(at, x.l, amount)
	x.e.endStep()
}

// RetryAfter is after how long n units can be admitted, as far as is known: what the header
// Retry-After is for. It is at least a millisecond. A call that can never be admitted is an error.
func (x *Limiter) RetryAfter(n uint64) (time.Duration, error) {
	amount, ok := amountOf(n)
	if most := x.l.most.Load(); !ok || amount > most && most != unknown {
		return 0, impossible(x.l, amount)
	}
	at := x.e.beginStep()
	defer x.e.endStep()
	l := x.l
	wait := int64(0)
	if b := l.deciding(at); b != nil && b.rate > 0 {
		if ns, ok := b.delay(at, amount); ok {
			wait = ns + span(l.waiting, b.rate, true)/ticks // those that wait come before
		}
	} else {
		wait = l.unitsAt - at
		if l.limit > 0 && wait <= 0 {
			wait = span(amount, l.limit, true) / ticks
		}
		if open := l.open(); l.waiting > open { // the server knows of some, and the rest comes as fast
			wait = int64(min(float64(wait)*float64(l.waiting+amount)/float64(open+amount), maxSpan))
		}
	}
	return max(time.Duration(wait), time.Millisecond), nil
}
