// How do closed loops run, when does a load end, and what counts as an error?

package loadgen

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// errUnanswered is the cause that ends operations which outlast the load's patience.
var errUnanswered = errors.New("no answer within the patience after the load's end")

// loop drives callers until the span ends, budget operations are done, or its context ends.
type loop struct {
	clock   clock
	span    *span
	callers []Caller
	recs    []*Recorder // one for each caller
	budget  uint64      // operations, 0: no end by number
	rate    float64     // of an open loop, 0: closed
	// when the first operation of an open loop is to begin; how many follow is not for the scheduler
	// to say
	begin    int64
	patience time.Duration
	code     func(error) string

	stop       atomic.Bool
	unstarted  uint64    // operations of an open loop that nobody was free for in time
	timerDelay histogram // how late the open loop's own timer was
}

// run returns when every caller has ended. Operations under way at the end of the span have the
// patience to end, then they are cancelled.
func (l *loop) run(ctx context.Context) {
	ops, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(ops, func() { l.stop.Store(true) })()
	if l.span.until > 0 {
		t := time.AfterFunc(time.Duration(l.span.until-l.clock.now())+l.patience, func() { cancel(errUnanswered) })
		defer t.Stop()
	}
	if len(l.callers) == 0 {
		for now := l.clock.now(); now < l.span.until && ops.Err() == nil; now = l.clock.now() {
			l.clock.sleepUntil(l.span.until)
		}
		return
	}
	var wg sync.WaitGroup
	// Each caller has a context of its own, as callers have in a program: a thousand that wait on
	// one would queue up on its channel.
	begin := func(run func(ctx context.Context)) {
		wg.Go(func() {
			own, cancel := context.WithCancel(ops)
			defer cancel()
			run(own)
		})
	}
	if l.rate > 0 {
		tickets := make(chan int64, len(l.callers))
		for i, c := range l.callers {
			begin(func(ctx context.Context) { l.runOpen(ctx, c, l.recs[i], tickets) })
		}
		l.pace(ops, tickets)
	} else {
		n := uint64(len(l.callers))
		for i, c := range l.callers {
			share := uint64(0)
			if l.budget > 0 {
				if share = l.budget / n; uint64(i) < l.budget%n {
					share++
				}
				if share == 0 {
					continue
				}
			}
			begin(func(ctx context.Context) { l.runClosed(ctx, c, l.recs[i], share) })
		}
	}
	wg.Wait()
}

func (l *loop) end(ctx context.Context, r *Recorder, start, end int64, err error) {
	switch {
	case err == nil:
		r.ended(start, end)
	case ctx.Err() == nil:
		r.Fail(end, l.code(err))
	case errors.Is(context.Cause(ctx), errUnanswered):
		r.Fail(end, "unanswered")
	default: // the load was interrupted, which is no error
	}
}

func (l *loop) done() (n uint64) {
	for _, r := range l.recs {
		n += r.done.Load()
	}
	return n
}

// runClosed is one caller of a closed loop: its next operation begins when the last one has ended.
func (l *loop) runClosed(ctx context.Context, c Caller, r *Recorder, budget uint64) {
	start := l.clock.now()
	for n := uint64(0); budget == 0 || n < budget; n++ {
		if l.stop.Load() || (l.span.until > 0 && start >= l.span.until) {
			return
		}
		err := c.Do(ctx, r)
		end := l.clock.now()
		l.end(ctx, r, start, end, err)
		if start = end; err != nil { // one look at the clock ends an operation and begins the next
			l.pauseAfterError(ctx)
			start = l.clock.now()
		}
	}
}

// pauseAfterError keeps a caller whose operations fail at once from turning into a busy loop.
func (l *loop) pauseAfterError(ctx context.Context) {
	t := time.NewTimer(time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// clock is the clock of the loops: nanoseconds since some moment, also while the machine sleeps.
type clock interface {
	now() int64
	// sleepUntil returns at t or soon after. It may return earlier when t is far ahead, so that the
	// caller can see that it shall stop.
	sleepUntil(t int64)
}

// maxSleep is the longest sleep in one piece.
const maxSleep = int64(50 * time.Millisecond)

type wallClock struct{ base time.Time }

func (c wallClock) now() int64 { return int64(time.Since(c.base)) }

// sleepUntil leaves the last stretch to the kernel: the runtime's timers may be a millisecond late
// when nothing else runs, which would be measured.
func (c wallClock) sleepUntil(t int64) {
	d := t - c.now()
	if d > maxSleep {
		d = maxSleep
		t = c.now() + d
	}
	const fine = int64(2 * time.Millisecond)
	if d > fine {
		time.Sleep(time.Duration(d - fine))
		d = t - c.now()
	}
	if d > 0 {
		sleepFine(d)
	}
}
