package shard

import (
	"bytes"
	"cmp"

	"github.com/signalbox-dev/signalbox/protocol"
)

// applyAcquire sets the units that a session holds or waits for. It is idempotent, never recursive:
// there is one entry per session and semaphore.
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
	case q.overPriority(x.Options):
		q.refuse(m, outcomePriority)
	case s.queue().refusal(&q, x) != outcomeOK:
		q.refuse(m, s.queue().refusal(&q, x))
	case q.entry == nil:
		q.acquireNew(m, x)
	case q.entry.waiting:
		q.acquireWaiting(m, x)
	default:
		q.acquireOwned(m, x)
	}
}

// hasUnits reports whether the session already owns, or waits with, at least count units. The limit
// may have been lowered below that: it binds new requests, not the units held.
func (q *request) hasUnits(count uint64) bool { return q.entry != nil && count <= q.entry.count }

// overPriority reports whether an acquire asks for a higher level than its node allows. The level
// that the session has at the semaphore is not refused, as the node may have been altered since.
func (q *request) overPriority(o *protocol.AcquireOptions) bool {
	most := q.node.config.MaxPriority
	if o == nil || most == 0 || o.Level() <= most {
		return false
	}
	has := uint8(protocol.DefaultPriority)
	if state := q.semaphore.queue(); q.entry != nil && state != nil {
		has, _ = state.level(q.entry)
	}
	return o.Level() > has
}

// acquireNew serves a session that has no entry on the semaphore.
func (q *request) acquireNew(m *Machine, x *protocol.Acquire) {
	s, p := q.semaphore, q.session
	fits := s == nil || s.waiters.n == 0 && s.fits(x.Count)
	var a *asked // nil: the request is plain, and so is the semaphore
	if x.Options != nil || s.queue().laned() {
		a = s.queue().ask(m, q, x, fits)
		fits = a.fits
	}
	more := entryBytes + uint64(len(x.Data)) + a.bytes()
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
	case a.refusal(s.queue(), nil) != outcomeOK:
		q.refuse(m, a.refusal(s.queue(), nil))
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
	if fits {
		ask, slots := a.request(m, e)
		e.own(m, ask, slots)
		e.waited(0)
		replyAcquired(m, e)
	} else {
		s.enqueue(e)
		a.wait(m, e)
		e.scheduleTimeout(m)
		s.countEvent(p.id, countWait)
		replyQueued(m, e)
		s.queue().preempt(m, nil)
	}
	if p.references() == 1 && !m.atHome(p) {
		p.remoteHeld(m)
	}
}

// acquireOwned serves an owner: it may ask for the same or for less, and for more time. Its level and
// key are replaced.
func (q *request) acquireOwned(m *Machine, x *protocol.Acquire) {
	s, e := q.semaphore, q.entry
	if x.Count > e.count {
		q.refuse(m, outcomeWantsMore)
		return
	}
	var r *regrant // nil: the request is plain, and so is the semaphore
	if x.Options != nil || s.queue() != nil {
		var out outcome
		if r, out = regrantOf(m, e, x); out != outcomeOK {
			q.refuse(m, out)
			return
		}
	}
	is, was := r.bytes()
	if !m.roomForBytes(q.node, growth(uint64(len(x.Data))+is, uint64(len(e.data))+was)) {
		q.refuse(m, outcomeBytesQuota)
		return
	}
	e.rememberOutcome(m, outcomeOK, protocol.Acquired)
	m.touch(e)
	e.seq = q.seq
	lowered, other := x.Count < e.count, !bytes.Equal(e.data, x.Data) || r.changes()
	if lowered {
		m.touch(s)
		s.used -= e.count - x.Count
		e.count = x.Count
	}
	if !bytes.Equal(e.data, x.Data) {
		e.setData(x.Data)
	}
	r.apply(m, e)
	replyAcquired(m, e)
	if lowered || other {
		m.touch(s)
		s.revision = m.applied
		m.emitOwnerChange(e, protocol.ChangeOwnerChanged)
	}
	if lowered {
		s.promote(m)
		m.batch.checkHandOff(s)
	} else {
		s.queue().preempt(m, nil) // it may be silent no more, or of another level
	}
}

// acquireWaiting serves a waiter: it may ask for the same or for less, which ends the request it
// waits with. Its level, key and selector are replaced, so it may change its lane; its place and its
// arrival stay.
func (q *request) acquireWaiting(m *Machine, x *protocol.Acquire) {
	s, e := q.semaphore, q.entry
	if x.Count > e.count {
		q.refuse(m, outcomeWaiterMore)
		return
	}
	granted := s.waiters.first == e && s.fits(x.Count)
	var a *asked // nil: the request is plain, and so is the semaphore
	if x.Options != nil || s.queue() != nil {
		a = s.queue().ask(m, q, x, granted)
		granted = a.fits
	}
	stays := granted || x.Timeout > 0
	if out := a.refusal(s.queue(), e); stays && out != outcomeOK {
		q.refuse(m, out)
		return
	}
	if stays && !m.roomForBytes(q.node,
		growth(uint64(len(x.Data))+a.bytes(), uint64(len(e.data))+s.core().EntryBytes(e.orderID))) {
		q.refuse(m, outcomeBytesQuota)
		return
	}
	m.emitResult(e, protocol.StatusAborted, 0, textReplaced)
	e.rememberOutcome(m, outcomeAborted, 0)
	if !stays {
		q.finish(m, answer{state: protocol.NotAcquired})
		e.release(m, protocol.HoldReleased)
		return
	}
	m.touch(e)
	m.touch(s)
	e.waitEnded(m, WaitAborted)
	e.seq, e.count, e.timeout, e.since, e.began = q.seq, x.Count, x.Timeout, m.wall, m.logTime
	a.again(e)
	s.queueChanged()
	if !bytes.Equal(e.data, x.Data) {
		e.setData(x.Data)
	}
	s.revision = m.applied
	if granted {
		a.grant(m, e)
		replyAcquired(m, e)
		s.promote(m)
		return
	}
	e.scheduleTimeout(m)
	replyQueued(m, e)
	if s.queue().laned() {
		s.promote(m) // the waiters behind it
	} else {
		s.queue().preempt(m, nil)
	}
}

// applyRelease gives units back, or leaves the queue.
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
			q.transfer(m, to, slots)
			return
		}
	}
	q.finish(m, answer{flag: true})
	e.release(m, cmp.Or(x.Bound, protocol.HoldReleased))
}
