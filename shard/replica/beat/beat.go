// Package beat makes the periodic work of a process begin at the same moments. Waking an idle
// process costs several switches between threads, however little it does then. So work that may
// begin at any moment of its period begins when the raft engine ticks.
//
//	for beat.Sleep(ctx, beat.Next(time.Second)) {
//		look()
//	}
//
// The engine ticks each round trip time, 100 ms by default, and its ticker cannot be replaced. All
// else that is periodic comes with it. A timer that may fire at any moment of its period is set
// with Next(period), again by its loop, and is no time.Ticker. A timer for a deadline is set to the
// deadline, and a loop that has work only after some event waits for the event.
//
// The runtime waits for timers in whole milliseconds, so the microseconds between the engine's
// first tick and Align do not matter. The origin of the beats is the only state, and a wrong one
// costs wake-ups.
package beat

import (
	"context"
	"sync/atomic"
	"time"
)

var (
	began  = time.Now()
	origin atomic.Int64 // of all beats, in ns since began; 0: there are none yet
)

// Align makes this moment a beat of every period. A host calls it when its engine begins to tick.
// If a process has several hosts, the last call counts.
func Align() { origin.Store(int64(time.Since(began))) }

// Next returns the time until the next beat of a period, at most one period. Beats are the
// multiples of the period since [Align]. Without a call of Align the result is the period.
func Next(period time.Duration) time.Duration {
	from := time.Duration(origin.Load())
	if from == 0 {
		return period
	}
	since := (time.Since(began) - from) % period
	if since < 0 { // in a test whose clock is behind that of the process
		since += period
	}
	return period - since
}

// Sleep waits. It returns false, at once, when ctx ends.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
