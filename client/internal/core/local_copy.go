package core

import (
	"bytes"
	"cmp"
	"maps"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// localCopy is what a watch knows of semaphores, and what its consumer has yet to take: at most the
// memory of two copies of the state, however much changes meanwhile.
type localCopy struct {
	names  map[string]*watched
	recent *watched   // the one of names that a change was found for last, nil: none
	dirty  []*watched // with something to take, in order
	unseen int        // of dirty: came and went, and are not to be taken
}

// watched is one semaphore as a watch knows it, and what its consumer has yet to take.
type watched struct {
	name     string
	exists   bool
	reported bool // the consumer knows of it
	dirty    bool // it is in localCopy.dirty
	data     bool // the data changed since it was taken
	limit    bool // the limit did
	attributes
	owners  []protocol.Owner       // by order id
	changed map[uint64]ownerChange // by order id, since it was taken; nothing is kept for one that was not
	shard   uint64
}

type ownerChange struct {
	kind  ownerChangeKind
	owner protocol.Owner // as taken last, unless it was added since
}

type ownerChangeKind uint8

const (
	ownerAdded ownerChangeKind = 1 + iota
	ownerUpdated
	ownerRemoved
)

func (x *localCopy) init() { *x = localCopy{names: make(map[string]*watched)} }

// find finds the record of a semaphore, nil if there is none.
func (x *localCopy) find(name string) *watched {
	if s := x.recent; s != nil && s.name == name {
		return s
	}
	x.recent = x.names[name]
	return x.recent
}

// forget removes the record of a semaphore.
func (x *localCopy) forget(s *watched) {
	delete(x.names, s.name)
	x.recent = nil
}

// semaphore finds or makes the record of a semaphore.
func (x *localCopy) semaphore(shard uint64, name string) *watched {
	s := x.find(name)
	if s == nil {
		s = &watched{name: name}
		x.names[name] = s
	}
	s.shard = shard
	return s
}

// markDirty: there is something to take.
func (x *localCopy) markDirty(s *watched) {
	if !s.dirty {
		s.dirty = true
		x.dirty = append(x.dirty, s)
	}
}

// replace makes a snapshot the state of the buckets that its shard serves, and marks the
// differences. Semaphores of other buckets that it lacks stay, until their shard says that they are
// gone.
func (w *Watch) replace(p *shardStream) {
	x, fresh := &w.copied, p.pages.building
	for _, name := range slices.Sorted(maps.Keys(x.names)) {
		s := x.names[name]
		if _, there := fresh[name]; there || !s.exists {
			continue
		}
		if p.epochs == nil && w.Prefix && s.shard != p.home {
			continue
		}
		if w.isNewest(p, name) {
			x.remove(s)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(fresh)) {
		if !w.isNewest(p, name) {
			continue
		}
		s, now := x.semaphore(p.home, name), fresh[name]
		x.set(s, now.attributes)
		for i := 0; i < len(s.owners); {
			if _, stays := slices.BinarySearchFunc(now.owners, s.owners[i].OrderID, byOrderID); stays {
				i++
			} else {
				x.removeOwner(s, s.owners[i].OrderID)
			}
		}
		for _, o := range now.owners {
			x.putOwner(s, o)
		}
	}
}

// apply applies changes of one semaphore.
func (w *Watch) apply(p *shardStream, d *delta) {
	if !w.isNewest(p, d.name) {
		return
	}
	if !w.Prefix {
		p.known = max(p.known, d.index)
	}
	x := &w.copied
	for i := range d.changes {
		c := &d.changes[i]
		if c.kind == protocol.ChangeOptions {
			continue // a watch does not have them
		}
		s := x.find(d.name)
		if s == nil || !s.exists {
			if c.kind == protocol.ChangeDeleted || c.kind == protocol.ChangeOwnerRemoved {
				continue
			}
			s = x.semaphore(p.home, d.name)
		}
		a := s.attributes
		switch c.kind {
		case protocol.ChangeCreated:
			x.set(s, c.attributes)
		case protocol.ChangeDeleted:
			x.remove(s)
		case protocol.ChangeData:
			a.version, a.data = c.version, c.data
			x.set(s, a)
		case protocol.ChangeLimit:
			a.limit = c.limit
			x.set(s, a)
		case protocol.ChangeOwnerAdded, protocol.ChangeOwnerChanged:
			if !s.exists {
				x.set(s, a)
			}
			x.putOwner(s, c.owner)
		case protocol.ChangeOwnerRemoved:
			x.removeOwner(s, c.owner.OrderID)
		}
	}
}

// set makes a semaphore exist with these attributes.
func (x *localCopy) set(s *watched, a attributes) {
	if !s.exists || s.version != a.version || !bytes.Equal(s.attributes.data, a.data) {
		s.data = true
		x.markDirty(s)
	}
	if !s.exists || s.attributes.limit != a.limit {
		s.limit = true
		x.markDirty(s)
	}
	s.exists, s.attributes = true, a
}

// remove makes a semaphore not exist.
func (x *localCopy) remove(s *watched) {
	for len(s.owners) > 0 {
		x.removeOwner(s, s.owners[len(s.owners)-1].OrderID)
	}
	s.exists, s.attributes = false, attributes{}
	if s.reported {
		x.markDirty(s)
		return
	}
	// Its consumer never hears of it, however many come and go before it takes the next event.
	x.forget(s)
	if x.unseen++; x.unseen > len(x.dirty)/2 {
		x.dirty = slices.DeleteFunc(x.dirty, (*watched).isUnseen)
		x.unseen = 0
	}
}

// isUnseen: a semaphore came and went unseen. Of one that is not reported there is something to
// take from the moment on in which it exists.
func (s *watched) isUnseen() bool { return !s.exists && !s.reported }

func (x *localCopy) putOwner(s *watched, o protocol.Owner) {
	i, found := slices.BinarySearchFunc(s.owners, o.OrderID, byOrderID)
	if found && sameOwner(&s.owners[i], &o) {
		return
	}
	if s.reported {
		switch t := s.changed[o.OrderID]; {
		case t.kind == ownerRemoved:
			put(&s.changed, o.OrderID, ownerChange{ownerUpdated, t.owner})
		case t.kind != 0:
		case found:
			put(&s.changed, o.OrderID, ownerChange{ownerUpdated, s.owners[i]})
		default:
			put(&s.changed, o.OrderID, ownerChange{kind: ownerAdded})
		}
	}
	s.owners = putOwner(s.owners, o)
	x.markDirty(s)
}

func (x *localCopy) removeOwner(s *watched, id uint64) {
	i, found := slices.BinarySearchFunc(s.owners, id, byOrderID)
	if !found {
		return
	}
	o := s.owners[i]
	s.owners = slices.Delete(s.owners, i, i+1)
	x.markDirty(s)
	if !s.reported {
		return
	}
	switch t := s.changed[id]; t.kind {
	case ownerAdded:
		delete(s.changed, id) // it came and went
		return
	case ownerUpdated:
		o = t.owner
	}
	put(&s.changed, id, ownerChange{ownerRemoved, o})
}

// next puts the next event into ev, if there is one.
func (x *localCopy) next(ev *WatchEvent) bool {
	for len(x.dirty) > 0 {
		s := x.dirty[0]
		x.dirty[0] = nil
		if len(x.dirty) > 1 {
			x.dirty = x.dirty[1:]
		} else {
			x.dirty = x.dirty[:0] // its memory serves the next change
		}
		s.dirty = false
		if s.isUnseen() {
			x.unseen--
		} else if x.take(s, ev) {
			return true
		}
	}
	return false
}

// take makes the event of what was not taken of a semaphore. It is false when nothing is to be
// taken of it.
func (x *localCopy) take(s *watched, ev *WatchEvent) bool {
	if !s.exists {
		x.forget(s)
		*ev = WatchEvent{Kind: WatchDeleted, Name: s.name}
		s.addOwnerChanges(ev)
		return true
	}
	*ev = WatchEvent{
		Kind: WatchChanged, Name: s.name, Created: !s.reported, DataChanged: s.data, LimitChanged: s.limit,
		Data: s.attributes.data, Version: s.version, Limit: s.attributes.limit, Ephemeral: s.ephemeral,
	}
	if !s.reported {
		ev.Added = slices.Clone(s.owners)
	}
	if len(s.changed) > 0 {
		s.addOwnerChanges(ev)
	}
	s.reported, s.data, s.limit, s.changed = true, false, false, nil
	return ev.Created || ev.DataChanged || ev.LimitChanged || len(ev.Added)+len(ev.Updated)+len(ev.Removed) > 0
}

func (s *watched) addOwnerChanges(ev *WatchEvent) {
	for id, t := range s.changed {
		i, found := slices.BinarySearchFunc(s.owners, id, byOrderID)
		switch {
		case t.kind == ownerRemoved:
			ev.Removed = append(ev.Removed, t.owner)
		case found && t.kind == ownerAdded:
			ev.Added = append(ev.Added, s.owners[i])
		case found:
			ev.Updated = append(ev.Updated, s.owners[i])
		}
	}
	for _, list := range [][]protocol.Owner{ev.Added, ev.Updated, ev.Removed} { // the order of a map decides nothing
		slices.SortFunc(list, func(a, b protocol.Owner) int { return cmp.Compare(a.OrderID, b.OrderID) })
	}
}
