// Package boottime is the clock by which both sides compute the ends of leases.
//
// The clock is CLOCK_BOOTTIME, which goes on while the machine is suspended. Go reads it by a
// system call of 0.25 us; Now takes 0.05 us. The kernel makes it from the monotonic clock, which
// the runtime reads without a system call, and the time that the machine was suspended. Now asks
// for the latter when it is older than 1 ms of running time, or when the time of day has moved
// against the monotonic clock by more than 50 us: at the end of a suspension the kernel adds its
// length to both clocks at once.
//
// So a reading is never ahead of the system's clock, and never goes back. It is behind by less than
// 0.1 ms. It can be wrong by more only if the machine sleeps and somebody sets the time of day back
// by just as long, both within one millisecond of running time, and then for the rest of that
// millisecond. The time of day decides nothing else: a step of it has the system asked once more.
//
// The package stands below protocol because shard and client both may import it.
package boottime

import (
	"sync/atomic"
	"time"
)

// Now is a monotonic time since an arbitrary start, above zero. On Linux it goes on while the
// machine is suspended, as CLOCK_BOOTTIME does; elsewhere it is the runtime's clock.
func Now() time.Duration {
	t := time.Now()
	mono := t.Sub(processStart)
	if t == t.Round(0) || mono <= 0 {
		// Without a reading of the runtime's clock: in a bubble of testing/synctest, whose clock is
		// the only one there, or in a year that has none.
		if bubble := time.Duration(t.UnixNano()); bubble > 0 && bubble < maxBubble {
			return bubble
		}
		return system()
	}
	return boot.at(mono, time.Duration(t.UnixNano())-mono, askSystem)
}

// Suspended is for how long the machine was suspended, as far as the last reading shows it. It counts
// from an arbitrary start, and reads no clock.
func Suspended() time.Duration { return time.Duration(boot.suspended.Load()) }

// maxBubble ends the search for the clock of a bubble of testing/synctest, after 1970. Such a clock
// begins with the year 2000.
const maxBubble = 40 * 365 * 24 * time.Hour

var (
	processStart = time.Now().Add(-1)
	boot         clock
)

func askSystem() (boot, mono time.Duration) {
	boot = system()
	return boot, time.Since(processStart)
}

// withoutSystem is the clock of a system that has no other. In a bubble it is the bubble's.
func withoutSystem() time.Duration {
	if now := time.Since(processStart); now > 0 {
		return now
	}
	return time.Since(time.Unix(0, 0))
}

// clock is the boot-time clock without a system call for most readings. It differs from the
// runtime's clock by how long the machine was suspended, and by nothing else. So it is enough to
// find out when that has changed.
type clock struct {
	suspended atomic.Int64          // ns, or up to maxMove less, never more: no reading is ahead of the system's
	last      atomic.Pointer[check] // of suspended; stored after it
}

// check records when the system was last asked.
type check struct {
	mono  time.Duration
	apart time.Duration // how far the time of day was ahead of mono
}

// The system is asked if as much as maxAge has passed since it was last asked. It is asked before
// that if the time of day, which goes on in a suspended machine, has moved against the runtime's
// clock. The time of day decides nothing else. So a reading is wrong if, within one maxAge, the
// machine sleeps and the time of day is set back by just as much, and it is wrong for one maxAge at
// most.
const (
	maxAge  = time.Millisecond
	maxMove = 50 * time.Microsecond // both are read one after the other, so they seem to move
)

// at is the time when the runtime's clock shows mono. ask reads the boot-time clock, and the
// runtime's after it.
func (c *clock) at(mono, apart time.Duration, ask func() (boot, mono time.Duration)) time.Duration {
	if l := c.last.Load(); l == nil || mono-l.mono >= maxAge || (apart-l.apart).Abs() > maxMove {
		boot, after := ask()
		for was := c.suspended.Load(); int64(boot-after) > was; was = c.suspended.Load() {
			if c.suspended.CompareAndSwap(was, int64(boot-after)) {
				break
			}
		}
		if after-mono <= maxMove { // else this goroutine was held up in between, and the known time may be too little
			c.last.Store(&check{mono, apart})
		}
		return max(boot, mono+time.Duration(c.suspended.Load()))
	}
	return mono + time.Duration(c.suspended.Load())
}
