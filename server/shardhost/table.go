package shardhost

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/signalbox-dev/signalbox/server/request"
)

// Table has the data shards of which a replica runs on this instance now. A lookup takes no lock,
// and may return a shard that has been closed meanwhile: its replica then takes nothing any more.
type Table struct {
	mu  sync.Mutex // held during a change
	now atomic.Pointer[shardList]
}

var _ request.Shards = (*Table)(nil)

// shardList is the table at one moment. It never changes.
type shardList struct {
	byID map[uint64]*Shard
	list []*Shard // in order of id
}

var noShards shardList

func (t *Table) load() *shardList {
	if l := t.now.Load(); l != nil {
		return l
	}
	return &noShards
}

// Get finds a shard, nil if none runs here.
func (t *Table) Get(shard uint64) *Shard { return t.load().byID[shard] }

// Shard implements request.Shards.
func (t *Table) Shard(id uint64) request.Shard {
	if d := t.Get(id); d != nil {
		return d
	}
	return nil
}

// CloseStream implements request.Shards.
func (t *Table) CloseStream(conn, watch uint64) {
	for _, d := range t.All() {
		d.hubs.CloseStream(conn, watch)
	}
}

// All lists the shards here in order of their ids. The list must not be changed.
func (t *Table) All() []*Shard { return t.load().list }

// Led lists the ids of the shards that are led here, as far as is known.
func (t *Table) Led() (ids []uint64) {
	for _, d := range t.All() {
		if d.Leading() {
			ids = append(ids, d.id)
		}
	}
	return ids
}

func (t *Table) add(d *Shard) {
	t.change(func(m map[uint64]*Shard) { m[d.id] = d })
}

func (t *Table) remove(d *Shard) {
	t.change(func(m map[uint64]*Shard) {
		if m[d.id] == d {
			delete(m, d.id)
		}
	})
}

func (t *Table) change(f func(map[uint64]*Shard)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := maps.Clone(t.load().byID)
	if next == nil {
		next = make(map[uint64]*Shard)
	}
	f(next)
	list := slices.SortedFunc(maps.Values(next), func(a, b *Shard) int { return cmp.Compare(a.id, b.id) })
	t.now.Store(&shardList{byID: next, list: list})
}
