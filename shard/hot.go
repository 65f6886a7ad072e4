package shard

// A machine may have millions of semaphores, and metrics show a thousand. Two small sets find those
// that matter without a walk over all: a node's contended semaphores, which are exact, and a sample
// of those that are granted often. Neither is part of the state.

const (
	// hotSlots is how many semaphores the sample of often granted ones has.
	hotSlots = 512
	// hotPeriod is how many grants there are, on average, for one that is looked at. A semaphore
	// with one in a thousand of all grants is found within some hundred thousand.
	hotPeriod = 64
	// hotSteps bounds the search for a slot.
	hotSteps = 8
)

// hotSample holds semaphores that were granted lately, by sampling: one that is sampled again
// before the hand comes by stays.
type hotSample struct {
	left  uint32 // grants until one is looked at
	draws uint64
	hand  int
	slots []*semaphore
}

// granted counts a grant. The distance from one that is looked at to the next varies, so that no
// rhythm of the clients hides a semaphore.
func (h *hotSample) granted(s *semaphore) {
	if h.left > 0 {
		h.left--
		return
	}
	h.draws++
	h.left = uint32(mix(h.draws) % (2 * hotPeriod))
	h.add(s)
}

func (h *hotSample) add(s *semaphore) {
	switch {
	case s.hotAt > 0:
		s.hotAgain = true
		return
	case len(h.slots) < hotSlots:
		h.slots = append(h.slots, s)
		s.hotAt = uint16(len(h.slots))
		return
	}
	for range hotSteps {
		at := h.slots[h.hand]
		if at == nil || !at.hotAgain {
			break
		}
		at.hotAgain = false
		h.hand = (h.hand + 1) % hotSlots
	}
	if at := h.slots[h.hand]; at != nil {
		at.hotAt, at.hotAgain = 0, false
	}
	h.slots[h.hand], s.hotAt = s, uint16(h.hand+1)
	h.hand = (h.hand + 1) % hotSlots
}

// remove forgets a semaphore that goes.
func (h *hotSample) remove(s *semaphore) {
	if s.hotAt > 0 {
		h.slots[s.hotAt-1], s.hotAt, s.hotAgain = nil, 0, false
	}
}

// SemaphoreLoad is how a semaphore is used.
type SemaphoreLoad struct {
	Node       uint64
	Name       []byte // aliases the machine's memory, which is never changed in place
	Limit      uint64
	Used       uint64 // units
	Owners     int
	Waiters    int
	OldestWait uint64 // ms that the first waiter has waited; 0 without one
	Acquires   uint64 // as in CounterRow
	Waits      uint64
	Releases   uint64
	Stuck      bool
}

// load is the semaphore as it is at this log time.
func (m *Machine) load(s *semaphore, now uint64) SemaphoreLoad {
	l := SemaphoreLoad{
		Node: s.node.id, Name: s.name, Limit: s.limit, Used: s.used, Owners: s.owners.n, Waiters: s.waiters.n,
		Acquires: s.counters.acquires, Waits: s.counters.waits, Releases: s.counters.releases, Stuck: s.stuck,
	}
	if e := s.waiters.first; e != nil {
		l.OldestWait = m.waited(e, now)
	}
	return l
}

// waited is elapsed at a log time that is not in the log yet.
func (m *Machine) waited(e *entry, now uint64) uint64 {
	if e.began != 0 {
		return now - min(e.began, now)
	}
	return m.elapsed(e)
}

// Contended yields the semaphores of a node that somebody waits for, in no order, from place from
// on, at most n of them. It returns the place behind the last, and whether there are more. Between
// two calls the order changes: a semaphore may come twice, or not at all. now is the log time.
func (m *Machine) Contended(node uint64, from, n int, now uint64, yield func(SemaphoreLoad)) (next int, more bool) {
	x := m.nodes[node]
	if x == nil || from >= len(x.queues.heap) {
		return from, false
	}
	end := min(from+n, len(x.queues.heap))
	for i := range x.queues.heap[from:end] {
		s := x.queues.heap[from+i].record
		if s.bucket.state == bucketActive {
			yield(m.load(s, now))
		}
	}
	return end, end < len(x.queues.heap)
}

// Hot yields semaphores that are granted often, in no order: a sample, see hotSample.
func (m *Machine) Hot(now uint64, yield func(SemaphoreLoad)) {
	for _, s := range m.hot.slots {
		if s != nil && !s.node.dropped && s.bucket.state == bucketActive {
			yield(m.load(s, now))
		}
	}
}

// SemaphoresFrom yields the semaphores of a node in order of name, from name on, at most n of them;
// more: there is another, whose name is next.
func (m *Machine) SemaphoresFrom(
	node uint64, name []byte, n int, now uint64, yield func(SemaphoreLoad),
) (next []byte, more bool) {
	x := m.nodes[node]
	if x == nil {
		return nil, false
	}
	m.names(x, name, func(s *semaphore) bool {
		if n--; n < 0 {
			next, more = s.name, true
			return false
		}
		if s.bucket.state == bucketActive {
			yield(m.load(s, now))
		}
		return true
	})
	return next, more
}
