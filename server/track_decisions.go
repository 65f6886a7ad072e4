package server

import (
	"sync"
)

// trackDecisions counts what this instance does with the tracks of one shard: polls, and the
// targets that were set while it leads.
type trackDecisions struct {
	host *shardHost

	mu         sync.Mutex
	targetsSet map[targetKey]uint64 // for the metrics; bounded by Limits.MaxSeries
}

func newTrackDecisions(d *shardHost) *trackDecisions {
	return &trackDecisions{host: d, targetsSet: make(map[targetKey]uint64)}
}
