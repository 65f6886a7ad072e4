package failuredetector

import (
	"fmt"
	"time"
)

// memberRecord is the leader's record of one instance, since it leads and since the instance's last
// Online.
//
// Invariants: if heard, lastSuccess is set. If failing, a failure came after the last success, or
// there was no success and firstFailure is set.
type memberRecord struct {
	target      Target
	incarnation uint64

	heard        bool // there was a success
	lastSuccess  time.Duration
	failing      bool
	firstFailure time.Duration // since the last success

	applied        uint64 // index of the meta shard's log applied there, by the last heartbeat
	unchangedSince time.Duration
	behind         bool          // this instance has applied more
	behindSince    time.Duration // at the latest

	marked   bool // accepted, but not in the view yet
	markedAt time.Duration
}

func (m *memberRecord) heartbeatReceived(applied uint64, now time.Duration) {
	if !m.heard || applied != m.applied {
		m.unchangedSince = now
		m.behind = false // set again by the next step
	}
	m.heard, m.lastSuccess, m.failing = true, now, false
	m.applied = applied
}

func (m *memberRecord) heartbeatFailed(now time.Duration) {
	if !m.failing {
		m.failing, m.firstFailure = true, now
	}
}

// noteApplied notes since when this instance is ahead: an idle log must not count against others.
func (m *memberRecord) noteApplied(applied uint64, now time.Duration) {
	switch {
	case !m.heard || applied <= m.applied:
		m.behind = false
	case !m.behind:
		m.behind, m.behindSince = true, now
	}
}

// shift moves all times by a gap in which nothing could be received, but not past now.
func (m *memberRecord) shift(gap, now time.Duration) {
	for _, t := range []*time.Duration{&m.lastSuccess, &m.firstFailure, &m.unchangedSince, &m.behindSince, &m.markedAt} {
		*t = min(*t+gap, now)
	}
}

// unreachable returns why to mark the instance offline, or "". An instance that was never tried is
// undecided: it may be starting.
func (m *memberRecord) unreachable(limit, now time.Duration) string {
	if m.marked && now-m.markedAt <= limit {
		return ""
	}
	switch {
	case m.heard && m.failing && now-m.lastSuccess > limit:
		return fmt.Sprintf("no heartbeat for %v", round(now-m.lastSuccess))
	case !m.heard && m.failing && now-m.firstFailure > limit:
		return fmt.Sprintf("no heartbeat at all for %v", round(now-m.firstFailure))
	case m.heard && m.behind && now-m.unchangedSince > limit && now-m.behindSince > limit:
		return fmt.Sprintf("applied index %d has not changed for %v (expected within %v)",
			m.applied, round(now-m.unchangedSince), limit)
	}
	return ""
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }
