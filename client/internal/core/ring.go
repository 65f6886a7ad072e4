package core

// ring holds the unanswered requests of a connection by id. Ids rise by one, except that the slot
// of an open id is skipped, and answers come roughly in the order of requests. So a ring, in which
// an id determines its slot, finds a request without hashing and touches little memory. The zero
// value is empty.
//
// Invariant: the slot of an open id is id modulo the ring's length, and at most half of the slots
// are taken.
type ring[T any] struct {
	slots []ringSlot[T]
	last  uint64 // id
	open  int
}

type ringSlot[T any] struct {
	id uint64 // 0: nothing waits here
	of *T     // nil: nobody waits, the answer is still to come
}

const minRingSlots = 8

// Open is how many ids are not answered.
func (r *ring[T]) Open() int { return r.open }

// Last is the id of the last request; 0 if there was none.
func (r *ring[T]) Last() uint64 { return r.last }

// NextID is the id of the next request. It stays the same until Put.
func (r *ring[T]) NextID() uint64 {
	if 2*r.open >= len(r.slots) {
		r.grow()
	}
	mask := uint64(len(r.slots) - 1)
	id := r.last + 1
	for r.slots[id&mask].id != 0 {
		id++
	}
	return id
}

// grow doubles the ring. Ids that were apart modulo its length stay so.
func (r *ring[T]) grow() {
	was := r.slots
	r.slots = make([]ringSlot[T], max(minRingSlots, 2*len(was)))
	for _, s := range was {
		if s.id != 0 {
			r.slots[s.id&uint64(len(r.slots)-1)] = s
		}
	}
}

// Put makes a request wait under the id that NextID has just given, or under one that the
// connection's beginning fixes.
func (r *ring[T]) Put(id uint64, of *T) {
	if 2*r.open >= len(r.slots) {
		r.grow()
	}
	r.slots[id&uint64(len(r.slots)-1)] = ringSlot[T]{id, of}
	r.last = id
	r.open++
}

// slot is the place of an id that is open, or nil.
func (r *ring[T]) slot(id uint64) *ringSlot[T] {
	if id == 0 || len(r.slots) == 0 {
		return nil
	}
	if s := &r.slots[id&uint64(len(r.slots)-1)]; s.id == id {
		return s
	}
	return nil
}

// Find returns the waiter with an id, or nil.
func (r *ring[T]) Find(id uint64) *T {
	if s := r.slot(id); s != nil {
		return s.of
	}
	return nil
}

// Take ends an id that was answered. It returns what waited, nil for nothing.
func (r *ring[T]) Take(id uint64) *T {
	s := r.slot(id)
	if s == nil {
		return nil
	}
	of := s.of
	*s = ringSlot[T]{}
	r.open--
	return of
}

// Abandon takes what waits from an id that stays open; nil if nothing does any more.
func (r *ring[T]) Abandon(id uint64) *T {
	s := r.slot(id)
	if s == nil {
		return nil
	}
	of := s.of
	s.of = nil
	return of
}

// Each visits what waits, oldest first as a rule.
func (r *ring[T]) Each(visit func(id uint64, of *T)) {
	for i := range r.slots {
		if s := r.slots[(r.last+1+uint64(i))&uint64(len(r.slots)-1)]; s.of != nil {
			visit(s.id, s.of)
		}
	}
}
