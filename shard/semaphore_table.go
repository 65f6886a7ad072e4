package shard

import (
	"bytes"
	"fmt"
	"iter"
	"slices"

	"github.com/signalbox-dev/signalbox/shard/container"
)

// semaphoreTable finds semaphores by name, and walks them. Each is in one of two places: an old one
// in its bucket's table and its node's ordered index; one of the newest here. Most ephemeral ones
// go before they are old. So a lock that comes and goes touches memory that is in the processor's
// cache, but for the look into its bucket's table that says that there is none of its name.
//
// The newest are in a ring, and in a table of their own. A new semaphore takes the place of the one
// made maxNewest before it, which becomes an old one if it is still there. Which are in the ring is
// no part of the state and decides nothing.
type semaphoreTable struct {
	ring   []*semaphore                 // nil where one has gone
	next   int                          // the place of the next one
	newest container.HashSet[semaphore] // those in the ring, by hashName
}

// maxNewest fits into semaphore.ringAt and bucket.newestCount. A read of names sorts as many.
const maxNewest = 1024

// add puts a new semaphore into the ring.
func (t *semaphoreTable) add(s *semaphore) {
	if oldest := t.ring[t.next]; oldest != nil {
		hash := oldest.hash()
		t.leaveRing(oldest, hash)
		oldest.bucket.semaphores.Add(hash, oldest)
		oldest.node.semaphores.Insert(oldest, semaphoreLess)
	}
	t.ring[t.next], s.ringAt = s, uint16(t.next)+1
	t.next = (t.next + 1) % len(t.ring)
	t.newest.Add(s.hash(), s)
	s.bucket.newestCount++
}

// remove takes a semaphore out, from wherever it is.
func (t *semaphoreTable) remove(s *semaphore) {
	if s.ringAt == 0 {
		s.bucket.semaphores.Remove(s.hash(), s)
		s.node.semaphores.Remove(s, semaphoreLess)
		return
	}
	t.leaveRing(s, s.hash())
}

func (t *semaphoreTable) leaveRing(s *semaphore, hash uint64) {
	t.ring[s.ringAt-1], s.ringAt = nil, 0
	t.newest.Take(hash, s) // there are many again soon
	s.bucket.newestCount--
}

// lookup finds a semaphore of a bucket. It changes nothing: reads run beside each other.
func (t *semaphoreTable) lookup(b *bucket, node uint64, name []byte) *semaphore {
	hash := container.HashName(node, name)
	is := func(s *semaphore) bool { return s.node.id == node && bytes.Equal(s.name, name) }
	if s := t.newest.Get(hash, is); s != nil {
		return s
	}
	return b.semaphores.Get(hash, is)
}

// allNewest are those in the ring.
func (t *semaphoreTable) allNewest() iter.Seq[*semaphore] {
	return func(yield func(*semaphore) bool) {
		for _, s := range t.ring {
			if s != nil && !yield(s) {
				return
			}
		}
	}
}

// in visits the semaphores of a bucket in no particular order. None may come or go meanwhile.
func (t *semaphoreTable) in(b *bucket) iter.Seq[*semaphore] {
	return func(yield func(*semaphore) bool) {
		for s := range b.semaphores.All() {
			if !yield(s) {
				return
			}
		}
		left := b.newestCount
		if left == 0 {
			return
		}
		for s := range t.allNewest() {
			if s.bucket != b {
				continue
			}
			if left--; !yield(s) || left == 0 {
				return
			}
		}
	}
}

// all visits the semaphores of all buckets, as in does those of one.
func (t *semaphoreTable) all(buckets []bucket) iter.Seq[*semaphore] {
	return func(yield func(*semaphore) bool) {
		for i := range buckets {
			for s := range buckets[i].semaphores.All() {
				if !yield(s) {
					return
				}
			}
		}
		t.allNewest()(yield)
	}
}

// names walks a node's semaphores in order of name, from the first one not below from.
func (t *semaphoreTable) names(n *node, from []byte, yield func(*semaphore) bool) {
	var newest []*semaphore
	if n.semaphoreCount > n.semaphores.Len() {
		for s := range t.allNewest() {
			if s.node == n && bytes.Compare(s.name, from) >= 0 {
				newest = append(newest, s)
			}
		}
		slices.SortFunc(newest, func(a, b *semaphore) int { return bytes.Compare(a.name, b.name) })
	}
	more := true
	n.semaphores.Ascend(func(s *semaphore) bool { return bytes.Compare(s.name, from) < 0 }, func(s *semaphore) bool {
		for more && len(newest) > 0 && semaphoreLess(newest[0], s) {
			more = yield(newest[0])
			newest = newest[1:]
		}
		if more {
			more = yield(s)
		}
		return more
	})
	for more && len(newest) > 0 {
		more = yield(newest[0])
		newest = newest[1:]
	}
}

// check walks the ring, for Check.
func (t *semaphoreTable) check(m *Machine) error {
	counts := make([]uint16, len(m.buckets))
	n := 0
	for at, s := range t.ring {
		if s == nil {
			continue
		}
		n++
		counts[s.bucket.number]++
		if int(s.ringAt) != at+1 || t.lookup(s.bucket, s.node.id, s.name) != s {
			return fmt.Errorf("semaphore %q is in the ring and does not know it, or is not found", s.name)
		}
	}
	if n != t.newest.Len() {
		return fmt.Errorf("the ring has %d semaphores, its table %d", n, t.newest.Len())
	}
	for i := range m.buckets {
		if b := &m.buckets[i]; b.newestCount != counts[i] {
			return fmt.Errorf("bucket %d has %d semaphores in the ring and says %d", i, counts[i], b.newestCount)
		}
	}
	return nil
}
