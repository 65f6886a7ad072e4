package server

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// deskTable is the data shards of which a replica runs on this instance now. It changes when the map gives the instance a replica, or takes one away; who looks something up
// takes no lock, and may hold a desk that has been closed meanwhile: its replica then takes nothing any more.
type deskTable struct {
	mu  sync.Mutex // held by who changes it
	now atomic.Pointer[deskList]
}

// deskList is the table at one moment. It never changes.
type deskList struct {
	byID map[uint64]*desk
	list []*desk // in order of id
}

var noDesks deskList

func (t *deskTable) load() *deskList {
	if l := t.now.Load(); l != nil {
		return l
	}
	return &noDesks
}

// get is the shard's desk here, nil when it has none.
func (t *deskTable) get(shard uint64) *desk { return t.load().byID[shard] }

// all are the desks here in order of shard id. The list must not be changed.
func (t *deskTable) all() []*desk { return t.load().list }

func (t *deskTable) add(d *desk) {
	t.change(func(m map[uint64]*desk) { m[d.id] = d })
}

func (t *deskTable) remove(d *desk) {
	t.change(func(m map[uint64]*desk) {
		if m[d.id] == d {
			delete(m, d.id)
		}
	})
}

func (t *deskTable) change(f func(map[uint64]*desk)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := maps.Clone(t.load().byID)
	if next == nil {
		next = make(map[uint64]*desk)
	}
	f(next)
	l := &deskList{byID: next, list: slices.Collect(maps.Values(next))}
	slices.SortFunc(l.list, func(a, b *desk) int { return cmp.Compare(a.id, b.id) })
	t.now.Store(l)
}
