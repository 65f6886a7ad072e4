package shard

import (
	"bytes"
	"math"

	"github.com/signalbox-dev/signalbox/protocol"
)

// applyAcquire sets what a session holds or waits for. It is idempotent, never recursive: there is
// one entry per session and semaphore.
func applyAcquire(m *Machine, c *rawCommand) {
	x := &m.batch.acquire
	var q request
	if !m.decode(x, c.body) || !m.valid(x) || !q.enter(m, c, &x.Head, x.Name) {
		return
	}
	s := q.semaphore
	switch {
	case s == nil && !x.Ephemeral:
		q.refuse(m, outcomeNoSemaphore)
	case s != nil && s.ephemeral && !x.Ephemeral:
		q.refuse(m, outcomeIsEphemeral)
	case s != nil && !s.ephemeral && x.Ephemeral:
		q.refuse(m, outcomeIsPersistent)
	case s != nil && x.Count > s.limit && !q.hasUnits(x.Count):
		q.refuse(m, outcomeOverLimit)
	case x.Options != nil && q.selectorRefusal(x) != outcomeOK:
		q.refuse(m, q.selectorRefusal(x))
	case (x.Options != nil || s != nil && s.rare != nil) && boundRefusal(&q, x.Options) != outcomeOK:
		q.refuse(m, boundRefusal(&q, x.Options))
	case q.entry == nil:
		q.acquireNew(m, x)
	case q.entry.waiting:
		q.acquireWaiting(m, x)
	default:
		q.acquireOwned(m, x)
	}
}

// hasUnits reports whether the session already owns, or waits with, at least count units. The limit
// may have been lowered below that: it binds new requests, not what the session has.
func (q *request) hasUnits(count uint64) bool { return q.entry != nil && count <= q.entry.count }

// selectorRefusal is why no grant can be made with the labels or names of a request. An owner has
// its slots.
func (q *request) selectorRefusal(x *protocol.Acquire) outcome {
	if len(x.Options.Labels)+len(x.Options.Names) == 0 {
		return outcomeOK
	}
	switch state := q.semaphore.queue(); {
	case state == nil || len(state.slots.list) == 0:
		return outcomeNoSlots
	case q.entry != nil && !q.entry.waiting:
		return outcomeOK
	default:
		admitted := state.slots.admitted(selectorOf(x.Options.Labels, x.Options.Names))
		if uint64(admitted.countIn(nil)) < x.Count {
			return outcomeFewSlots
		}
		return outcomeOK
	}
}

