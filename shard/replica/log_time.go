package replica

import (
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/shard/leader"
)

// logClock is the stamp of batches: a log time from which the proposer extrapolates with the
// host's clock.
type logClock struct {
	clock Clock

	mu      sync.Mutex
	term    uint64 // of the leadership
	at      uint64 // ms, host's clock
	logTime uint64 // at that time
	runs    bool
}

// start begins with the log time that a new leadership has found.
func (c *logClock) start(term, now, logTime uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.term, c.at, c.logTime, c.runs = term, now, logTime, true
}

// publish is called after each run of the leader's goroutine.
func (c *logClock) publish(term, now, logTime uint64, runs bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.term != term {
		return // a newer leadership has begun in the log
	}
	c.at, c.logTime, c.runs = now, logTime, runs
}

// stamp is the log time of a batch proposed now. It advances with the clock between two runs of the
// leader's goroutine, by at most leader.MaxExtrapolation: if that goroutine is late, the process
// was paused, and the leader decides what counts.
//
// It reads the clock itself: a deadline that begins with a command must not begin before the leader
// heard the client, so the stamp is never older than a command of its batch.
func (c *logClock) stamp() uint64 {
	logTime, _ := c.read()
	return logTime
}

// read returns the stamp, and whether it advances.
func (c *logClock) read() (logTime uint64, runs bool) {
	now := millis(c.clock)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.runs || now < c.at {
		return c.logTime, c.runs
	}
	return c.logTime + min(now-c.at, leader.MaxExtrapolation), true
}

// millis is a clock's time in ms.
func millis(c Clock) uint64 { return uint64(c.Now() / time.Millisecond) }

// withoutSkips converts a time of the host's clock, in ms, to the leader's: without the skips of a
// [ManualClock].
func withoutSkips(c Clock, ms uint64) uint64 {
	if m, ok := c.(*ManualClock); ok {
		return uint64(m.withoutSkips(time.Duration(ms)*time.Millisecond) / time.Millisecond)
	}
	return ms
}
