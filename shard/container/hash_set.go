package container

import (
	"hash/maphash"
	"iter"
)

// HashSet is a set of records that are found by a hash of what they are called: a table of nothing
// but pointers and a tag for each. A tag is half of the hash, so a look-up reads no record but the
// one that it finds, and a table that grows reads none. It takes 14 to 21 bytes for each record,
// where a map with ids or names as keys takes 20 to 60, and its keys a piece of memory each. The
// zero value is empty. Its order never decides an outcome.
//
// Invariant: a record is in its home slot or behind it, with no empty slot in between; the slots
// form a ring.
type HashSet[T any] struct {
	tags    []uint32 // of the records at the same places; 0: the slot is empty
	records []*T
	n       int
}

// TableSeed makes the places in tables unpredictable, as those in a map are: clients choose names
// and create ids, and could choose many for one place.
var (
	TableSeed = maphash.MakeSeed()
	idSeed    = maphash.String(TableSeed, "id")
)

// HashID hashes an id for a table.
func HashID(id uint64) uint64 { return Mix(id ^ idSeed) }

// HashName hashes a name of a node for a table.
func HashName(node uint64, name []byte) uint64 { return Mix(node ^ maphash.Bytes(TableSeed, name)) }

// tagOf is never 0. The low half of a hash is left to PartitionedSet.
func tagOf(hash uint64) uint32 { return uint32(hash>>32) | 1 }

func (s *HashSet[T]) homeSlot(tag uint32) int { return int(uint64(tag) * uint64(len(s.tags)) >> 32) }

func (s *HashSet[T]) slotAfter(at int) int {
	if at++; at == len(s.tags) {
		return 0
	}
	return at
}

// Len returns the number of records.
func (s *HashSet[T]) Len() int { return s.n }

// Get returns the record with this hash for which is returns true, or nil.
func (s *HashSet[T]) Get(hash uint64, is func(*T) bool) *T {
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

// Add adds a record that is not in the set.
func (s *HashSet[T]) Add(hash uint64, record *T) {
	if (s.n+1)*8 > len(s.tags)*7 {
		s.resize(max(8, len(s.tags)+len(s.tags)/2))
	}
	s.n++
	s.place(tagOf(hash), record)
}

func (s *HashSet[T]) place(tag uint32, record *T) {
	at := s.homeSlot(tag)
	for s.tags[at] != 0 {
		at = s.slotAfter(at)
	}
	s.tags[at], s.records[at] = tag, record
}

// Remove removes a record, if it is there.
func (s *HashSet[T]) Remove(hash uint64, record *T) {
	s.Take(hash, record)
	if len(s.tags) > 64 && s.n*4 < len(s.tags) {
		s.resize(len(s.tags) / 2)
	}
}

// Take is Remove that keeps the memory of the table.
func (s *HashSet[T]) Take(hash uint64, record *T) {
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

func (s *HashSet[T]) resize(size int) {
	tags, records := s.tags, s.records
	s.tags, s.records = make([]uint32, size), make([]*T, size)
	for at, tag := range tags {
		if tag != 0 {
			s.place(tag, records[at])
		}
	}
}

// All visits the records in no particular order. The set must not change meanwhile.
func (s *HashSet[T]) All() iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for _, record := range s.records {
			if record != nil && !yield(record) {
				return
			}
		}
	}
}

// partitions of a PartitionedSet. A power of two.
const partitions = 64

// PartitionedSet is a HashSet in 64 partitions, so that growing moves only a small part of a
// million records at a time.
type PartitionedSet[T any] struct {
	partitions [partitions]HashSet[T]
}

// Of returns the partition for a hash.
func (s *PartitionedSet[T]) Of(hash uint64) *HashSet[T] { return &s.partitions[hash%partitions] }

// Len returns the number of records.
func (s *PartitionedSet[T]) Len() (n int) {
	for i := range s.partitions {
		n += s.partitions[i].n
	}
	return n
}

// All visits the records in no particular order. The set must not change meanwhile.
func (s *PartitionedSet[T]) All() iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for i := range s.partitions {
			for record := range s.partitions[i].All() {
				if !yield(record) {
					return
				}
			}
		}
	}
}

// Mix is the finalizer of splitmix64: a bijection that spreads every bit.
func Mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
