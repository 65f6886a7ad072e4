// Package contexts joins the context of a caller with that of what it holds, for package client and
// the packages below it.
package contexts

import (
	"context"
	"time"
)

// Checked is a context of a lease or a session. Err is right however late the timers of the process
// are: Check looks at the clock, and ends what is over, and the context with it. Done is closed at
// the next timer, or by such a look.
type Checked struct {
	context.Context
	Check func()
}

// Err implements context.Context.
func (c *Checked) Err() error {
	err := c.Context.Err()
	if err == nil {
		c.Check()
		err = c.Context.Err()
	}
	return err
}

// Both is a context that ends with held, at once, and with ctx, and has the cause of the one that
// ended first. Its Err asks held's. It has the values of both, and the earlier deadline. end must be
// called.
func Both(held, ctx context.Context) (both context.Context, end func()) {
	inner, cancel := context.WithCancelCause(valued{held, ctx})
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	check := func() {
		if held.Err() != nil {
			cancel(context.Cause(held))
		}
	}
	return &Checked{inner, check}, func() {
		stop()
		cancel(nil)
	}
}

// valued is a context with the values of another one beside its own, and the earlier deadline.
type valued struct {
	context.Context
	values context.Context
}

// Value implements context.Context.
func (v valued) Value(key any) any {
	if x := v.Context.Value(key); x != nil {
		return x
	}
	return v.values.Value(key)
}

// Deadline implements context.Context.
func (v valued) Deadline() (at time.Time, ok bool) {
	at, ok = v.Context.Deadline()
	if other, has := v.values.Deadline(); has && (!ok || other.Before(at)) {
		return other, true
	}
	return at, ok
}

// releaseTimeout bounds how long the end of a call waits until what it held is given back.
const releaseTimeout = 2 * time.Second

// ForRelease is a context for giving back what a call held, also if ctx has ended. It has the values
// of ctx, and ends after 2 s.
func ForRelease(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
}

// Held is a lease or a session.
type Held interface {
	Context() context.Context
	Held() bool
}

// Call calls work with the context of Both. If what is held is over, by the clock, it does not call
// work: called is false, and err is the cause.
func Call(ctx context.Context, h Held, work func(context.Context) error) (called bool, err error) {
	both, end := Both(h.Context(), ctx)
	defer end()
	for !h.Held() { // it is over, or in doubt since the clock jumped: that is soon decided
		if both.Err() != nil || !Sleep(both, doubtPeriod) {
			return false, context.Cause(both)
		}
	}
	return true, work(both)
}

// doubtPeriod is how often Call asks while it is in doubt whether something is held.
const doubtPeriod = 10 * time.Millisecond

// Lease is the part of a lease that During needs.
type Lease interface {
	Held
	Release(context.Context) error
}

// During is Call, and releases the lease afterwards, with the context of ForRelease.
func During(ctx context.Context, l Lease, work func(context.Context) error) (called bool, err error) {
	defer func() {
		ctx, done := ForRelease(ctx)
		defer done()
		_ = l.Release(ctx)
	}()
	return Call(ctx, l, work)
}

// Sleep waits; false: ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
