package failuredetector

import (
	"fmt"
	"time"
)

// Report is what a heartbeat says about the instance that sent it.
type Report struct {
	Applied  uint64 // index of the meta shard's log applied there
	Starting bool   // it is still reading its log or a snapshot: its index may stand still
}

// memberRecord is what the leader knows of the reach of one instance, since it leads and since the instance's last Online.
//
// Invariants: if ever, lastSuccess counts; if failing, a failure came after the last success, or there never was one and firstFailure counts.
type memberRecord struct {
	target      Target
	incarnation uint64

	heard        bool // there was a success
	lastSuccess  time.Duration
	failing      bool
	firstFailure time.Duration // since the last success

	report         Report
	unchangedSince time.Duration // since when report.Applied has not changed
	behind         bool          // we have applied more than it says
	behindSince    time.Duration // at the latest: since when

	marked   bool // the cluster was told and the view does not show it yet
	markedAt time.Duration
}

func (x *memberRecord) heartbeatReceived(r Report, now time.Duration) {
	if !x.heard || r.Applied != x.report.Applied || r.Starting {
		x.unchangedSince = now
		x.behind = false // asked anew by the next step
	}
	x.heard, x.lastSuccess, x.failing = true, now, false
	x.report = r
}

func (x *memberRecord) heartbeatFailed(now time.Duration) {
	if !x.failing {
		x.failing, x.firstFailure = true, now
	}
}

// noteApplied notes since when we are ahead: silence in the log must not count against anybody.
func (x *memberRecord) noteApplied(applied uint64, now time.Duration) {
	switch {
	case !x.heard || applied <= x.report.Applied:
		x.behind = false
	case !x.behind:
		x.behind, x.behindSince = true, now
	}
}

// shift moves what is remembered by a time in which nothing could be heard, but not past now.
func (x *memberRecord) shift(gap, now time.Duration) {
	for _, t := range []*time.Duration{&x.lastSuccess, &x.firstFailure, &x.unchangedSince, &x.behindSince, &x.markedAt} {
		*t = min(*t+gap, now)
	}
}

// unreachable says why the instance is to be taken for dead, or nothing. An instance that nobody has tried to reach yet is undecided: it may be starting.
func (x *memberRecord) unreachable(limit, now time.Duration) string {
	if x.marked && now-x.markedAt <= limit {
		return ""
	}
	switch {
	case x.heard && x.failing && now-x.lastSuccess > limit:
		return fmt.Sprintf("no heartbeat for %v", round(now-x.lastSuccess))
	case !x.heard && x.failing && now-x.firstFailure > limit:
		return fmt.Sprintf("no heartbeat at all for %v", round(now-x.firstFailure))
	case x.heard && x.behind && !x.report.Starting && now-x.unchangedSince > limit && now-x.behindSince > limit:
		return fmt.Sprintf("applied index %d has not changed for %v (expected within %v)", x.report.Applied, round(now-x.unchangedSince), limit)
	}
	return ""
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }
