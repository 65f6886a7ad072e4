package shard

import (
	"maps"
	"math"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
)

// The fields that a queue adds to the record of a semaphore, and a place to that of an entry, in
// snapshots and in chunks alike. A plain semaphore and a plain entry have records without them, of
// other kinds.

// fields are those of a queue. Starts are by key, in order.
func (q *queue) fields(f *varint.Fields) {
	varint.Byte(f, &q.policy)
	f.Uint(&q.aging, &q.history.rows)
	varint.List(f, &q.weights, protocol.MaxWeights, func(w *protocol.Weight, f *varint.Fields) {
		f.Bytes(&w.Key, protocol.MaxKeyLen)
		f.Uint(&w.Weight)
	})
	f.Bool(&q.late, &q.slots.numbered)
	varint.List(f, &q.slots.list, varint.NoLimit, (*namedSlot).fields)
	f.Uint(&q.fair.virtual)
	f.Bool(&q.fair.hasLast)
	f.Text(&q.fair.last, protocol.MaxKeyLen)
	type start struct {
		key   string
		start uint64
	}
	var starts []start
	if !f.Reading() {
		for _, key := range slices.Sorted(maps.Keys(q.fair.keys)) {
			starts = append(starts, start{key, q.fair.keys[key].start})
		}
	}
	varint.List(f, &starts, varint.NoLimit, func(x *start, f *varint.Fields) {
		f.Text(&x.key, protocol.MaxKeyLen)
		f.Uint(&x.start)
	})
	if f.Reading() {
		q.fair.keys = make(map[string]*fairKey, len(starts))
		for _, x := range starts {
			q.fair.keys[x.key] = &fairKey{start: x.start}
		}
	}
	varint.List(f, &q.history.ended, protocol.MaxHistory, (*hold).fields)
	f.Uint(&q.maxHold)
	f.Bool(&q.extend)
	varint.Byte(f, &q.wanted.mode)
	f.Uint(&q.wanted.grace, &q.wanted.minHold)
}

func (x *namedSlot) fields(f *varint.Fields) {
	f.Text(&x.name, protocol.MaxLabelLen)
	varint.List(f, &x.labels, protocol.MaxLabels, func(s *string, f *varint.Fields) { f.Text(s, protocol.MaxLabelLen) })
	f.Bool(&x.drained, &x.leaving)
	f.Uint(&x.token)
}

func (h *hold) fields(f *varint.Fields) {
	f.Uint(&h.token, &h.session, &h.count, &h.since, &h.until)
	f.Text(&h.description, maxHoldDescription)
	varint.List(f, &h.slots, maxHoldSlots, func(s *string, f *varint.Fields) { f.Text(s, protocol.MaxLabelLen) })
	varint.Byte(f, &h.cause)
}

// fields are those of a place.
func (p *place) fields(f *varint.Fields) {
	varint.Byte(f, &p.level)
	f.Text(&p.key, protocol.MaxKeyLen)
	f.Text(&p.selector, math.MaxUint16)
	varint.Byte(f, &p.flags)
	f.Uint(&p.hold, &p.arrival, &p.until)
	f.Uint(&p.want.granted, &p.want.number, &p.want.until)
	f.Bool(&p.want.known, &p.want.silent)
	varint.List(f, &p.slots, protocol.MaxSlots, func(i *uint32, f *varint.Fields) { f.Uint32(i) })
}

// readQueue reads what a record adds to a semaphore. What cannot be is refused.
func readQueue(r *varint.Reader, limit uint64) (*queue, bool) {
	q := &queue{laneSet: laneSet{places: make(map[*entry]*place)}}
	varint.Decode(r, q.fields)
	names := make(map[string]bool, len(q.slots.list))
	staying := uint64(0)
	for i := range q.slots.list {
		x := &q.slots.list[i]
		if names[x.name] || x.name == "" || !x.leaving && uint64(i) != staying {
			return nil, false
		}
		names[x.name] = true
		if !x.leaving {
			staying++
		}
	}
	o := q.options()
	ok := !r.Failed && q.policy <= protocol.PolicyFair && o.Fit(limit) == "" && (staying == 0 || staying == limit) &&
		(staying > 0 || len(q.slots.list) == 0) && (!q.slots.numbered || staying > 0) &&
		uint64(len(q.history.ended)) <= q.history.rows && slices.IsSortedFunc(q.weights, compareWeights) && (q.late || !q.laned())
	for _, w := range q.weights {
		ok = ok && w.Weight >= 1 && w.Weight <= protocol.MaxWeight
	}
	for _, k := range q.fair.keys {
		ok = ok && k.start <= q.fair.virtual && q.policy == protocol.PolicyFair
	}
	return q, ok && q.fair.virtual <= fairRebased
}

