// Package idset keeps values by the id they carry: a hash table of nothing but the values, which
// takes about 11 bytes for each pointer in it where a map with ids as keys takes 25 and more. It is
// for the tables that have an entry for each of a million sessions.
//
//	var s idset.Set[*binding]       // binding has a method Key() uint64
//	old := s.Put(b)
//	b = s.Get(id)                   // nil if there is none
//
// A slot is one pointer; slots are filled up to 7/8 and grow by half. A look-up costs a
// multiplication and mostly one look at the value that it finds, which its caller is about to use
// anyway. Set is for one connection's sessions. Table, in 64 partitions that grow separately, is
// for all sessions of a shard or an instance: to move a quarter of a million entries at once would
// take longer than an operation may wait. The order of a visit follows from the hash, and nothing
// may depend on it.
package idset

import (
	"iter"
	"math/bits"
)

// Value is what can be kept: a pointer, most of the time. The zero value stands for nothing and
// cannot be kept.
type Value interface {
	comparable

	// Key is the id. It must not change while the value is in a set.
	Key() uint64
}

// Set is a set of values by id. The zero value is empty. It is not safe for concurrent use.
//
// Invariant: a value is in its home slot or behind it, with no empty slot in between; the slots
// form a ring.
type Set[V Value] struct {
	slots []V
	n     int
}

// Len returns the number of values.
func (s *Set[V]) Len() int { return s.n }

// hashID spreads ids, which come in sequences and steps, over all bits.
func hashID(id uint64) uint64 {
	hi, lo := bits.Mul64(id^0x2d358dccaa6c78a5, 0x9e3779b97f4a7c15)
	return hi ^ lo
}

func (s *Set[V]) homeSlot(id uint64) int {
	at, _ := bits.Mul64(hashID(id), uint64(len(s.slots)))
	return int(at)
}

// findSlot returns the slot of an id, or the empty one where it would be. There is always an empty
// slot.
func (s *Set[V]) findSlot(id uint64) (at int, found bool) {
	var none V
	for at = s.homeSlot(id); s.slots[at] != none; {
		if s.slots[at].Key() == id {
			return at, true
		}
		if at++; at == len(s.slots) {
			at = 0
		}
	}
	return at, false
}

// Get returns the value with an id, or the zero value.
func (s *Set[V]) Get(id uint64) (v V) {
	if s.n == 0 {
		return v
	}
	at, _ := s.findSlot(id)
	return s.slots[at]
}

// Put adds a value, and returns the one it replaces.
func (s *Set[V]) Put(v V) (old V) {
	if (s.n+1)*8 > len(s.slots)*7 {
		s.resize(max(8, len(s.slots)+len(s.slots)/2))
	}
	at, found := s.findSlot(v.Key())
	if found {
		old = s.slots[at]
	} else {
		s.n++
	}
	s.slots[at] = v
	return old
}

// Remove removes the value with an id, and returns it.
func (s *Set[V]) Remove(id uint64) (old V) {
	if s.n == 0 {
		return old
	}
	at, found := s.findSlot(id)
	if !found {
		return old
	}
	var none V
	old = s.slots[at]
	s.n--
	// The values behind it move up, as far as their home slots allow, so that no gap is left before
	// any of them.
	for next := at; ; {
		if next++; next == len(s.slots) {
			next = 0
		}
		if s.slots[next] == none {
			break
		}
		home := s.homeSlot(s.slots[next].Key())
		if at <= next && (home <= at || home > next) || at > next && home <= at && home > next {
			s.slots[at] = s.slots[next]
			at = next
		}
	}
	s.slots[at] = none
	if s.n == 0 {
		s.slots = nil
	} else if len(s.slots) > 64 && s.n*4 < len(s.slots) {
		s.resize(len(s.slots) / 2)
	}
	return old
}

func (s *Set[V]) resize(size int) {
	was := s.slots
	s.slots = make([]V, size)
	var none V
	for _, v := range was {
		if v != none {
			at, _ := s.findSlot(v.Key())
			s.slots[at] = v
		}
	}
}

// All visits the values in no particular order. The set must not change meanwhile.
func (s *Set[V]) All() iter.Seq[V] {
	return func(yield func(V) bool) {
		var none V
		for _, v := range s.slots {
			if v != none && !yield(v) {
				return
			}
		}
	}
}

// partitions of a Table. A power of two.
const partitions = 64

// Table is a Set in 64 partitions, so that growing moves only a small part of a million values at a
// time.
type Table[V Value] struct {
	partitions [partitions]Set[V]
	n          int
}

// partitionOf uses the low bits of the hash, homeSlot the high ones.
func (t *Table[V]) partitionOf(id uint64) *Set[V] { return &t.partitions[hashID(id)%partitions] }

// Len returns the number of values.
func (t *Table[V]) Len() int { return t.n }

// Get returns the value with an id, or the zero value.
func (t *Table[V]) Get(id uint64) V { return t.partitionOf(id).Get(id) }

// Put adds a value, and returns the one it replaces.
func (t *Table[V]) Put(v V) (old V) {
	s := t.partitionOf(v.Key())
	t.n -= s.n
	old = s.Put(v)
	t.n += s.n
	return old
}

// Remove removes the value with an id, and returns it.
func (t *Table[V]) Remove(id uint64) (old V) {
	s := t.partitionOf(id)
	t.n -= s.n
	old = s.Remove(id)
	t.n += s.n
	return old
}

// All visits the values in no particular order. The table must not change meanwhile.
func (t *Table[V]) All() iter.Seq[V] {
	return func(yield func(V) bool) {
		for i := range t.partitions {
			for v := range t.partitions[i].All() {
				if !yield(v) {
					return
				}
			}
		}
	}
}
