package shard

import (
	"bytes"
	"slices"
)

// holdings are the objects that a session takes part in here, by kind. Few sessions have any.
type holdings [kindCount]objectList

// objectList is in order of name.
type objectList []*hostedObject

func (l objectList) find(name []byte) (int, bool) {
	return slices.BinarySearchFunc(l, name,
		func(x *hostedObject, name []byte) int { return bytes.Compare(x.name, name) })
}

// objects are the session's of one kind.
func (r *sessionRecord) objects(kind kindNumber) objectList {
	if r.holdings == nil {
		return nil
	}
	return r.holdings[kind]
}

// holds reports whether the session takes part in the object of that name.
func (r *sessionRecord) holds(kind kindNumber, name []byte) bool {
	_, found := r.objects(kind).find(name)
	return found
}

// linkHolding adds an object to the session's holdings. It is false if it was there.
func (r *sessionRecord) linkHolding(x *hostedObject) bool {
	if r.holdings == nil {
		r.ownUse().holdings = new(holdings)
	}
	list := &r.holdings[x.kind]
	i, found := list.find(x.name)
	if !found {
		*list = slices.Insert(*list, i, x)
	}
	return !found
}

// addHolding adds an object to a session's holdings, and reports a remote session's first reference
// to the leader.
func (r *sessionRecord) addHolding(m *Machine, x *hostedObject) {
	if r.linkHolding(x) && r.references() == 1 && !r.ended && !m.atHome(r) {
		r.remoteHeld(m)
	}
}

// removeHolding takes an object out of a session's holdings. last: it was the last reference of a
// session that is not at home here, which the caller reports by remoteIdle.
func (r *sessionRecord) removeHolding(m *Machine, x *hostedObject) (last bool) {
	if r.holdings == nil {
		return false
	}
	list := &r.holdings[x.kind]
	i, found := list.find(x.name)
	if !found {
		return false
	}
	if *list = slices.Delete(*list, i, i+1); len(*list) == 0 {
		*list = nil
	}
	if r.holdings.count() == 0 {
		r.holdings = nil
	}
	return !r.hasReferences() && !m.atHome(r)
}

func (h *holdings) count() (n int) {
	for kind := range h {
		n += len(h[kind])
	}
	return n
}

// endHoldings ends what an ended session takes part in, kind by kind in order of name, as far as
// the work of this Apply goes. done: no other can be ended.
func (r *sessionRecord) endHoldings(m *Machine) (done bool) {
	for kind := kindNumber(0); kind < kindCount; kind++ {
		for i := 0; i < len(r.objects(kind)); {
			x := r.objects(kind)[i]
			if !x.mayChange() {
				i++
				continue
			}
			if m.batch.releaseBudget <= 0 {
				return false
			}
			x.state.sessionEnded(m, x, r.id)
			if r.removeHolding(m, x) {
				r.remoteIdle(m)
			}
		}
	}
	return true
}
