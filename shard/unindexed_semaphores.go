package shard

import (
	"bytes"
	"slices"
)

// unindexedSemaphores holds the semaphores made last, which are not in their node's ordered index
// yet: most ephemeral ones live too short a time to be worth the insertion. A read that walks names
// merges the list in.
type unindexedSemaphores struct {
	first, last *semaphore
	n, max      int
}

const maxRecent = 512

// add puts a new semaphore on the list; the oldest moves to its node's index when the list is full.
func (y *unindexedSemaphores) add(s *semaphore) {
	if y.n >= y.max {
		oldest := y.first
		y.remove(oldest)
		oldest.node.semaphores.insert(oldest, semaphoreLess)
	}
	s.isRecent, s.recentPrev = true, y.last
	if y.last == nil {
		y.first = s
	} else {
		y.last.recentNext = s
	}
	y.last = s
	y.n++
}

// remove takes a semaphore off the list, or out of its node's index.
func (y *unindexedSemaphores) remove(s *semaphore) {
	if !s.isRecent {
		s.node.semaphores.remove(s, semaphoreLess)
		return
	}
	if s.recentPrev == nil {
		y.first = s.recentNext
	} else {
		s.recentPrev.recentNext = s.recentNext
	}
	if s.recentNext == nil {
		y.last = s.recentPrev
	} else {
		s.recentNext.recentPrev = s.recentPrev
	}
	s.isRecent, s.recentPrev, s.recentNext = false, nil, nil
	y.n--
}

// names walks a node's semaphores in order of name, those on the list included, from the first one
// not below from.
func (y *unindexedSemaphores) names(n *node, from []byte, yield func(*semaphore) bool) {
	var recent []*semaphore
	if n.semaphoreCount > n.semaphores.n {
		for s := y.first; s != nil; s = s.recentNext {
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