// readPlace reads what a record adds to an entry.
func readPlace(r *varint.Reader, waiting bool) (*place, bool) {
	p := new(place)
	varint.Decode(r, p.fields)
	ok := !r.Failed && p.level <= protocol.MaxPriority && p.flags&^(protocol.AskDeadlock|protocol.KnowsBounds) == 0 &&
		(p.hold == 0 && p.until == 0 || p.knowsBounds())
	if waiting {
		return p, ok && len(p.slots) == 0 && p.until == 0 && p.want == wantState{}
	}
	ok = ok && (p.want.number != 0 || p.want.until == 0 && !p.want.known)
	return p, ok && p.selector == "" && p.arrival == 0 && p.hold == 0
}

// fitsQueue reports whether an entry may have this place, nil for none, in this queue, nil for
// none: slots that are there and that nobody has, as many as its count.
func fitsQueue(q *queue, p *place, waiting bool, count uint64) bool {
	switch {
	case p != nil && p.want != wantState{} && (q == nil || q.wanted.mode == protocol.WantedOff):
		return false
	case q != nil && waiting && q.laned():
		return p != nil && (p.selector == "" || len(q.slots.list) > 0)
	case q == nil, waiting, len(q.slots.list) == 0:
		return p == nil || p.selector == "" && p.arrival == 0 && len(p.slots) == 0
	case p == nil || uint64(len(p.slots)) != count:
		return false
	}
	for k, i := range p.slots {
		if int(i) >= len(q.slots.list) || q.slots.list[i].owner != nil || k > 0 && i <= p.slots[k-1] {
			return false
		}
	}
	return true
}

// dropUnusedKeys forgets keys that turned out to have no waiters. It is called when all entries of a
// record that was read are there; ok says that there was none.
func (q *queue) dropUnusedKeys() (ok bool) {
	ok = true
	for key, k := range q.fair.keys {
		if k.waiters == 0 {
			delete(q.fair.keys, key)
			ok = false
		}
	}
	return ok
}

// mend leaves out what does not fit together in a semaphore with options whose entries are all
// here: keys without waiters, slots that leave without an owner, and waiters that need not wait.
func (q *queue) mend(m *Machine, s *semaphore) {
	m.touch(s)
	q.dropUnusedKeys()
	q.late = q.laned() || q.late && s.waiters.n > 0
	for i := len(q.slots.list) - 1; i >= 0; i-- {
		if x := &q.slots.list[i]; x.leaving && x.owner == nil {
			q.slots.free(m, []uint32{uint32(i)}, q.places)
		}
	}
	for s.waiters.n > 0 {
		e := s.waiters.first
		if q.laned() {
			next, _, fits := q.nextToServe(m, s)
			if e = next; !fits { // what counts as gone is ended when the copy is active
				return
			}
		} else if !s.fits(e.count) {
			return
		}
		m.unschedule(e)
		s.node.removeEntryUsage(e)
		s.dequeue(e)
		e.dropPlace(m)
		p := e.session
		p.dropEntry(e)
		if !p.hasReferences() && !p.ended && !m.atHome(p) {
			p.remoteIdle(m)
		}
	}
}

// slotsFit reports whether owners in a chunk have slots that are there, each its own, as many as
// their counts.
func (c *chunk) slotsFit(m *Machine, x *BucketsBody) bool {
	var slots int     // of the semaphore whose entries come
	var taken slotSet // of them
	fits := true
	c.each(x, func(r *chunkRecord) bool {
		switch r.kind {
		case chunkSemaphore:
			slots = 0
		case chunkQueue:
			slots, taken = len(r.queue.slots.list), newSlotSet(len(r.queue.slots.list))
		case chunkSemaphoreMore: // those of the chunks before have theirs
			slots = 0
			b := &m.buckets[protocol.Bucket(r.node, r.name, uint32(len(m.buckets)))]
			if s := m.semaphores.lookup(b, r.node, r.name); s != nil && s.hasSlots() {
				list := s.rare.queue.slots.list
				slots, taken = len(list), newSlotSet(len(list))
				for i := range list {
					if list[i].owner != nil {
						taken.add(i)
					}
				}
			}
		case chunkEntry:
			fits = r.waiting || slots == 0
		case chunkPlace:
			if fits = r.waiting || slots == 0 && len(r.place.slots) == 0 || uint64(len(r.place.slots)) == r.count; fits {
				for _, i := range r.place.slots {
					if fits = fits && int(i) < slots && !taken.has(int(i)); fits {
						taken.add(int(i))
					}
				}
			}
		}
		return fits
	})
	return fits
}
