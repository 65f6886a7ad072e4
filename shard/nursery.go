package shard

// nursery holds the semaphores made last, which are not in their node's ordered index yet: most
// ephemeral ones live too short a time to be worth the insertion. A read that walks names merges
// the list in.
type nursery struct {
	first, last *semaphore
	n, max      int
}

const maxNursery = 512

// add puts a new semaphore on the list; the oldest moves to its node's index when the list is full.
func (y *nursery) add(s *semaphore) {
	if y.n >= y.max {
		oldest := y.first
		y.remove(oldest)
		oldest.node.semaphores.insert(oldest, semaphoreLess)
	}
	s.inNursery, s.nurseryPrev = true, y.last
	if y.last == nil {
		y.first = s
	} else {
		y.last.nurseryNext = s
	}
	y.last = s
	y.n++
}

// remove takes a semaphore off the list, or out of its node's index.
func (y *nursery) remove(s *semaphore) {
	if !s.inNursery {
		s.node.semaphores.remove(s, semaphoreLess)
		return
	}
	if s.nurseryPrev == nil {
		y.first = s.nurseryNext
	} else {
		s.nurseryPrev.nurseryNext = s.nurseryNext
	}
	if s.nurseryNext == nil {
		y.last = s.nurseryPrev
	} else {
		s.nurseryNext.nurseryPrev = s.nurseryPrev
	}
	s.inNursery, s.nurseryPrev, s.nurseryNext = false, nil, nil
	y.n--
}
