package shard

import (
	"bytes"

	"github.com/signalbox-dev/signalbox/shard/container"
)

// treap is an ordered set of entries whose links live in the entries themselves: no allocation,
// O(log n) expected for insertion, removal and seeking, O(1) expected for insertion at the end and
// removal at the front, and an in-order walk from anywhere. A semaphore keeps its owners and its
// waiters in one each, ordered by order id; a session record keeps what it holds and waits for in
// one, ordered by name.
//
// The heap priority is a hash of the order id. The shape of the tree never decides an outcome.
type treap struct {
	root, first, last *entry
	n                 int
}

// A set uses one of an entry's two groups of links.
const (
	byOrder = 0 // in its semaphore's owners or waiters, by order id
	byName  = 1 // in its session record's held, by name
)

type link struct {
	left, right, parent *entry
}

func priority(e *entry) uint64 {
	return container.Mix(e.orderID ^ uint64(e.semaphore.bucket.number)<<48)
}

func entryLess(a, b *entry, which int) bool {
	if which == byOrder {
		return a.orderID < b.orderID
	}
	return bytes.Compare(a.semaphore.name, b.semaphore.name) < 0
}

// insert adds an entry that is in no set of this kind.
func (t *treap) insert(e *entry, which int) {
	l := &e.links[which]
	*l = link{}
	t.n++
	if t.root == nil {
		t.root, t.first, t.last = e, e, e
		return
	}
	at := t.last
	if !entryLess(e, at, which) {
		at.links[which].right = e
		t.last = e
	} else {
		for at = t.root; ; {
			next := &at.links[which].left
			if !entryLess(e, at, which) {
				next = &at.links[which].right
			}
			if *next == nil {
				*next = e
				break
			}
			at = *next
		}
		if t.first.links[which].left == e {
			t.first = e
		}
	}
	l.parent = at
	for p := priority(e); l.parent != nil && priority(l.parent) < p; {
		t.rotateUp(e, which)
	}
}

// rotateUp lifts e above its parent.
func (t *treap) rotateUp(e *entry, which int) {
	l := &e.links[which]
	p := l.parent
	pl := &p.links[which]
	if pl.left == e {
		pl.left = l.right
		if l.right != nil {
			l.right.links[which].parent = p
		}
		l.right = p
	} else {
		pl.right = l.left
		if l.left != nil {
			l.left.links[which].parent = p
		}
		l.left = p
	}
	t.replace(p, e, which)
	pl.parent = e
}

// replace puts e where old hangs on its parent.
func (t *treap) replace(old, e *entry, which int) {
	p := old.links[which].parent
	if e != nil {
		e.links[which].parent = p
	}
	switch {
	case p == nil:
		t.root = e
	case p.links[which].left == old:
		p.links[which].left = e
	default:
		p.links[which].right = e
	}
}

func (t *treap) remove(e *entry, which int) {
	l := &e.links[which]
	if t.first == e {
		t.first = next(e, which)
	}
	if t.last == e {
		t.last = previous(e, which)
	}
	for l.left != nil && l.right != nil {
		if priority(l.left) > priority(l.right) {
			t.rotateUp(l.left, which)
		} else {
			t.rotateUp(l.right, which)
		}
	}
	child := l.left
	if child == nil {
		child = l.right
	}
	t.replace(e, child, which)
	*l = link{}
	t.n--
}

// next is the entry after e in order, or nil.
func next(e *entry, which int) *entry {
	if at := e.links[which].right; at != nil {
		for at.links[which].left != nil {
			at = at.links[which].left
		}
		return at
	}
	for {
		p := e.links[which].parent
		if p == nil || p.links[which].left == e {
			return p
		}
		e = p
	}
}

// previous is the entry before e in order, or nil.
func previous(e *entry, which int) *entry {
	if at := e.links[which].left; at != nil {
		for at.links[which].right != nil {
			at = at.links[which].right
		}
		return at
	}
	for {
		p := e.links[which].parent
		if p == nil || p.links[which].right == e {
			return p
		}
		e = p
	}
}

// seekOrder is the first entry with an order id above after, in a set ordered by order id.
func (t *treap) seekOrder(after uint64) *entry {
	var found *entry
	for at := t.root; at != nil; {
		if at.orderID > after {
			found = at
			at = at.links[byOrder].left
		} else {
			at = at.links[byOrder].right
		}
	}
	return found
}

// seekName is the first entry whose semaphore's name is not below name, in a set ordered by name.
func (t *treap) seekName(name []byte) *entry {
	var found *entry
	for at := t.root; at != nil; {
		if bytes.Compare(at.semaphore.name, name) >= 0 {
			found = at
			at = at.links[byName].left
		} else {
			at = at.links[byName].right
		}
	}
	return found
}

// orders yields the order ids of a set that is ordered by them.
func (t *treap) orders(yield func(order uint64) bool) {
	for e := t.first; e != nil && yield(e.orderID); e = next(e, byOrder) {
	}
}
