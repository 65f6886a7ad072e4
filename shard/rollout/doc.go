// Package rollout is the state machine of a staged rollout: one [Track] per service and cluster
// hands out versions to the instances of ordered locations, each location some delay behind the one
// before it.
//
// A Track is driven by calls, each of which is one command of a log: every replica makes the same
// calls with the same arguments and has the same state. There is no clock, no goroutine and no I/O
// in it. Time is the log time in [Now], which the caller never lets go back. What watchers and
// operators are to see is appended to a [Events] the caller owns: each has the reason in words.
//
// Instances ask with [Track.Poll]. Most polls change nothing; [Track.Peek] answers those without an
// entry in the log:
//
//	if answer, ok, err := track.Peek(now, caller, report); ok {
//		return answer, err
//	}
//	// else write the poll to the log; on every replica
//	answer, err := track.Poll(now, caller, report, &events)
//
// The caller validates reports: a track that holds an invalid one cannot be restored.
//
// A track moves its targets only when an instance polls. [Track.Tick] never does: it notifies
// watchers that a poll would move something now (state READY), raises alerts, and times gates out.
// [Track.Next] says when it is due.
//
// A Track is not safe for concurrent use; reads (Peek, Describe, Append, Next, Digest) may run
// beside each other.
package rollout
