// Package idset keeps values by the id they carry: a hash table of nothing but the values, which takes about 11 bytes for each pointer in it where a map with ids as
// keys takes 25 and more. It is for the tables that have an entry for each of a million sessions.
//
//	var s idset.Set[*binding]       // binding has a method Key() uint64
//	old := s.Put(b)
//	b = s.Get(id)                   // nil if there is none
package idset

import (
	"iter"
	"math/bits"
)

// Value is what can be kept: a pointer, most of the time. The zero value stands for nothing and cannot be kept.
type Value interface {
	comparable

	// Key is the id. It stays the same while the value is kept.
	Key() uint64
}

// Set is a set of values by id. The zero value is empty. It is used by one goroutine at a time.
//
// Invariant: a value lies at its home place or behind it, with no empty place in between; the places form a ring.
type Set[V Value] struct {
	places []V
	n      int
}

// Len is how many there are.
func (s *Set[V]) Len() int { return s.n }

// mix spreads ids, which come in rows and in steps, over all bits.
func mix(id uint64) uint64 {
	hi, lo := bits.Mul64(id^0x2d358dccaa6c78a5, 0x9e3779b97f4a7c15)
	return hi ^ lo
}

// home is the first place for an id.
func (s *Set[V]) home(id uint64) int {
	at, _ := bits.Mul64(mix(id), uint64(len(s.places)))
	return int(at)
}

// find gives the place of an id, or the empty one at which it would lie. There is an empty one.
func (s *Set[V]) find(id uint64) (at int, found bool) {
	var none V
	for at = s.home(id); s.places[at] != none; {
		if s.places[at].Key() == id {
			return at, true
		}
		if at++; at == len(s.places) {
			at = 0
		}
	}
	return at, false
}

// Get finds the value with an id; the zero value if there is none.
func (s *Set[V]) Get(id uint64) (v V) {
	if s.n == 0 {
		return v
	}
	at, _ := s.find(id)
	return s.places[at]
}

// Put keeps a value, and gives the one it replaces.
func (s *Set[V]) Put(v V) (old V) {
	if (s.n+1)*8 > len(s.places)*7 {
		s.resize(max(8, len(s.places)+len(s.places)/2))
	}
	at, found := s.find(v.Key())
	if found {
		old = s.places[at]
	} else {
		s.n++
	}
	s.places[at] = v
	return old
}

// Remove takes out the value with an id, and gives it.
func (s *Set[V]) Remove(id uint64) (old V) {
	if s.n == 0 {
		return old
	}
	at, found := s.find(id)
	if !found {
		return old
	}
	var none V
	old = s.places[at]
	s.n--
	// Those behind it move up, as far as their homes let them, so that no gap is left before any of them.
	for next := at; ; {
		if next++; next == len(s.places) {
			next = 0
		}
		if s.places[next] == none {
			break
		}
		home := s.home(s.places[next].Key())
		if at <= next && (home <= at || home > next) || at > next && home <= at && home > next {
			s.places[at] = s.places[next]
			at = next
		}
	}
	s.places[at] = none
	if s.n == 0 {
		s.places = nil
	} else if len(s.places) > 64 && s.n*4 < len(s.places) {
		s.resize(len(s.places) / 2)
	}
	return old
}

func (s *Set[V]) resize(size int) {
	was := s.places
	s.places = make([]V, size)
	var none V
	for _, v := range was {
		if v != none {
			at, _ := s.find(v.Key())
			s.places[at] = v
		}
	}
}

// All visits the values in no particular order. The set must not be changed meanwhile.
func (s *Set[V]) All() iter.Seq[V] {
	return func(yield func(V) bool) {
		var none V
		for _, v := range s.places {
			if v != none && !yield(v) {
				return
			}
		}
	}
}

// parts of a Table. A power of two.
const parts = 64

// Table is a Set in 64 parts, so that growing moves a small part of a million values at a time.
type Table[V Value] struct {
	part [parts]Set[V]
	n    int
}

// partOf goes by the low bits, home by the high ones.
func (t *Table[V]) partOf(id uint64) *Set[V] { return &t.part[mix(id)%parts] }

// Len is how many there are.
func (t *Table[V]) Len() int { return t.n }

// Get finds the value with an id; the zero value if there is none.
func (t *Table[V]) Get(id uint64) V { return t.partOf(id).Get(id) }

// Put keeps a value, and gives the one it replaces.
func (t *Table[V]) Put(v V) (old V) {
	s := t.partOf(v.Key())
	t.n -= s.n
	old = s.Put(v)
	t.n += s.n
	return old
}

// Remove takes out the value with an id, and gives it.
func (t *Table[V]) Remove(id uint64) (old V) {
	s := t.partOf(id)
	t.n -= s.n
	old = s.Remove(id)
	t.n += s.n
	return old
}

// All visits the values in no particular order. The table must not be changed meanwhile.
func (t *Table[V]) All() iter.Seq[V] {
	return func(yield func(V) bool) {
		for i := range t.part {
			for v := range t.part[i].All() {
				if !yield(v) {
					return
				}
			}
		}
	}
}