// acquireNew serves a session that has no entry on the semaphore.
func (q *request) acquireNew(m *Machine, x *protocol.Acquire) {
	s, p := q.semaphore, q.session
	fits := s == nil || s.waiters.n == 0 && s.fits(x.Count)
	laned := s != nil && s.hasLanes()
	var want demand
	var slots []uint32
	var asked *place // nil: the request is plain, and so is the semaphore
	if laned || x.Options != nil {
		if want = demandOf(x.Options); laned {
			slots, fits = s.rare.queue.serves(s, &candidate{demand: want, count: x.Count, place: math.MaxUint64,
				arrival: m.bucketTime(s.bucket)})
		}
		asked = q.place(m, want, slots, !fits)
	}
	more := entryBytes + uint64(len(x.Data)) + asked.quotaBytes()
	if s == nil {
		more += semaphoreBytes + uint64(len(q.name))
	}
	switch {
	case !fits && x.Timeout == 0:
		q.finish(m, answer{state: protocol.NotAcquired})
		return
	case p.entries.n >= m.limits.Semaphores:
		q.refuse(m, outcomeHeldLimit)
		return
	case !fits && s.waiters.n >= m.limits.Waiters:
		q.refuse(m, outcomeWaitersLimit)
		return
	case !fits && laned && !s.rare.queue.hasLaneFor(want, nil):
		q.refuse(m, outcomeLanesLimit)
		return
	case s == nil && !m.roomForName(q.node):
		q.refuse(m, outcomeQuota)
		return
	case !fits && !m.roomForWaiter(q.node):
		q.refuse(m, outcomeWaitersQuota)
		return
	case !m.roomForBytes(q.node, more):
		q.refuse(m, outcomeBytesQuota)
		return
	case s == nil:
		s = q.makeSemaphore(m, protocol.Forever, nil, true, nil)
	}
	m.touch(s)
	q.bucket.orderCounter++
	e := m.spares.newEntry()
	*e = entry{
		semaphore: s, session: p, orderID: q.bucket.orderCounter, count: x.Count, seq: q.seq, timeout: x.Timeout,
		since: m.wall, began: m.logTime,
		data: cloneOrNil(x.Data), waiting: !fits, snapMark: m.snapMark,
	}
	p.addEntry(e)
	q.node.addEntryUsage(e)
	s.revision = m.applied
	switch {
	case fits && laned:
		s.rare.queue.granted(e, want, slots, s.rare.queue.tag(want, e.count))
	case asked != nil:
		e.setPlace(asked)
	}
	if fits {
		e.own(m)
		e.waited(0)
		replyAcquired(m, e)
	} else {
		s.enqueue(e)
		e.scheduleTimeout(m)
		s.countEvent(p.id, countWait)
		replyAccepted(m, e)
		if s.rare != nil {
			updateWanted(m, s)
		}
	}
	if p.references() == 1 && !m.atHome(p) {
		p.remoteHeld(m)
	}
}

// place is what an entry with this demand has beyond a plain one, nil for nothing: a waiter, or an
// owner of these slots. A waiter that asks again keeps its arrival.
func (q *request) place(m *Machine, want demand, slots []uint32, waiting bool) *place {
	if waiting && q.semaphore.hasLanes() {
		p := &place{demand: want, arrival: m.bucketTime(q.semaphore.bucket)}
		if q.entry != nil {
			p.arrival = q.entry.place().arrival
		}
		return p
	}
	want.selector = ""
	if want == plainDemand && len(slots) == 0 {
		return nil
	}
	return &place{demand: want, slots: slots}
}

// acquireOwned serves an owner: it may ask for the same or for less, and for more time. Its level and
// key are replaced.
func (q *request) acquireOwned(m *Machine, x *protocol.Acquire) {
	s, e, want := q.semaphore, q.entry, demandOf(x.Options)
	want.hold = 0
	if x.Count > e.count {
		q.refuse(m, outcomeWantsMore)
		return
	}
	was := e.place()
	var kept, given []uint32
	if was != nil && len(was.slots) > 0 {
		var ok bool
		if kept, given, ok = s.rare.queue.slots.split(was, want.selector, x.Count); !ok {
			q.refuse(m, outcomeOtherSlots)
			return
		}
	}
	next := q.place(m, want, kept, false)
	if was != nil && was.want != (wantState{}) {
		if next == nil {
			next = &place{demand: want}
		}
		if next.want = was.want; x.Options != nil {
			next.want.says(x.Options.Known)
		}
	}
	if !m.roomForBytes(q.node, growth(uint64(len(x.Data))+next.quotaBytes(), uint64(len(e.data))+was.quotaBytes())) {
		q.refuse(m, outcomeBytesQuota)
		return
	}
	e.rememberOutcome(m, outcomeOK, protocol.Acquired)
	m.touch(e)
	e.seq = q.seq
	lowered, other := x.Count < e.count, !bytes.Equal(e.data, x.Data) || e.demand() != next.asked()
	if lowered {
		m.touch(s)
		s.used -= e.count - x.Count
		e.count = x.Count
	}
	if !bytes.Equal(e.data, x.Data) {
		e.setData(x.Data)
	}
	if next != nil || was != nil {
		if was != nil && was.until != 0 {
			next.until = extendedBound(m, q, x.Options.Hold)
		}
		e.setPlace(next)
		scheduleBound(m, e)
		if len(given) > 0 {
			s.rare.queue.slots.free(m, given, s.rare.queue.places)
		}
	}
	replyAcquired(m, e)
	if lowered || other {
		m.touch(s)
		s.revision = m.applied
		m.emitOwnerChange(e, protocol.ChangeOwnerChanged)
	}
	if lowered {
		s.promote(m)
		m.batch.checkHandOn(s)
	} else if s.rare != nil {
		updateWanted(m, s) // it may be silent no more, or of another level
	}
}

