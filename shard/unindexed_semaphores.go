package shard

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
