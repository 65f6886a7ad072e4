package shard

import (
	"bytes"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// fairQueue is start-time fair queueing over units: each key has a start, and its first waiter a
// tag, which is the start plus what its units cost. The lowest tag is served first.
//
// Invariant: no start is above the virtual time; a key has a record while it has waiters.
type fairQueue struct {
	virtual uint64 // highest tag of a grant
	keys    map[string]*fairKey
	last    string // key granted last, if hasLast
	hasLast bool
}

type fairKey struct {
	start   uint64
	waiters int
}

const (
	fairUnit    = 1 << 20 // cost of a unit at weight 1
	fairRebased = 1 << 62 // virtual time at which it starts again from 0
)

// fairCost is what so many units cost a key with this weight. No more than the largest limit can be
// granted.
func fairCost(count, weight uint64) uint64 {
	return max(1, min(count, protocol.MaxFairLimit)*fairUnit/weight)
}

func sortWeights(list []protocol.Weight) { slices.SortFunc(list, compareWeights) }

func compareWeights(a, b protocol.Weight) int { return bytes.Compare(a.Key, b.Key) }

// key is the record of a key that has waiters, or gets one now.
func (f *fairQueue) key(key string) *fairKey {
	k := f.keys[key]
	if k == nil {
		k = &fairKey{start: f.virtual}
		f.keys[key] = k
	}
	return k
}

// startOf is the start of a key, or what it would be with its first waiter now.
func (f *fairQueue) startOf(key string) uint64 {
	if k := f.keys[key]; k != nil {
		return k.start
	}
	return f.virtual
}

func (f *fairQueue) wasLast(key string) bool { return f.hasLast && f.last == key }

// granted counts a grant with this tag. If the key waits no more, it has no record.
func (f *fairQueue) granted(key string, tag uint64) {
	f.virtual = max(f.virtual, tag)
	if k := f.keys[key]; k != nil {
		k.start = tag
	}
	f.last, f.hasLast = key, true
	if f.virtual >= fairRebased {
		for _, k := range f.keys { // each alike, so their order does not matter
			k.start -= min(k.start, f.virtual)
		}
		f.virtual = 0
	}
}

// reset is what an alter of the policy leaves.
func (f *fairQueue) reset() { *f = fairQueue{keys: make(map[string]*fairKey)} }
