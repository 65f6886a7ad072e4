package watch

import (
	"sync"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Quota counts the watchers of each coordination node in one shard on one instance: streams of all kinds and one-shot watches. The hub and whoever else has streams share
// it; its lock is the innermost. The zero value is ready.
//
// Invariant: what a node has is the number of Take that answered nil, less that of Give.
type Quota struct {
	mu    sync.Mutex
	nodes map[uint64]*Watchers
}

// Watchers is what Quota knows of a node.
type Watchers struct {
	Has     uint64
	Refused uint64 // since the shard was opened here
}

// Take counts one watcher more, of at most as many as most. Error: OVERLOADED.
func (q *Quota) Take(node, most uint64) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := q.of(node)
	if w.Has >= most {
		w.Refused++
		return protocol.Errorf(protocol.StatusOverloaded,
			"node has as many watchers here as its quota max_watchers allows, %d in this shard; close some streams, or raise the quota", most)
	}
	w.Has++
	return nil
}

// replace counts one watcher more for one that goes.
func (q *Quota) replace(node uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.of(node).Has++
}

func (q *Quota) of(node uint64) *Watchers {
	w := q.nodes[node]
	if w == nil {
		if q.nodes == nil {
			q.nodes = make(map[uint64]*Watchers)
		}
		w = new(Watchers)
		q.nodes[node] = w
	}
	return w
}

// Give counts one watcher less.
func (q *Quota) Give(node uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := q.nodes[node]
	if w.Has--; w.Has == 0 && w.Refused == 0 {
		delete(q.nodes, node)
	}
}

// Forget forgets the refusals of a node that was dropped, and whose watchers are gone or about to.
func (q *Quota) Forget(node uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w := q.nodes[node]; w != nil {
		if w.Refused = 0; w.Has == 0 {
			delete(q.nodes, node)
		}
	}
}

// Of is what is counted for a node.
func (q *Quota) Of(node uint64) Watchers {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w := q.nodes[node]; w != nil {
		return *w
	}
	return Watchers{}
}
