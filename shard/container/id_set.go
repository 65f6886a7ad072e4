package container

import "iter"

// Identified is a record with an id, which must not change while it is in a set.
type Identified[T any] interface {
	*T
	Key() uint64
}

// IDSet is a HashSet of records by their ids: for one connection's sessions. The zero value is empty.
type IDSet[T any, P Identified[T]] struct{ set HashSet[T] }

// IDTable is an IDSet in 64 partitions, for all sessions of a shard or an instance.
type IDTable[T any, P Identified[T]] struct {
	set PartitionedSet[T]
	n   int
}

func getID[T any, P Identified[T]](s *HashSet[T], id, hash uint64) *T {
	return s.Get(hash, func(x *T) bool { return P(x).Key() == id })
}

func putID[T any, P Identified[T]](s *HashSet[T], x *T, hash uint64) (old *T) {
	if old = getID[T, P](s, P(x).Key(), hash); old != nil {
		s.Take(hash, old)
	}
	s.Add(hash, x)
	return old
}

func removeID[T any, P Identified[T]](s *HashSet[T], id, hash uint64) (old *T) {
	if old = getID[T, P](s, id, hash); old != nil {
		s.Remove(hash, old)
		if s.n == 0 {
			*s = HashSet[T]{}
		}
	}
	return old
}

// Len returns the number of records.
func (s *IDSet[T, P]) Len() int { return s.set.Len() }

// Get returns the record with an id, or nil.
func (s *IDSet[T, P]) Get(id uint64) *T { return getID[T, P](&s.set, id, HashID(id)) }

// Put adds a record, and returns the one that it replaces.
func (s *IDSet[T, P]) Put(x *T) (old *T) { return putID[T, P](&s.set, x, HashID(P(x).Key())) }

// Remove removes the record with an id, and returns it.
func (s *IDSet[T, P]) Remove(id uint64) (old *T) { return removeID[T, P](&s.set, id, HashID(id)) }

// All visits the records in no particular order. The set must not change meanwhile.
func (s *IDSet[T, P]) All() iter.Seq[*T] { return s.set.All() }

// Len returns the number of records.
func (s *IDTable[T, P]) Len() int { return s.n }

// Get returns the record with an id, or nil.
func (s *IDTable[T, P]) Get(id uint64) *T {
	hash := HashID(id)
	return getID[T, P](s.set.Of(hash), id, hash)
}

// Put adds a record, and returns the one that it replaces.
func (s *IDTable[T, P]) Put(x *T) (old *T) {
	hash := HashID(P(x).Key())
	if old = putID[T, P](s.set.Of(hash), x, hash); old == nil {
		s.n++
	}
	return old
}

// Remove removes the record with an id, and returns it.
func (s *IDTable[T, P]) Remove(id uint64) (old *T) {
	hash := HashID(id)
	if old = removeID[T, P](s.set.Of(hash), id, hash); old != nil {
		s.n--
	}
	return old
}

// All visits the records in no particular order. The table must not change meanwhile.
func (s *IDTable[T, P]) All() iter.Seq[*T] { return s.set.All() }
