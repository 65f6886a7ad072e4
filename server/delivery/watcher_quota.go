package delivery

import (
	"maps"
	"slices"
	"sync"

	"github.com/signalbox-dev/signalbox/protocol"
)

// WatcherQuota counts the watchers of each coordination node in one shard on one instance: streams
// of all kinds and one-shot watches. The hub and other streams share it; its lock is the innermost.
// The zero value is ready.
//
// Invariant: a node's count is the number of Reserve that returned nil, less that of Release.
type WatcherQuota struct {
	// Rejected is called for each watcher that is rejected, with the locks of the caller held. It
	// is set before the first one; nil: nobody counts them.
	Rejected func(node uint64)

	mu   sync.Mutex
	open map[uint64]uint64 // by node; no zeros
}

// Reserve counts one watcher more, of at most maxWatchers. Error: OVERLOADED.
func (q *WatcherQuota) Reserve(node, maxWatchers uint64) error {
	if q.reserve(node, maxWatchers) {
		return nil
	}
	if q.Rejected != nil {
		q.Rejected(node)
	}
	return protocol.Errorf(protocol.StatusOverloaded,
		"node has as many watchers here as its quota max_watchers allows, %d in this shard; "+
			"close some streams, or raise the quota", maxWatchers)
}

func (q *WatcherQuota) reserve(node, maxWatchers uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.open[node] >= maxWatchers {
		return false
	}
	q.add(node)
	return true
}

// replace counts one watcher more for one that is removed next.
func (q *WatcherQuota) replace(node uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(node)
}

func (q *WatcherQuota) add(node uint64) {
	if q.open == nil {
		q.open = make(map[uint64]uint64)
	}
	q.open[node]++
}

// Release counts one watcher less.
func (q *WatcherQuota) Release(node uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.open[node]--; q.open[node] == 0 {
		delete(q.open, node)
	}
}

// Open is how many watchers a node has.
func (q *WatcherQuota) Open(node uint64) uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.open[node]
}

// Nodes are the nodes with watchers.
func (q *WatcherQuota) Nodes() []uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Collect(maps.Keys(q.open))
}
