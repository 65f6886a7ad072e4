package client

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// watchedSemaphore is one semaphore as a watch knows it, and what its consumer has yet to get.
type watchedSemaphore struct {
	name         string
	exists       bool
	reported     bool                   // the consumer knows of it
	dirty        bool                   // it is in watch.dirty
	data         bool                   // the data changed since it was delivered
	limit        bool                   // the limit did
	ownerChanges map[uint64]ownerChange // by order id, since it was delivered; nothing is kept for one that was not
	attributes
	owners []Owner // by order id
	shard  uint64
}

type ownerChange struct {
	kind  uint8
	owner Owner // as last delivered, unless it was added since
}

const (
	ownerAdded uint8 = 1 + iota
	ownerUpdated
	ownerRemoved
)

func byOrderID(o Owner, id uint64) int { return cmp.Compare(o.Token, id) }

func insertOwner(list []Owner, o Owner) []Owner {
	i, found := slices.BinarySearchFunc(list, o.Token, byOrderID)
	if found {
		list[i] = o
		return list
	}
	return slices.Insert(list, i, o)
}

// sameOwner ignores what is only shown.
func sameOwner(a, b *Owner) bool {
	return a.Session == b.Session && a.Count == b.Count && bytes.Equal(a.Data, b.Data) && a.Description == b.Description
}

func sortOwners(list []Owner) {
	slices.SortFunc(list, func(a, b Owner) int { return cmp.Compare(a.Token, b.Token) })
}

// find finds the record of a semaphore, nil if there is none. mu is held.
func (w *watch) find(name string) *watchedSemaphore {
	if x := w.recent; x != nil && x.name == name {
		return x
	}
	w.recent = w.names[name]
	return w.recent
}

// forget removes the record of a semaphore. mu is held.
func (w *watch) forget(x *watchedSemaphore) {
	delete(w.names, x.name)
	w.recent = nil
}

// semaphore finds or makes the record of a semaphore. mu is held.
func (w *watch) semaphore(p *shardWatch, name string) *watchedSemaphore {
	x := w.find(name)
	if x == nil {
		x = &watchedSemaphore{name: name}
		w.names[name] = x
	}
	x.shard = p.shard
	return x
}

// markDirty says that there is something to deliver. mu is held.
func (w *watch) markDirty(x *watchedSemaphore) {
	if !x.dirty {
		x.dirty = true
		w.dirty = append(w.dirty, x)
	}
}

// replace makes a snapshot the state of the buckets that its shard serves, and marks the
// differences. Semaphores of other buckets that it lacks stay, until their shard says that they are
// gone. mu is held.
func (w *watch) replace(p *shardWatch, fresh map[string]*snapshot) {
	for name, x := range w.names {
		if _, there := fresh[name]; there || !x.exists {
			continue
		}
		if p.epochs == nil && w.prefix && x.shard != p.shard {
			continue
		}
		if w.isNewest(p, name) {
			w.remove(x)
		}
	}
	for name, s := range fresh {
		if !w.isNewest(p, name) {
			continue
		}
		x := w.semaphore(p, name)
		w.set(x, s.attributes)
		for i := 0; i < len(x.owners); {
			if _, stays := slices.BinarySearchFunc(s.owners, x.owners[i].Token, byOrderID); stays {
				i++
			} else {
				w.removeOwner(x, x.owners[i].Token)
			}
		}
		for _, o := range s.owners {
			w.putOwner(x, o)
		}
	}
}

// apply applies changes of one semaphore. mu is held.
func (w *watch) apply(p *shardWatch, d *delta) {
	if !w.isNewest(p, d.name) {
		return
	}
	for i := range d.changes {
		c := &d.changes[i]
		if c.kind > protocol.ChangeOwnerRemoved {
			continue // it says nothing of what is watched here
		}
		x := w.find(d.name)
		if x == nil || !x.exists {
			if c.kind == protocol.ChangeDeleted || c.kind == protocol.ChangeOwnerRemoved {
				continue
			}
			x = w.semaphore(p, d.name)
		}
		a := x.attributes
		switch c.kind {
		case protocol.ChangeCreated:
			w.set(x, c.attributes)
		case protocol.ChangeDeleted:
			w.remove(x)
		case protocol.ChangeData:
			a.version, a.data = c.version, c.data
			w.set(x, a)
		case protocol.ChangeLimit:
			a.limit = c.limit
			w.set(x, a)
		case protocol.ChangeOwnerAdded, protocol.ChangeOwnerChanged:
			if !x.exists {
				w.set(x, a)
			}
			w.putOwner(x, c.owner)
		case protocol.ChangeOwnerRemoved:
			w.removeOwner(x, c.owner.Token)
		}
	}
}

// set makes a semaphore exist with these attributes. mu is held.
func (w *watch) set(x *watchedSemaphore, a attributes) {
	if !x.exists || x.attributes.version != a.version || !bytes.Equal(x.attributes.data, a.data) {
		x.data = true
		w.markDirty(x)
	}
	if !x.exists || x.attributes.limit != a.limit {
		x.limit = true
		w.markDirty(x)
	}
	x.exists, x.attributes = true, a
}

