package shard

import (
	"hash/maphash"
	"iter"
)

// hashSet is a set of records that are found by a hash of what they are called: a table of nothing
// but pointers and a tag for each. A tag is half of the hash, so a look-up reads no record but the
// one that it finds, and a table that grows reads none. It takes 14 to 21 bytes for each record,
// where a map with ids or names as keys takes 20 to 60, and its keys a piece of memory each. The
// zero value is empty. Its order never decides an outcome.
//
// Invariant: a record is in its home slot or behind it, with no empty slot in between; the slots
// form a ring.
type hashSet[T any] struct {
	tags    []uint32 // of the records at the same places; 0: the slot is empty
	records []*T
	n       int
}

// tableSeed makes the places in tables unpredictable, as those in a map are: clients choose names
// and create ids, and could choose many for one place.
var (
	tableSeed = maphash.MakeSeed()
	idSeed    = maphash.String(tableSeed, "id")
)

func hashID(id uint64) uint64 { return mix(id ^ idSeed) }

func hashName(node uint64, name []byte) uint64 { return mix(node ^ maphash.Bytes(tableSeed, name)) }

// tagOf is never 0. The low half of a hash is left to partitionedSet.
func tagOf(hash uint64) uint32 { return uint32(hash>>32) | 1 }

func (s *hashSet[T]) homeSlot(tag uint32) int { return int(uint64(tag) * uint64(len(s.tags)) >> 32) }

func (s *hashSet[T]) slotAfter(at int) int {
	if at++; at == len(s.tags) {
		return 0
	}
	return at
}

// get is the record with this hash for which is says so, or nil.
func (s *hashSet[T]) get(hash uint64, is func(*T) bool) *T {
	if s.n == 0 {
		return nil
	}
	tag := tagOf(hash)
	for at := s.homeSlot(tag); s.tags[at] != 0; at = s.slotAfter(at) {
		if s.tags[at] == tag && is(s.records[at]) {
			return s.records[at]
		}
	}
	return nil
}

// add adds a record that is not in the set.
func (s *hashSet[T]) add(hash uint64, record *T) {
	if (s.n+1)*8 > len(s.tags)*7 {
		s.resize(max(8, len(s.tags)+len(s.tags)/2))
	}
	s.n++
	s.place(tagOf(hash), record)
}

func (s *hashSet[T]) place(tag uint32, record *T) {
	at := s.homeSlot(tag)
	for s.tags[at] != 0 {
		at = s.slotAfter(at)
	}
	s.tags[at], s.records[at] = tag, record
}

// remove takes a record out, if it is there.
func (s *hashSet[T]) remove(hash uint64, record *T) {
	s.take(hash, record)
	if len(s.tags) > 64 && s.n*4 < len(s.tags) {
		s.resize(len(s.tags) / 2)
	}
}

// take is remove without giving back memory.
func (s *hashSet[T]) take(hash uint64, record *T) {
	if s.n == 0 {
		return
	}
	at := s.homeSlot(tagOf(hash))
	for s.records[at] != record {
		if s.tags[at] == 0 {
			return
		}
		at = s.slotAfter(at)
	}
	s.n--
	// The records behind it move up, as far as their home slots allow, so that no gap is left
	// before any of them.
	for next := s.slotAfter(at); s.tags[next] != 0; next = s.slotAfter(next) {
		home := s.homeSlot(s.tags[next])
		if at <= next && (home <= at || home > next) || at > next && home <= at && home > next {
			s.tags[at], s.records[at] = s.tags[next], s.records[next]
			at = next
		}
	}
	s.tags[at], s.records[at] = 0, nil
}

func (s *hashSet[T]) resize(size int) {
	tags, records := s.tags, s.records
	s.tags, s.records = make([]uint32, size), make([]*T, size)
	for at, tag := range tags {
		if tag != 0 {
			s.place(tag, records[at])
		}
	}
}

// all visits the records in no particular order. The set must not change meanwhile.
func (s *hashSet[T]) all() iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for _, record := range s.records {
			if record != nil && !yield(record) {
				return
			}
		}
	}
}

// partitions of a partitionedSet. A power of two.
const partitions = 64

// partitionedSet is a hashSet in 64 partitions, so that growing moves only a small part of a
// million records at a time.
type partitionedSet[T any] struct {
	partitions [partitions]hashSet[T]
}

func (s *partitionedSet[T]) of(hash uint64) *hashSet[T] { return &s.partitions[hash%partitions] }

func (s *partitionedSet[T]) len() (n int) {
	for i := range s.partitions {
		n += s.partitions[i].n
	}
	return n
}

func (s *partitionedSet[T]) all() iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for i := range s.partitions {
			for record := range s.partitions[i].all() {
				if !yield(record) {
					return
				}
			}
		}
	}
}
