package client

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// watched is one semaphore as a watch knows it, and what its consumer has not been told yet.
type watched struct {
	name   string
	shard  uint64
	exists bool
	attributes
	owners []Owner // by order id

	told    bool // the consumer knows of it
	dirty   bool // it is in watch.dirty
	data    bool // the data changed since it was told
	limit   bool
	touched map[uint64]touch // by order id, since it was told; nothing is kept for one that was not told
}

type touch struct {
	kind  uint8
	owner Owner // as last told, with touchRemoved
}

const (
	touchAdded uint8 = 1 + iota
	touchUpdated
	touchRemoved
)

func byOrderID(o Owner, id uint64) int { return cmp.Compare(o.OrderID, id) }

// insertOwner puts an owner into a list by order id, or replaces it.
func insertOwner(list []Owner, o Owner) []Owner {
	i, found := slices.BinarySearchFunc(list, o.OrderID, byOrderID)
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
	slices.SortFunc(list, func(a, b Owner) int { return cmp.Compare(a.OrderID, b.OrderID) })
}

// record finds or makes the record of a semaphore. mu is held.
func (w *watch) record(p *part, name string) *watched {
	x := w.names[name]
	if x == nil {
		x = &watched{name: name}
		w.names[name] = x
	}
	x.shard = p.shard
	return x
}

// mark says that there is something to tell. mu is held.
func (w *watch) mark(x *watched) {
	if !x.dirty {
		x.dirty = true
		w.dirty = append(w.dirty, x)
	}
}

// replace makes a snapshot what is known of the buckets that its shard serves, and marks the differences. What it lacks of other buckets stays: it may be in another
// shard, whose stream says so, or says that it is gone. mu is held.
func (w *watch) replace(p *part, fresh map[string]*snapshot) {
	for name, x := range w.names {
		if _, there := fresh[name]; there || !x.exists {
			continue
		}
		if p.claim == nil && w.prefix && x.shard != p.shard {
			continue
		}
		if w.speaks(p, name) {
			w.remove(x)
		}
	}
	for name, s := range fresh {
		if !w.speaks(p, name) {
			continue
		}
		x := w.record(p, name)
		w.set(x, s.attributes)
		for i := 0; i < len(x.owners); {
			if _, stays := slices.BinarySearchFunc(s.owners, x.owners[i].OrderID, byOrderID); stays {
				i++
			} else {
				w.removeOwner(x, x.owners[i].OrderID)
			}
		}
		for _, o := range s.owners {
			w.putOwner(x, o)
		}
	}
}

// apply takes in changes of one semaphore. mu is held.
func (w *watch) apply(p *part, d *delta) {
	if !w.speaks(p, d.name) {
		return
	}
	for i := range d.changes {
		c := &d.changes[i]
		x := w.names[d.name]
		if x == nil || !x.exists {
			if c.kind == protocol.ChangeDeleted || c.kind == protocol.ChangeOwnerRemoved {
				continue
			}
			x = w.record(p, d.name)
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
			w.removeOwner(x, c.owner.OrderID)
		}
	}
}

// set makes a semaphore exist with these attributes. mu is held.
func (w *watch) set(x *watched, a attributes) {
	if !x.exists || x.attributes.version != a.version || !bytes.Equal(x.attributes.data, a.data) {
		x.data = true
		w.mark(x)
	}
	if !x.exists || x.attributes.limit != a.limit {
		x.limit = true
		w.mark(x)
	}
	x.exists, x.attributes = true, a
}

// remove makes a semaphore not exist. mu is held.
func (w *watch) remove(x *watched) {
	for len(x.owners) > 0 {
		w.removeOwner(x, x.owners[len(x.owners)-1].OrderID)
	}
	x.exists, x.attributes = false, attributes{}
	w.mark(x)
}

func (w *watch) putOwner(x *watched, o Owner) {
	i, found := slices.BinarySearchFunc(x.owners, o.OrderID, byOrderID)
	if found && sameOwner(&x.owners[i], &o) {
		return
	}
	if x.told {
		x.touch(o, found)
	}
	x.owners = insertOwner(x.owners, o)
	w.mark(x)
}

func (x *watched) touch(o Owner, known bool) {
	if x.touched == nil {
		x.touched = make(map[uint64]touch)
	}
	switch t := x.touched[o.OrderID]; {
	case t.kind == touchAdded:
	case known || t.kind == touchRemoved:
		x.touched[o.OrderID] = touch{kind: touchUpdated}
	default:
		x.touched[o.OrderID] = touch{kind: touchAdded}
	}
}

func (w *watch) removeOwner(x *watched, id uint64) {
	i, found := slices.BinarySearchFunc(x.owners, id, byOrderID)
	if !found {
		return
	}
	o := x.owners[i]
	x.owners = slices.Delete(x.owners, i, i+1)
	w.mark(x)
	if !x.told {
		return
	}
	if x.touched[id].kind == touchAdded {
		delete(x.touched, id) // it came and went
		return
	}
	if x.touched == nil {
		x.touched = make(map[uint64]touch)
	}
	x.touched[id] = touch{touchRemoved, o}
}

// next is the next event to tell, if there is one.
func (w *watch) next() (ev Event, ok bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return Event{}, false, w.err
	}
	if w.reset {
		w.reset = false
		return Event{Kind: EventReset}, true, nil
	}
	for len(w.dirty) > 0 {
		x := w.dirty[0]
		w.dirty[0] = nil
		w.dirty = w.dirty[1:]
		x.dirty = false
		if ev, ok := w.tell(x); ok {
			return ev, true, nil
		}
	}
	if w.synced || w.laid == nil || w.idle > 0 || slices.ContainsFunc(w.parts, func(p *part) bool { return !p.live }) || !w.complete() {
		return Event{}, false, nil
	}
	w.synced = true
	return Event{Kind: EventSynced}, true, nil
}

// tell makes the event of what has not been told of a semaphore. mu is held.
func (w *watch) tell(x *watched) (Event, bool) {
	if !x.exists {
		delete(w.names, x.name)
		ev := Event{Kind: EventDeleted, Name: x.name}
		for _, t := range x.touched {
			if t.kind == touchRemoved {
				ev.Removed = append(ev.Removed, t.owner)
			}
		}
		sortOwners(ev.Removed)
		return ev, x.told
	}
	ev := Event{
		Kind: EventChanged, Name: x.name, Created: !x.told, DataChanged: x.data, LimitChanged: x.limit, Data: x.attributes.data, Version: x.attributes.version,
		Limit: x.attributes.limit, Ephemeral: x.attributes.ephemeral,
	}
	if !x.told {
		ev.Added = slices.Clone(x.owners)
	}
	if len(x.touched) > 0 {
		x.tellTouched(&ev)
	}
	x.told, x.data, x.limit, x.touched = true, false, false, nil
	return ev, ev.Created || ev.DataChanged || ev.LimitChanged || len(ev.Added)+len(ev.Updated)+len(ev.Removed) > 0
}

// tellTouched adds the owners that came, changed and went.
func (x *watched) tellTouched(ev *Event) {
	for id, t := range x.touched {
		i, found := slices.BinarySearchFunc(x.owners, id, byOrderID)
		switch {
		case t.kind == touchRemoved:
			ev.Removed = append(ev.Removed, t.owner)
		case found && t.kind == touchAdded:
			ev.Added = append(ev.Added, x.owners[i])
		case found:
			ev.Updated = append(ev.Updated, x.owners[i])
		}
	}
	sortOwners(ev.Added)
	sortOwners(ev.Updated)
	sortOwners(ev.Removed)
}
