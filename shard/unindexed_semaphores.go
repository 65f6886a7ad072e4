package shard

import (
	"bytes"
	"iter"
	"slices"
)

// unindexedSemaphores holds the semaphores made last, which are not in their node's ordered index
// yet: most ephemeral ones live too short a time to be worth the insertion. A read that walks names
// merges them in. It is a ring: a new semaphore takes the place of the one made maxRecent before
// it, which moves to its node's index if it is still there.
type unindexedSemaphores struct {
	slots []*semaphore // nil where one has gone
	next  int          // the slot of the next one
}

const maxRecent = 1024

// add puts a new semaphore into the ring.
func (y *unindexedSemaphores) add(s *semaphore) {
	if oldest := y.slots[y.next]; oldest != nil {
		y.remove(oldest)
		oldest.node.semaphores.insert(oldest, semaphoreLess)
	}
	y.slots[y.next], s.recentAt = s, uint16(y.next)+1
	y.next = (y.next + 1) % len(y.slots)
}

// remove takes a semaphore out of the ring, or of its node's index.
func (y *unindexedSemaphores) remove(s *semaphore) {
	if s.recentAt == 0 {
		s.node.semaphores.remove(s, semaphoreLess)
		return
	}
	y.slots[s.recentAt-1], s.recentAt = nil, 0
}

func (y *unindexedSemaphores) all() iter.Seq[*semaphore] {
	return func(yield func(*semaphore) bool) {
		for _, s := range y.slots {
			if s != nil && !yield(s) {
				return
			}
		}
	}
}

// names walks a node's semaphores in order of name, those in the ring included, from the first one
// not below from.
func (y *unindexedSemaphores) names(n *node, from []byte, yield func(*semaphore) bool) {
	var recent []*semaphore
	if n.semaphoreCount > n.semaphores.n {
		for s := range y.all() {
			if s.node == n && bytes.Compare(s.name, from) >= 0 {
				recent = append(recent, s)
			}
		}
		slices.SortFunc(recent, func(a, b *semaphore) int { return bytes.Compare(a.name, b.name) })
	}
	more := true
	n.semaphores.ascend(func(s *semaphore) bool { return bytes.Compare(s.name, from) < 0 }, func(s *semaphore) bool {
		for more && len(recent) > 0 && semaphoreLess(recent[0], s) {
			more = yield(recent[0])
			recent = recent[1:]
		}
		if more {
			more = yield(s)
		}
		return more
	})
	for more && len(recent) > 0 {
		more = yield(recent[0])
		recent = recent[1:]
	}
}
