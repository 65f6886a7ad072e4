package shard

import (
	"cmp"

	"github.com/signalbox-dev/signalbox/shard/container"
)

// families has the sessions of a node, at home in this shard, that a command of another session
// started. Few sessions are such ones, so a session has no field for it.
//
// Invariant: children has exactly the entries of parents.
type families struct {
	parents  map[uint64]uint64 // by child
	children container.Index[childSession]
}

type childSession struct{ parent, id uint64 }

func childSessionLess(a, b childSession) bool {
	return cmp.Or(cmp.Compare(a.parent, b.parent), cmp.Compare(a.id, b.id)) < 0
}

// parent returns the parent of a session; 0: it has none.
func (f *families) parent(id uint64) uint64 { return f.parents[id] }

// add notes the parent of a session; parent 0 is none.
func (f *families) add(id, parent uint64) {
	if parent == 0 {
		return
	}
	if f.parents == nil {
		f.parents = make(map[uint64]uint64)
	}
	f.parents[id] = parent
	f.children.Insert(childSession{parent, id}, childSessionLess)
}

func (f *families) remove(id uint64) {
	if parent := f.parents[id]; parent != 0 {
		delete(f.parents, id)
		f.children.Remove(childSession{parent, id}, childSessionLess)
	}
}

// childrenAfter yields the children of a session with an id above after, in order of id.
func (f *families) childrenAfter(parent, after uint64, yield func(id uint64) bool) {
	f.children.Ascend(func(c childSession) bool { return !childSessionLess(childSession{parent, after}, c) },
		func(c childSession) bool { return c.parent == parent && yield(c.id) })
}
