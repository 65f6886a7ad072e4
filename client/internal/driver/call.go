package driver

import (
	"context"
	"sync"

	"github.com/signalbox-dev/signalbox/client/core"
	"github.com/signalbox-dev/signalbox/protocol"
)

// waiter wakes a caller.
type waiter chan struct{}

func newWaiter() waiter { return make(waiter, 1) }

// Done implements core.Waiter.
func (w waiter) Done() { w <- struct{}{} }

// wait waits for a request, and gives it up when ctx ends.
func (d *Driver) wait(ctx context.Context, r *core.Request, w waiter) error {
	if over := ctx.Done(); over == nil {
		<-w
	} else {
		select {
		case <-w:
		case <-over:
			now := d.lock()
			d.engine.GiveUp(now, r, context.Cause(ctx))
			d.unlock(now)
			<-w
		}
	}
	return r.Err
}

// AcquireOptions are those of an acquire.
type AcquireOptions struct {
	Count     uint64
	Timeout   uint64 // ms, or protocol.Forever
	Data      []byte
	Ephemeral bool
	Turn      core.Turn
}

type acquireCall struct {
	core.Acquire
	waiter waiter
}

var acquires = sync.Pool{New: func() any { return &acquireCall{waiter: newWaiter()} }}

// Acquire acquires a semaphore.
func (d *Driver) Acquire(ctx context.Context, s *core.Session, name string, o AcquireOptions) (*core.Lease, error) {
	a := acquires.Get().(*acquireCall)
	l := new(core.Lease)
	a.Waiter, a.Lease, a.Turn = a.waiter, l, o.Turn
	a.Msg = protocol.Acquire{
		Name: append(a.Msg.Name[:0], name...), Count: o.Count, Timeout: o.Timeout, Data: o.Data, Ephemeral: o.Ephemeral,
	}
	now := d.lock()
	d.engine.Acquire(now, s, name, &a.Acquire)
	d.unlock(now)
	err := d.wait(ctx, &a.Request, a.waiter)
	a.Lease, a.Msg.Data = nil, nil
	acquires.Put(a)
	if err != nil {
		return nil, err
	}
	return l, nil
}

type releaseCall struct {
	core.Release
	waiter waiter
}

var releases = sync.Pool{New: func() any { return &releaseCall{waiter: newWaiter()} }}

// Release gives a lease back. When ctx ends first, the release goes on in the background.
func (d *Driver) Release(ctx context.Context, l *core.Lease) error {
	r := releases.Get().(*releaseCall)
	r.Waiter = r.waiter
	now := d.lock()
	d.engine.Release(now, l, &r.Release)
	d.unlock(now)
	err := d.wait(ctx, &r.Request, r.waiter)
	if !r.InBackground {
		releases.Put(r)
	}
	return err
}

// Change changes the count of a lease, if it is above 0, and its data, if that is not nil.
func (d *Driver) Change(ctx context.Context, l *core.Lease, count uint64, data []byte) error {
	w := newWaiter()
	x := &core.Change{Request: core.Request{Waiter: w}, Count: count, Data: data, SetData: data != nil}
	now := d.lock()
	d.engine.Change(now, l, x)
	d.unlock(now)
	return d.wait(ctx, &x.Request, w)
}

// CloseSession ends a session. It waits for the server's answer, until ctx ends, or until the
// session's deadline.
func (d *Driver) CloseSession(ctx context.Context, s *core.Session) error {
	w := newWaiter()
	x := &core.Close{Request: core.Request{Waiter: w}}
	now := d.lock()
	d.engine.CloseSession(now, s, core.ErrSessionClosed, x)
	d.unlock(now)
	return d.wait(ctx, &x.Request, w)
}

// Held reports whether what a session holds may be relied on now. It reads the clocks.
func (d *Driver) Held(s *core.Session) bool {
	now := d.lock()
	d.engine.Clocks(now, wall())
	held := d.engine.Held(now, s)
	d.unlock(now)
	return held
}
