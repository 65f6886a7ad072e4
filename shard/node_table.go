package shard

import (
	"slices"

	"github.com/signalbox-dev/signalbox/shard/container"
)

// nodeTable has the coordination nodes that this shard knows.
type nodeTable struct {
	nodes     map[uint64]*node       // known, not dropped
	nodeIndex container.Index[*node] // those and the ones being removed, by id
	dropping  []*node                // being removed, in order of their drop
	dropped   []nodeIDs              // ids refused for good, sorted; neighbours are in one range

	// The least periods of the nodes, in ms, 0 without any; they follow from the nodes.
	selfCheck uint64
	grace     uint64
}

// nodeIDs is a range of ids of nodes. The cluster counts ids upwards, so the ranges between the nodes
// that are there are few, however many nodes have gone.
type nodeIDs struct{ first, last uint64 }

// isDropped reports whether a node was known here, and is refused for good.
func (t *nodeTable) isDropped(id uint64) bool {
	_, found := t.findDropped(id)
	return found
}

// findDropped finds the range that has an id, or the place where it would be.
func (t *nodeTable) findDropped(id uint64) (at int, found bool) {
	return slices.BinarySearchFunc(t.dropped, id, func(r nodeIDs, id uint64) int {
		switch {
		case r.last < id:
			return -1
		case r.first > id:
			return 1
		}
		return 0
	})
}

// addDropped has an id refused for good. It is false if it was already.
func (t *nodeTable) addDropped(id uint64) bool {
	at, found := t.findDropped(id)
	if found {
		return false
	}
	after := at > 0 && t.dropped[at-1].last == id-1
	before := at < len(t.dropped) && t.dropped[at].first == id+1
	switch {
	case after && before:
		t.dropped[at-1].last = t.dropped[at].last
		t.dropped = slices.Delete(t.dropped, at, at+1)
	case after:
		t.dropped[at-1].last = id
	case before:
		t.dropped[at].first = id
	default:
		t.dropped = slices.Insert(t.dropped, at, nodeIDs{id, id})
	}
	return true
}

// nodeFrom is the first node whose id is not below id.
func (t *nodeTable) nodeFrom(id uint64) (n *node) {
	t.nodeIndex.Ascend(func(o *node) bool { return o.id < id }, func(o *node) bool {
		n = o
		return false
	})
	return n
}

// hasHomeSessions reports whether there are home sessions with an id above low and not above high,
// whatever the state of their bucket's copy.
func (t *nodeTable) hasHomeSessions(low, high uint64) (some bool) {
	t.nodeIndex.All(func(n *node) bool {
		s := n.homeSessionAfter(low)
		some = s != nil && s.id <= high
		return !some
	})
	return some
}

// updatePeriods is called when a node's config came, changed or went.
func (t *nodeTable) updatePeriods() {
	t.selfCheck, t.grace = 0, 0
	for _, n := range t.nodes { // the least of all: the order does not matter
		if p := n.config.SelfCheckPeriod; t.selfCheck == 0 || p < t.selfCheck {
			t.selfCheck = p
		}
		if p := n.config.GracePeriod; t.grace == 0 || p < t.grace {
			t.grace = p
		}
	}
}
