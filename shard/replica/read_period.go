package replica

import (
	"sync/atomic"
	"time"
)

// readPeriods is how often a replica makes a round of read-index.
type readPeriods struct {
	fixed     time.Duration // [ShardConfig.ReadPeriod]; 0: by the two below
	selfCheck atomic.Uint64 // ms: the least of the machine's nodes, as of the last tick
	grace     atomic.Uint64 // ms: their least grace period, as of the last tick
}

// leader is the time between two self-checks of the leader.
func (p *readPeriods) leader() time.Duration {
	switch asked := p.selfCheck.Load(); {
	case p.fixed > 0:
		return p.fixed
	case asked > 0:
		return time.Duration(asked) * time.Millisecond
	default:
		return defaultReadPeriod
	}
}

// A replica that does not lead makes a read-index when this part of the least grace period is over.
// The rest is for rounds that fail.
const gracePeriodDivisor = 2

// follower is the time between two rounds on a replica that does not lead. It answers reads for
// a node's grace period after a round, and has nothing else to prove.
func (p *readPeriods) follower() time.Duration {
	if p.fixed > 0 {
		return p.fixed
	}
	return max(p.leader(), time.Duration(p.grace.Load())*time.Millisecond/gracePeriodDivisor)
}

// roundStart is the start of the latest round of some kind, as a monotonic time.
type roundStart struct{ at atomic.Int64 }

// note keeps the latest start.
func (r *roundStart) note(start time.Duration) {
	for {
		old := r.at.Load()
		if int64(start) <= old || r.at.CompareAndSwap(old, int64(start)) {
			return
		}
	}
}

func (r *roundStart) within(now, d time.Duration) bool {
	at := r.at.Load()
	return at != 0 && now-time.Duration(at) < d
}

// due reports whether a round is due: the last one is older than the period, or older than half of
// it if a multiple of the period has passed since. So the rounds of all idle shards here come
// together and share messages to the other instances.
func (r *roundStart) due(now, period time.Duration) bool {
	at := time.Duration(r.at.Load())
	return at == 0 || now-at >= period || now-at >= period/2 && at < now.Truncate(period)
}
