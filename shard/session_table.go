package shard

import (
	"cmp"
	"hash/maphash"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/container"
)

// sessionTable has the sessions that this shard knows.
type sessionTable struct {
	sessions   sessionSet // home sessions, remote sessions, and ended sessions that still have references
	byCreateID createIDSet

	ending []*sessionRecord // ended sessions that still have references, in order of their end
	// orphaned are those of them whose references are all in copies that are not active, and so
	// must not change.
	orphaned []*sessionRecord

	endedCreateIDs container.ExpiringSet[[protocol.KeyLen]byte] // create ids of ended sessions
	endedRemotes   container.ExpiringSet[uint64]                // ids of ended remote sessions
}

func newSessionTable() sessionTable {
	return sessionTable{
		endedCreateIDs: container.NewExpiringSet[[protocol.KeyLen]byte](),
		endedRemotes:   container.NewExpiringSet[uint64](),
	}
}

// remember adds the id of what ended now, if it is not remembered yet.
func remember[K comparable](set *container.ExpiringSet[K], id K, now uint64) {
	if !set.Has(id, now) {
		set.Add(id, addSaturated(now, Retention))
	}
}

// deferRelease queues an ended record that still has references. done: everything that can be
// released now is.
func (t *sessionTable) deferRelease(p *sessionRecord, done bool) {
	switch {
	case !p.hasReferences():
		t.sessions.remove(p)
	case done:
		t.orphaned = append(t.orphaned, p)
	default:
		t.ending = append(t.ending, p)
	}
}

// purgeEnding continues the release of ended sessions, as far as the work of this Apply goes.
func (t *sessionTable) purgeEnding(m *Machine) {
	for len(t.ending) > 0 && m.batch.releaseBudget > 0 {
		p := t.ending[0]
		text := "" // no event follows the end of a session
		if p.home == nil {
			text = endText(p)
		}
		if !p.releaseAll(m, text) {
			return
		}
		m.touch(p)
		t.ending[0] = nil
		t.ending = t.ending[1:]
		t.deferRelease(p, true)
	}
}

// retryOrphaned has those looked at again whose references could not be released: their copies, or
// their node, may have changed.
func (t *sessionTable) retryOrphaned() {
	t.ending = append(t.ending, t.orphaned...)
	t.orphaned = nil
}

// forgetReleased forgets the orphaned ones that have no reference left.
func (t *sessionTable) forgetReleased(m *Machine) {
	kept := t.orphaned[:0]
	for _, p := range t.orphaned {
		if p.hasReferences() {
			kept = append(kept, p)
			continue
		}
		m.touch(p)
		t.sessions.remove(p)
	}
	clear(t.orphaned[len(kept):])
	t.orphaned = kept
}

// sessionSet has the session records by id.
type sessionSet struct {
	container.PartitionedSet[sessionRecord]
}

func (s *sessionSet) get(id uint64) *sessionRecord {
	hash := container.HashID(id)
	return s.Of(hash).Get(hash, func(p *sessionRecord) bool { return p.id == id })
}

func (s *sessionSet) add(p *sessionRecord) {
	hash := container.HashID(p.id)
	s.Of(hash).Add(hash, p)
}

func (s *sessionSet) remove(p *sessionRecord) {
	hash := container.HashID(p.id)
	s.Of(hash).Remove(hash, p)
}

// createIDSet has the home sessions by create id.
type createIDSet struct {
	container.PartitionedSet[homeSession]
}

// get is the session with a create id, or nil.
func (c *createIDSet) get(id [protocol.KeyLen]byte) *homeSession {
	hash := maphash.Bytes(container.TableSeed, id[:])
	return c.Of(hash).Get(hash, func(s *homeSession) bool { return s.createID == id })
}

func (c *createIDSet) add(s *homeSession) {
	hash := maphash.Bytes(container.TableSeed, s.createID[:])
	c.Of(hash).Add(hash, s)
}

func (c *createIDSet) remove(s *homeSession) {
	hash := maphash.Bytes(container.TableSeed, s.createID[:])
	c.Of(hash).Remove(hash, s)
}

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
