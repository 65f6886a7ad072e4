package shard

// youngList holds the semaphores made last, which are not in their node's ordered index yet: most ephemeral ones live too short a time to be worth the
// insertion. A read that walks names merges the list in.
type youngList struct {
	first, last *semaphore
	n, max      int
}

const maxYoung = 512

// add puts a new semaphore on the list; the oldest moves to its node's index when the list is full.
func (y *youngList) add(s *semaphore) {
	if y.n >= y.max {
		oldest := y.first
		y.remove(oldest)
		oldest.node.semaphores.insert(oldest, semaphoreLess)
	}
	s.young, s.youngPrev = true, y.last
	if y.last == nil {
		y.first = s
	} else {
		y.last.youngNext = s
	}
	y.last = s
	y.n++
}

// remove takes a semaphore off the list, or out of its node's index.
func (y *youngList) remove(s *semaphore) {
	if !s.young {
		s.node.semaphores.remove(s, semaphoreLess)
		return
	}
	if s.youngPrev == nil {
		y.first = s.youngNext
	} else {
		s.youngPrev.youngNext = s.youngNext
	}
	if s.youngNext == nil {
		y.last = s.youngPrev
	} else {
		s.youngNext.youngPrev = s.youngPrev
	}
	s.young, s.youngPrev, s.youngNext = false, nil, nil
	y.n--
}
