package client

// callRing holds the unanswered requests of a connection by id. Ids rise by one, except that the
// slot of an open id is skipped, and answers come roughly in the order of requests. So a ring, in
// which an id determines its slot, finds a call without hashing and touches little memory.
//
// Invariant: the slot of an open id is id modulo the ring's length, and at most half of the slots
// are taken.
type callRing struct {
	ring    []callSlot
	last    uint64 // id
	pending int
}

type callSlot struct {
	id uint64 // 0: nothing waits here
	cl *call  // nil: its caller has gone, the answer is still to come
}

const minCallSlots = 8

func newCallRing() callRing { return callRing{ring: make([]callSlot, minCallSlots)} }

// nextID is the id of the next request. It stays the same until put.
func (c *callRing) nextID() uint64 {
	if 2*c.pending >= len(c.ring) {
		c.grow()
	}
	mask := uint64(len(c.ring) - 1)
	id := c.last + 1
	for c.ring[id&mask].id != 0 {
		id++
	}
	return id
}

// grow doubles the ring. Ids that were apart modulo its length stay so.
func (c *callRing) grow() {
	was := c.ring
	c.ring = make([]callSlot, max(minCallSlots, 2*len(was)))
	for _, o := range was {
		if o.id != 0 {
			c.ring[o.id&uint64(len(c.ring)-1)] = o
		}
	}
}

// put makes a call wait under the id that nextID has just given.
func (c *callRing) put(id uint64, cl *call) {
	c.ring[id&uint64(len(c.ring)-1)] = callSlot{id, cl}
	c.last = id
	c.pending++
}

// find is the place of an id that is open, or nil.
func (c *callRing) find(id uint64) *callSlot {
	if id == 0 || len(c.ring) == 0 {
		return nil
	}
	if o := &c.ring[id&uint64(len(c.ring)-1)]; o.id == id {
		return o
	}
	return nil
}

// take ends an id that was answered. It gives the call, nil if nobody waits.
func (c *callRing) take(id uint64) *call {
	o := c.find(id)
	if o == nil {
		return nil
	}
	cl := o.cl
	*o = callSlot{}
	c.pending--
	return cl
}

// abandon takes the call from an id that stays open; nil if it has none any more.
func (c *callRing) abandon(id uint64) *call {
	o := c.find(id)
	if o == nil {
		return nil
	}
	cl := o.cl
	o.cl = nil
	return cl
}

func (c *callRing) each(visit func(id uint64, cl *call)) {
	for _, o := range c.ring {
		if o.cl != nil {
			visit(o.id, o.cl)
		}
	}
}
