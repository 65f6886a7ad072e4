package client

import (
	"context"
	"time"
)

// bothContexts is a context that ends with held, at once, and with ctx, and has the cause of the one
// that ended first. It has the values of both, and the earlier deadline. end must be called.
func bothContexts(held, ctx context.Context) (both context.Context, end func()) {
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

// sleep waits; false: ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
