package client

import (
	"sync/atomic"
	"time"
)

// clock is the time leases are judged by.
type clock interface {
	// now is a monotonic time since an arbitrary start, above zero. It goes on while the machine
	// sleeps where the system can tell.
	now() time.Duration
	// fast is now without a system call, where that can be had: the runtime's clock, and how far
	// now was ahead of it when last asked. So it is behind now by the time that the machine slept
	// since then. A caller that decides by it asked now a moment ago, or has had an answer, for
	// which the reader asks.
	fast() time.Duration
	// wall is the time of day: a jump of it forward against now is a hint that the machine slept in
	// a way now cannot see. It is used for nothing else.
	wall() time.Time
}

type systemClock struct{}

func (systemClock) now() time.Duration {
	began := monotonic()
	now := bootTime()
	if monotonic()-began < time.Millisecond || ahead.Load() == 0 {
		ahead.Store(int64(now - began)) // else this goroutine was held up in between
	}
	return now
}

func (systemClock) fast() time.Duration { return monotonic() + time.Duration(ahead.Load()) }

func (systemClock) wall() time.Time { return time.Now() }

var (
	processStart = time.Now()
	ahead        atomic.Int64 // how far the boot-time clock is ahead of monotonic
)

// monotonic is the runtime's clock. It may stand still while the machine is suspended.
func monotonic() time.Duration { return time.Since(processStart) + 1 }
