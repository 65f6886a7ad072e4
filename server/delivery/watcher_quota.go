package delivery

import (
	"sync"

	"github.com/signalbox-dev/signalbox/protocol"
)

// WatcherQuota counts the watchers of each coordination node in one shard on one instance: streams
// of all kinds and one-shot watches. The hub and other streams share it; its lock is the innermost.
// The zero value is ready.
//
// Invariant: a node's count is the number of Reserve that returned nil, less that of Release.
type WatcherQuota struct {
	mu    sync.Mutex
	nodes map[uint64]*WatcherUsage
}

// WatcherUsage is what WatcherQuota counts for a node.
type WatcherUsage struct {
	Open     uint64
	Rejected uint64 // since the shard was opened here
}

// Reserve counts one watcher more, of at most maxWatchers. Error: OVERLOADED.
func (q *WatcherQuota) Reserve(node, maxWatchers uint64) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := q.usage(node)
	if w.Open >= maxWatchers {
		w.Rejected++
		return protocol.Errorf(protocol.StatusOverloaded,
			"node has as many watchers here as its quota max_watchers allows, %d in this shard; "+
				"close some streams, or raise the quota", maxWatchers)
	}
	w.Open++
	return nil
}

// replace counts one watcher more for one that is removed next.
func (q *WatcherQuota) replace(node uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.usage(node).Open++
}

func (q *WatcherQuota) usage(node uint64) *WatcherUsage {
	w := q.nodes[node]
	if w == nil {
		if q.nodes == nil {
			q.nodes = make(map[uint64]*WatcherUsage)
		}
		w = new(WatcherUsage)
		q.nodes[node] = w
	}
	return w
}

// Release counts one watcher less.
func (q *WatcherQuota) Release(node uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := q.nodes[node]
	if w.Open--; w.Open == 0 && w.Rejected == 0 {
		delete(q.nodes, node)
	}
}

// NodeDropped clears the rejections of a node that was dropped. Its watchers are gone, or about to
// go.
func (q *WatcherQuota) NodeDropped(node uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w := q.nodes[node]; w != nil {
		if w.Rejected = 0; w.Open == 0 {
			delete(q.nodes, node)
		}
	}
}

// Usage is what is counted for a node.
func (q *WatcherQuota) Usage(node uint64) WatcherUsage {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w := q.nodes[node]; w != nil {
		return *w
	}
	return WatcherUsage{}
}
