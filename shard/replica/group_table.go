package replica

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// groupTable has the replicas that run on a host.
type groupTable struct {
	mu      sync.Mutex
	closed  bool
	byShard map[uint64]*group
	removed map[[2]uint64]bool // shard and replica of applied removals
}

func newGroupTable() *groupTable {
	return &groupTable{byShard: make(map[uint64]*group), removed: make(map[[2]uint64]bool)}
}

// close admits no further replica. It is false if the table was closed before.
func (t *groupTable) close() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.closed
	t.closed = true
	return !was
}

// add registers a replica before its group starts: the first leader event may come before the start
// returns.
func (t *groupTable) add(g *group) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return errHostClosed
	}
	if t.byShard[g.shard] != nil {
		return fmt.Errorf("shard %d runs on this host already", g.shard)
	}
	t.byShard[g.shard] = g
	delete(t.removed, [2]uint64{g.shard, g.id})
	return nil
}

// drop takes a replica off that was stopped, or did not start.
func (t *groupTable) drop(g *group) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g.stopped = true
	if t.byShard[g.shard] == g {
		delete(t.byShard, g.shard)
	}
}

func (t *groupTable) get(shard uint64) *group {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byShard[shard]
}

func (t *groupTable) isStopped(g *group) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return g.stopped
}

// running lists the replicas in the order of their shards.
func (t *groupTable) running() []*group {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.SortedFunc(maps.Values(t.byShard), func(a, b *group) int { return cmp.Compare(a.shard, b.shard) })
}

func (t *groupTable) shards() (list []*Shard) {
	for _, g := range t.running() {
		if s, ok := g.replica.(*Shard); ok {
			list = append(list, s)
		}
	}
	return list
}

// noteLeader keeps raft's report of the leader, and hands it on to the replica.
func (t *groupTable) noteLeader(shard, replica, term, leader uint64) {
	t.mu.Lock()
	g := t.byShard[shard]
	if g != nil && g.id != replica {
		g = nil
	}
	if g != nil {
		g.term, g.leader = term, leader
	}
	t.mu.Unlock()
	if g != nil {
		g.replica.leaderUpdated(term, leader)
	}
}

// leaderOf is the leader of a replica's group as raft reported it last.
func (t *groupTable) leaderOf(shard, replica uint64) (leader, term uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g := t.byShard[shard]; g != nil && g.id == replica {
		return g.leader, g.term
	}
	return 0, 0
}

// noteRemoved records that a replica has applied its own removal, and returns it if it runs. It
// adds one to wg then, for the goroutine that stops it: the host closes the table first, and then
// waits for wg.
func (t *groupTable) noteRemoved(shard, replica uint64, wg *sync.WaitGroup) *group {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	t.removed[[2]uint64{shard, replica}] = true
	g := t.byShard[shard]
	if g == nil || g.id != replica {
		return nil
	}
	wg.Add(1)
	return g
}

func (t *groupTable) isRemoved(shard, replica uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.removed[[2]uint64{shard, replica}]
}

// forgetRemoved forgets a removal: the replica's data are gone.
func (t *groupTable) forgetRemoved(shard, replica uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.removed, [2]uint64{shard, replica})
}
