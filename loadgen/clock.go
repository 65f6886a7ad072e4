// What time is it, and how does a pacer sleep precisely?

package loadgen

import "time"

// clock is what the loops read: nanoseconds since some moment, going on while the machine does.
type clock interface {
	now() int64
	// sleepUntil returns at t or soon after. It may return earlier when t is far ahead, so that who
	// sleeps can see that it shall stop.
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
