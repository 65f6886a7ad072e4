// How long does a caller wait at a fixed rate?

package loadgen

import (
	"context"
	"math"
)

// pace gives out the moments at which operations are to begin, at a fixed rate, whatever becomes of
// them. When all callers are busy it falls behind and then gives out the moments that have passed,
// unchanged, so that the wait is part of the measurement.
func (l *loop) pace(ctx context.Context, tickets chan<- int64) {
	defer close(tickets)
	begin := l.begin
	step := 1e9 / l.rate
	total := l.budget
	if l.span.until > 0 {
		n := uint64(math.Ceil(float64(l.span.until-begin) / step)) // those that begin before the end
		if total == 0 || n < total {
			total = n
		}
	}
	now := l.clock.now()
	for i := uint64(0); i < total; i++ {
		t := begin + int64(float64(i)*step)
		if t > now {
			if now = l.clock.now(); t > now {
				for ; t > now && !l.stop.Load(); now = l.clock.now() {
					l.clock.sleepUntil(t)
				}
				if t <= now {
					l.timerDelay.add(now - t)
				}
			}
		}
		// The goroutine that takes a moment counts it, also after the end; when both cases are
		// ready, either may be chosen.
		given := i
		select {
		case tickets <- t:
			given++
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			if context.Cause(ctx) == errUnanswered {
				l.unstarted = total - given
			}
			return
		}
	}
}

// runOpen is one caller of an open loop: it takes whatever is to begin next.
func (l *loop) runOpen(ctx context.Context, c Caller, r *Recorder, tickets <-chan int64) {
	for intended := range tickets {
		if ctx.Err() != nil {
			if context.Cause(ctx) == errUnanswered {
				r.Fail(l.clock.now(), "not started")
			}
			continue
		}
		begun := l.clock.now()
		err := c.Do(ctx, r)
		end := l.clock.now()
		l.end(ctx, r, intended, end, err)
		if err == nil && end >= l.span.from.Load() {
			r.late.add(end - begun)
		}
	}
}