// acquireWaiting serves a waiter: it may ask for the same or for less, which ends the request it
// waits with. Its level, key and selector are replaced, so it may change its lane; its place and its
// arrival stay.
func (q *request) acquireWaiting(m *Machine, x *protocol.Acquire) {
	s, e, want := q.semaphore, q.entry, demandOf(x.Options)
	if x.Count > e.count {
		q.refuse(m, outcomeWaiterMore)
		return
	}
	granted := s.waiters.first == e && s.fits(x.Count)
	var slots []uint32
	laned := s.hasLanes()
	if laned {
		slots, granted = s.rare.queue.serves(s, &candidate{demand: want, count: x.Count, place: e.orderID,
			arrival: e.place().arrival, entry: e})
	}
	asked := q.place(m, want, slots, !granted)
	stays := granted || x.Timeout > 0
	if !granted && stays && laned && !s.rare.queue.hasLaneFor(want, e) {
		q.refuse(m, outcomeLanesLimit)
		return
	}
	if stays && !m.roomForBytes(q.node,
		growth(uint64(len(x.Data))+asked.quotaBytes(), uint64(len(e.data))+e.place().quotaBytes())) {
		q.refuse(m, outcomeBytesQuota)
		return
	}
	m.emitResult(e, protocol.StatusAborted, 0, textReplaced)
	e.rememberOutcome(m, outcomeAborted, 0)
	if !stays {
		q.finish(m, answer{state: protocol.NotAcquired})
		e.release(m)
		return
	}
	m.touch(e)
	m.touch(s)
	e.waitEnded(m, WaitAborted)
	e.seq, e.count, e.timeout, e.since, e.began = q.seq, x.Count, x.Timeout, m.wall, m.logTime
	if laned {
		s.rare.queue.rejoin(e, want)
	} else {
		e.setPlace(asked)
	}
	s.queueChanged()
	if !bytes.Equal(e.data, x.Data) {
		e.setData(x.Data)
	}
	s.revision = m.applied
	switch {
	case granted && laned:
		e.grantSlots(m, slots)
		replyAcquired(m, e)
		s.promote(m)
	case granted:
		e.grant(m)
		replyAcquired(m, e)
		s.promote(m)
	default:
		e.scheduleTimeout(m)
		replyAccepted(m, e)
		if laned {
			s.promote(m) // those that stood behind it
		} else if s.rare != nil {
			updateWanted(m, s)
		}
	}
}

// applyRelease gives back what is held, or leaves the queue.
func applyRelease(m *Machine, c *rawCommand) {
	x := &m.batch.release
	var q request
	if !m.decode(x, c.body) || !m.valid(x) || !q.enter(m, c, &x.Head, x.Name) {
		return
	}
	e := q.entry
	if e == nil || x.OrderID != 0 && x.OrderID != e.orderID {
		q.finish(m, answer{})
		return
	}
	if e.waiting {
		m.emitResult(e, protocol.StatusAborted, 0, textReleased)
		e.rememberOutcome(m, outcomeAborted, 0)
	} else {
		e.rememberOutcome(m, outcomeOK, protocol.Acquired)
	}
	if x.To != 0 {
		if to, slots := q.heir(m, x.To); to != nil {
			q.finish(m, answer{flag: true, value: 1})
			q.handOver(m, to, slots)
			return
		}
	}
	q.finish(m, answer{flag: true})
	e.release(m)
}
