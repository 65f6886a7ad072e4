package failuredetector

import (
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// backoff doubles with each rejection of the same kind.
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

// logBarrier delays the next request until the log has advanced here: an accepted request is in the
// log, and until then the view of the own target is old. An instance that can send but not receive
// would otherwise raise its target without end.
type logBarrier struct {
	active  bool
	applied uint64
	since   time.Duration
}

// until returns when the next request may be sent.
func (b *logBarrier) until(applied uint64, now time.Duration) time.Duration {
	if !b.active || applied > b.applied {
		return now
	}
	return b.since + LogBarrierTimeout
}

// flapBackoff counts how often in a row this instance came online and was soon marked offline
// again: some route is broken that its request does not need. Each time it waits longer.
type flapBackoff struct {
	wentOnline bool // accepted, and not seen Offline after it was seen Online
	seenOnline bool // since wentOnline
	since      time.Duration
	flaps      int
	until      time.Duration
}

func (f *flapBackoff) onlineAccepted(now time.Duration) {
	f.wentOnline, f.seenOnline, f.since = true, false, now
}

func (f *flapBackoff) observe(t Target, limit, now time.Duration) {
	switch {
	case t == Online:
		f.seenOnline = true
	case t == Offline && f.wentOnline && f.seenOnline:
		if now-f.since < FlapWindow {
			f.until = now + doubled(limit, f.flaps)
			f.flaps++
		} else {
			f.flaps, f.until = 0, now
		}
		f.wentOnline, f.seenOnline = false, false
	}
}
