// Package contexts joins the context of a caller with that of what it holds, for package client and
// the packages below it.
package contexts

import (
	"context"
	"time"
)

// Both is a context that ends with held, at once, and with ctx, and has the cause of the one that
// ended first. It has the values of both, and the earlier deadline. end must be called.
func Both(held, ctx context.Context) (both context.Context, end func()) {
	both, cancel := context.WithCancelCause(valued{held, ctx})
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	return both, func() {
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

// During calls work with a context that ends with held, at once, and with ctx. It calls release when
// work has returned, with the context of ForRelease.
func During(
	ctx, held context.Context, release func(context.Context) error, work func(context.Context) error,
) error {
	both, end := Both(held, ctx)
	defer func() {
		end()
		ctx, done := ForRelease(ctx)
		defer done()
		_ = release(ctx)
	}()
	return work(both)
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
