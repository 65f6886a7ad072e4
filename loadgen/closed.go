// How fast do callers go that wait for each answer?

package loadgen

import (
	"context"
	"time"
)

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
