package sentinel

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
		*b = backoff{until: now + Retry}
		return
	}
	if s != b.status {
		b.status, b.refused = s, 0
	}
	b.until = now + doubled(Retry, b.refused)
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

// barrier holds the next request back until the log has moved on here: a request that was accepted shows in the log, and until it does, what this instance
// believes of its own target is old. An instance that can send and not receive would otherwise raise its target without end.
type barrier struct {
	up      bool
	applied uint64
	since   time.Duration
}

// until is when the next request may go; in the past, or far ahead.
func (b *barrier) until(applied uint64, now time.Duration) time.Duration {
	if !b.up || applied > b.applied {
		return now
	}
	return b.since + BarrierTimeout
}

// stays counts how often in a row this instance said that it is alive and was soon taken for dead again: some way to or from it is broken that its request
// does not need. Each time it waits longer.
type stays struct {
	online bool // it said so, and has not been seen Offline since it was seen Online
	shown  bool // ... and was seen Online
	since  time.Duration
	short  int
	until  time.Duration
}

func (s *stays) said(now time.Duration) {
	s.online, s.shown, s.since = true, false, now
}

func (s *stays) observe(t Target, limit, now time.Duration) {
	switch {
	case t == Online:
		s.shown = true
	case t == Offline && s.online && s.shown:
		if now-s.since < ShortStay {
			s.until = now + doubled(limit, s.short)
			s.short++
		} else {
			s.short, s.until = 0, now
		}
		s.online, s.shown = false, false
	}
}
