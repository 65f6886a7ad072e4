package queue

import (
	"bytes"
	"maps"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// fair is self-clocked fair queueing over units: each key has a start, and its first waiter a tag,
// which is the start plus the cost of its units. The lowest tag is served first; of equal tags the
// key that was granted last loses.
//
// Invariant: no start is above the virtual time; a key has a share while it has waiters.
type fair struct {
	weights []protocol.Weight // by key
	virtual uint64            // highest tag of a grant
	keys    map[string]*share
	last    string // key granted last, if hasLast
	hasLast bool
}

type share struct {
	start   uint64
	waiters int
}

const (
	fairUnit    = 1 << 20 // cost of a unit at weight 1
	fairRebased = 1 << 62 // virtual time at which it starts again from 0
)

func newFair(weights []protocol.Weight) *fair {
	return &fair{weights: weights, keys: make(map[string]*share)}
}

// fairCost returns the cost of count units for a key with this weight. No more than the largest
// limit can be granted.
func fairCost(count, weight uint64) uint64 {
	return max(1, min(count, protocol.MaxFairLimit)*fairUnit/weight)
}

func compareWeights(a, b protocol.Weight) int { return bytes.Compare(a.Key, b.Key) }

func (f *fair) weight(key string) uint64 {
	at, ok := slices.BinarySearchFunc(f.weights, key, func(w protocol.Weight, key string) int {
		return bytes.Compare(w.Key, []byte(key))
	})
	if ok {
		return f.weights[at].Weight
	}
	return 1
}

func (f *fair) class(_ uint8, key string) string { return key }

func (f *fair) bid(_ uint8, key string, count, _, place uint64) bid {
	return bid{place: place, key: key, cost: fairCost(count, f.weight(key)), share: f.keys[key]}
}

func (f *fair) rank(b *bid) rank {
	return rank{major: f.tag(b), last: f.hasLast && f.last == b.key, place: b.place}
}

// tag returns the tag of a bid. A key whose first waiter it is starts at the virtual time.
func (f *fair) tag(b *bid) uint64 {
	if b.share != nil {
		return b.share.start + b.cost
	}
	return f.virtual + b.cost
}

func (f *fair) joined(key string) {
	k := f.keys[key]
	if k == nil {
		k = &share{start: f.virtual}
		f.keys[key] = k
	}
	k.waiters++
}

func (f *fair) left(key string) {
	k := f.keys[key]
	if k.waiters--; k.waiters == 0 {
		delete(f.keys, key)
	}
}

func (f *fair) granted(key string, tag uint64) {
	f.virtual = max(f.virtual, tag)
	if k := f.keys[key]; k != nil {
		k.start = tag
	}
	f.last, f.hasLast = key, true
	if f.virtual >= fairRebased { // once in 2^42 units: all keys begin alike
		for _, k := range f.keys {
			k.start = 0
		}
		f.virtual = 0
	}
}

func (f *fair) preview() policy {
	c := *f
	c.keys = maps.Clone(f.keys)
	for key, k := range c.keys {
		own := *k
		c.keys[key] = &own
	}
	return &c
}

// dropUnusedKeys removes keys that turned out to have no waiters. ok is true if there was none.
func (f *fair) dropUnusedKeys() (ok bool) {
	ok = true
	for key, k := range f.keys {
		if k.waiters == 0 {
			delete(f.keys, key)
			ok = false
		}
	}
	return ok
}