// remove makes a semaphore not exist. mu is held.
func (w *watch) remove(x *watchedSemaphore) {
	for len(x.owners) > 0 {
		w.removeOwner(x, x.owners[len(x.owners)-1].Token)
	}
	x.exists, x.attributes = false, attributes{}
	if x.reported {
		w.markDirty(x)
		return
	}
	// Its consumer never hears of it, however many come and go before it takes the next event.
	w.forget(x)
	if w.unseen++; w.unseen > len(w.dirty)/2 {
		w.dirty = slices.DeleteFunc(w.dirty, (*watchedSemaphore).isUnseen)
		w.unseen = 0
	}
}

// isUnseen says that a semaphore came and went unseen: of one that is not reported there is
// something to deliver from the moment on in which it exists.
func (x *watchedSemaphore) isUnseen() bool { return !x.exists && !x.reported }

func (w *watch) putOwner(x *watchedSemaphore, o Owner) {
	i, found := slices.BinarySearchFunc(x.owners, o.Token, byOrderID)
	if found && sameOwner(&x.owners[i], &o) {
		return
	}
	if x.reported {
		if x.ownerChanges == nil {
			x.ownerChanges = make(map[uint64]ownerChange)
		}
		switch t := x.ownerChanges[o.Token]; {
		case t.kind == ownerRemoved:
			x.ownerChanges[o.Token] = ownerChange{ownerUpdated, t.owner}
		case t.kind != 0:
		case found:
			x.ownerChanges[o.Token] = ownerChange{ownerUpdated, x.owners[i]}
		default:
			x.ownerChanges[o.Token] = ownerChange{kind: ownerAdded}
		}
	}
	x.owners = insertOwner(x.owners, o)
	w.markDirty(x)
}

func (w *watch) removeOwner(x *watchedSemaphore, id uint64) {
	i, found := slices.BinarySearchFunc(x.owners, id, byOrderID)
	if !found {
		return
	}
	o := x.owners[i]
	x.owners = slices.Delete(x.owners, i, i+1)
	w.markDirty(x)
	if !x.reported {
		return
	}
	switch t := x.ownerChanges[id]; t.kind {
	case ownerAdded:
		delete(x.ownerChanges, id) // it came and went
		return
	case ownerUpdated:
		o = t.owner
	}
	if x.ownerChanges == nil {
		x.ownerChanges = make(map[uint64]ownerChange)
	}
	x.ownerChanges[id] = ownerChange{ownerRemoved, o}
}

// next puts the next event to deliver into ev, if there is one. Events are not returned by value:
// the stack of a goroutine that delivers few of them would have to grow for the copies.
func (w *watch) next(ev *Event) (ok bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return false, w.err
	}
	if w.lost {
		w.lost = false
		*ev = Event{Kind: EventInterrupted}
		return true, nil
	}
	for len(w.dirty) > 0 {
		x := w.dirty[0]
		w.dirty[0] = nil
		if len(w.dirty) > 1 {
			w.dirty = w.dirty[1:]
		} else {
			w.dirty = w.dirty[:0] // its memory serves the next change
		}
		x.dirty = false
		if x.isUnseen() {
			w.unseen--
		} else if w.takeEvent(x, ev) {
			return true, nil
		}
	}
	if w.synced || w.routes == nil || w.idle > 0 ||
		slices.ContainsFunc(w.shardWatches, func(p *shardWatch) bool { return !p.live }) || !w.isComplete() {
		return false, nil
	}
	w.synced = true
	*ev = Event{Kind: EventSynced}
	return true, nil
}

// takeEvent makes the event of what was not delivered of a semaphore. It is false when nothing is
// to be delivered of it. mu is held.
func (w *watch) takeEvent(x *watchedSemaphore, ev *Event) bool {
	if !x.exists {
		w.forget(x)
		*ev = Event{Kind: EventDeleted, Name: x.name}
		x.addOwnerChanges(ev)
		return true
	}
	*ev = Event{
		Kind: EventChanged, Name: x.name, Created: !x.reported, DataChanged: x.data, LimitChanged: x.limit,
		Data: x.attributes.data, Version: x.attributes.version,
		Limit: x.attributes.limit, Ephemeral: x.attributes.ephemeral,
	}
	if !x.reported {
		ev.Added = slices.Clone(x.owners)
	}
	if len(x.ownerChanges) > 0 {
		x.addOwnerChanges(ev)
	}
	x.reported, x.data, x.limit, x.ownerChanges = true, false, false, nil
	return ev.Created || ev.DataChanged || ev.LimitChanged || len(ev.Added)+len(ev.Updated)+len(ev.Removed) > 0
}

func (x *watchedSemaphore) addOwnerChanges(ev *Event) {
	for id, t := range x.ownerChanges {
		i, found := slices.BinarySearchFunc(x.owners, id, byOrderID)
		switch {
		case t.kind == ownerRemoved:
			ev.Removed = append(ev.Removed, t.owner)
		case found && t.kind == ownerAdded:
			ev.Added = append(ev.Added, x.owners[i])
		case found:
			ev.Updated = append(ev.Updated, x.owners[i])
		}
	}
	sortOwners(ev.Added)
	sortOwners(ev.Updated)
	sortOwners(ev.Removed)
}
