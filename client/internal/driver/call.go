package driver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/protocol"
)

// waiter wakes a caller.
type waiter chan struct{}

func newWaiter() waiter { return make(waiter, 1) }

// Done implements core.Waiter.
func (w waiter) Done() { w <- struct{}{} }

// send has the engine begin a request, unless the driver is closed, and waits for it.
func (d *Driver) send(ctx context.Context, r *core.Request, begin func(now time.Duration)) core.Result {
	w := newWaiter()
	r.Waiter = w
	now := d.beginStep()
	if d.closed {
		d.mu.Unlock()
		return core.Result{Err: core.ErrClosed}
	}
	begin(now)
	d.endStep(now)
	return d.wait(ctx, r, w)
}

// wait waits for a request, and gives it up when ctx ends.
func (d *Driver) wait(ctx context.Context, r *core.Request, w waiter) core.Result {
	over := ctx.Done()
	switch {
	case over == nil:
		<-w
	case ctx.Err() != nil:
		d.giveUp(ctx, r)
		<-w
	default:
		select {
		case <-w:
		case <-over:
			d.giveUp(ctx, r)
			<-w
		}
	}
	return r.Result
}

func (d *Driver) giveUp(ctx context.Context, r *core.Request) {
	err := Interrupted(ctx) // which may be a context of ours: it takes the mutex
	now := d.beginStep()
	d.engine.GiveUp(now, r, err)
	d.endStep(now)
}

// Interrupted is the error of what ended with a context: the context's, and its cause.
func Interrupted(ctx context.Context) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); !errors.Is(cause, err) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// AcquireOptions are those of an acquire.
type AcquireOptions struct {
	Count     uint64
	Timeout   uint64 // ms, or protocol.Forever
	Data      []byte
	Ephemeral bool
	Turn      core.Turn                // when the semaphore's name is wanted
	Options   *protocol.AcquireOptions // nil: a plain acquire

	IgnorePreemption bool               // see core.Acquire
	OnQueued         func(place uint64) // is called once the request is queued; nil: nobody is told
}

// AcquireInfo is how an acquire went.
type AcquireInfo struct {
	Queued   bool
	Attempts int
	Shard    uint64
}

type acquireCall struct {
	core.Acquire
	waiter waiter
}

var acquires = sync.Pool{New: func() any { return &acquireCall{waiter: newWaiter()} }}

// Acquire acquires a semaphore. l becomes the lease; nil: none is made. info, if not nil, gets how
// that went.
func (s *Session) Acquire(
	ctx context.Context, name string, o AcquireOptions, l *Lease, info *AcquireInfo,
) core.Result {
	d := s.d
	a := acquires.Get().(*acquireCall)
	a.Waiter, a.Lease, a.Turn = a.waiter, nil, o.Turn
	a.IgnorePreemption = o.IgnorePreemption
	if l != nil {
		l.Owner = l
		a.Lease = &l.Lease
	}
	a.Msg = protocol.Acquire{
		Name: append(a.Msg.Name[:0], name...), Count: o.Count, Timeout: o.Timeout, Data: o.Data, Ephemeral: o.Ephemeral,
		Options: o.Options,
	}
	now := d.beginStep()
	var queued bell
	if o.OnQueued != nil {
		queued = newBell()
		a.OnQueued = queued
	}
	d.engine.Acquire(now, &s.Session, name, &a.Acquire)
	d.endStep(now)
	r := a.wait(ctx, d, queued, o.OnQueued)
	if info != nil {
		*info = AcquireInfo{a.Queued(), a.Attempts(), a.Shard()}
	}
	a.Lease, a.OnQueued, a.Msg.Data, a.Msg.Options = nil, nil, nil, nil
	acquires.Put(a)
	return r
}

// wait waits for the outcome, and for the place in the queue before that.
func (a *acquireCall) wait(ctx context.Context, d *Driver, queued bell, onQueued func(uint64)) core.Result {
	if queued == nil {
		return d.wait(ctx, &a.Request, a.waiter)
	}
	select {
	case <-queued:
		onQueued(a.Token)
		return d.wait(ctx, &a.Request, a.waiter)
	case <-ctx.Done():
		d.giveUp(ctx, &a.Request)
		<-a.waiter
	case <-a.waiter:
	}
	select {
	case <-queued:
		onQueued(a.Token)
	default:
	}
	return a.Result
}

// Call sends a request until it is answered, or ctx ends. x is copied: its Result is not set, and a
// call that the caller made on its stack stays there.
func (d *Driver) Call(ctx context.Context, x *core.Call) core.Result {
	a := calls.Get().(*core.Call)
	*a = *x
	r := d.send(ctx, &a.Request, func(now time.Duration) { d.engine.Call(now, a) })
	*a = core.Call{}
	calls.Put(a) // the engine keeps no call in the background
	return r
}

var calls = sync.Pool{New: func() any { return new(core.Call) }}

// Disarm forgets a one-shot watch that nobody waits for any more.
func (d *Driver) Disarm(o *core.OneShot) {
	now := d.beginStep()
	d.engine.Disarm(now, o)
	d.endStep(now)
}

// AwaitMap waits for a map.
func (d *Driver) AwaitMap(ctx context.Context, x *core.MapWait) core.Result {
	return d.send(ctx, &x.Request, func(now time.Duration) { d.engine.AwaitMap(now, x) })
}

// Map is the map that requests are routed by, nil if there is none yet. It must not be changed.
func (d *Driver) Map() *protocol.MapReply {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.engine.Map()
}

// Tier is the shards of a tier, in order, and how many buckets they share.
func (d *Driver) Tier(id uint8) (shards []uint64, buckets uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.engine.Shards(id), d.engine.Buckets(id)
}
