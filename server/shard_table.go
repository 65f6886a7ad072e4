package server

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// shardTable is the data shards of which a replica runs on this instance now. It changes when the map gives the instance a replica, or takes one away; who looks something up
// takes no lock, and may hold a shard host that has been closed meanwhile: its replica then takes nothing any more.
type shardTable struct {
	mu  sync.Mutex // held by who changes it
	now atomic.Pointer[shardList]
}

// shardList is the table at one moment. It never changes.
type shardList struct {
	byID map[uint64]*shardHost
	list []*shardHost // in order of id
}

var noShards shardList

func (t *shardTable) load() *shardList {
	if l := t.now.Load(); l != nil {
		return l
	}
	return &noShards
}

// get is the shard's host here, nil when it has none.
func (t *shardTable) get(shard uint64) *shardHost { return t.load().byID[shard] }

// all are the shards here in order of shard id. The list must not be changed.
func (t *shardTable) all() []*shardHost { return t.load().list }

// led are the ids of the shards that are led here, as far as is known.
func (t *shardTable) led() (ids []uint64) {
	for _, d := range t.all() {
		if d.leading.Load() {
			ids = append(ids, d.id)
		}
	}
	return ids
}

func (t *shardTable) add(d *shardHost) {
	t.change(func(m map[uint64]*shardHost) { m[d.id] = d })
}

func (t *shardTable) remove(d *shardHost) {
	t.change(func(m map[uint64]*shardHost) {
		if m[d.id] == d {
			delete(m, d.id)
		}
	})
}

func (t *shardTable) change(f func(map[uint64]*shardHost)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := maps.Clone(t.load().byID)
	if next == nil {
		next = make(map[uint64]*shardHost)
	}
	f(next)
	l := &shardList{byID: next, list: slices.Collect(maps.Values(next))}
	slices.SortFunc(l.list, func(a, b *shardHost) int { return cmp.Compare(a.id, b.id) })
	t.now.Store(l)
}
