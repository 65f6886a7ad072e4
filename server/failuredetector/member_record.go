package failuredetector

import (
	"fmt"
	"time"
)

// memberRecord is what the leader knows of one instance, since it leads and since the instance's
// last Online.
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

func (x *memberRecord) heartbeatReceived(applied uint64, now time.Duration) {
	if !x.heard || applied != x.applied {
		x.unchangedSince = now
		x.behind = false // set again by the next step
	}
	x.heard, x.lastSuccess, x.failing = true, now, false
	x.applied = applied
}

func (x *memberRecord) heartbeatFailed(now time.Duration) {
	if !x.failing {
		x.failing, x.firstFailure = true, now
	}
}

// noteApplied notes since when this instance is ahead: an idle log must not count against others.
func (x *memberRecord) noteApplied(applied uint64, now time.Duration) {
	switch {
	case !x.heard || applied <= x.applied:
		x.behind = false
	case !x.behind:
		x.behind, x.behindSince = true, now
	}
}

// shift moves all times by a gap in which nothing could be received, but not past now.
func (x *memberRecord) shift(gap, now time.Duration) {
	for _, t := range []*time.Duration{&x.lastSuccess, &x.firstFailure, &x.unchangedSince, &x.behindSince, &x.markedAt} {
		*t = min(*t+gap, now)
	}
}

// unreachable returns why the instance is to be marked offline, or "". An instance that was never
// tried is undecided: it may be starting.
func (x *memberRecord) unreachable(limit, now time.Duration) string {
	if x.marked && now-x.markedAt <= limit {
		return ""
	}
	switch {
	case x.heard && x.failing && now-x.lastSuccess > limit:
		return fmt.Sprintf("no heartbeat for %v", round(now-x.lastSuccess))
	case !x.heard && x.failing && now-x.firstFailure > limit:
		return fmt.Sprintf("no heartbeat at all for %v", round(now-x.firstFailure))
	case x.heard && x.behind && now-x.unchangedSince > limit && now-x.behindSince > limit:
		return fmt.Sprintf("applied index %d has not changed for %v (expected within %v)",
			x.applied, round(now-x.unchangedSince), limit)
	}
	return ""
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }
