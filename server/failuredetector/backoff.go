package failuredetector

import (
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// backoff doubles with every refusal of the same kind.
type backoff struct {
	status  protocol.Status
	refused int
	until   time.Duration
}

func (b *backoff) outcome(s protocol.Status, now time.Duration) {
	if s == protocol.StatusOK {
		*b = backoff{until: now + RetryPause}
		return
	}
	if s != b.status {
		b.status, b.refused = s, 0
	}
	b.until = now + doubled(RetryPause, b.refused)
	b.refused++
}

func doubled(d time.Duration, times int) time.Duration {
	for range times {
		if d *= 2; d >= MaxBackoff {
			return MaxBackoff
		}
	}
	return d
}

// logBarrier holds the next request back until the log has moved on here: a request that was accepted shows in the log, and until it does, what this instance
// believes of its own target is old. An instance that can send and not receive would otherwise raise its target without end.
type logBarrier struct {
	active  bool
	applied uint64
	since   time.Duration
}

// until is when the next request may go; in the past, or far ahead.
func (b *logBarrier) until(applied uint64, now time.Duration) time.Duration {
	if !b.active || applied > b.applied {
		return now
	}
	return b.since + LogBarrierTimeout
}

// flapBackoff counts how often in a row this instance said that it is alive and was soon taken for dead again: some way to or from it is broken that its request
// does not need. Each time it waits longer.
type flapBackoff struct {
	wentOnline bool // it said so, and has not been seen Offline since it was seen Online
	seenOnline bool // ... and was seen Online
	since      time.Duration
	flaps      int
	until      time.Duration
}

func (s *flapBackoff) onlineAccepted(now time.Duration) {
	s.wentOnline, s.seenOnline, s.since = true, false, now
}

func (s *flapBackoff) observe(t Target, limit, now time.Duration) {
	switch {
	case t == Online:
		s.seenOnline = true
	case t == Offline && s.wentOnline && s.seenOnline:
		if now-s.since < FlapWindow {
			s.until = now + doubled(limit, s.flaps)
			s.flaps++
		} else {
			s.flaps, s.until = 0, now
		}
		s.wentOnline, s.seenOnline = false, false
	}
}
