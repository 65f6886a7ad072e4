package shard

import (
	"bytes"

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
	case q.entry == nil:
		q.acquireNew(m, x)
	case q.entry.waiting:
		q.acquireWaiting(m, x)
	default:
		q.acquireOwned(m, x)
	}
}

// hasUnits says whether the session already owns, or waits with, at least count units. The limit
// may have been lowered below that: it binds new requests, not what the session has.
func (q *request) hasUnits(count uint64) bool { return q.entry != nil && count <= q.entry.count }

// acquireNew serves a session that has no entry on the semaphore.
func (q *request) acquireNew(m *Machine, x *protocol.Acquire) {
	s, p := q.semaphore, q.session
	fits := s == nil || s.waiters.n == 0 && s.fits(x.Count)
	more := entryBytes + uint64(len(x.Data))
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
		s = q.makeSemaphore(m, protocol.Forever, nil, true)
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
		s.owners.insert(e, byOrder)
		s.used += e.count
		m.emitOwnerChange(e, protocol.ChangeOwnerAdded)
		s.countEvent(p.id, countAcquire)
		m.hot.granted(s)
		q.node.measure().Waits.add(0)
		m.replyAnswer(answer{kind: CmdAcquire, state: protocol.Acquired, value: e.orderID})
	} else {
		s.enqueue(e)
		e.scheduleTimeout(m)
		s.countEvent(p.id, countWait)
		m.replyAnswer(answer{kind: CmdAcquire, state: protocol.Accepted, value: e.orderID})
	}
	if p.references() == 1 && !m.atHome(p) {
		p.remoteHeld(m)
	}
}

// acquireOwned serves an owner: it may ask for the same or for less.
func (q *request) acquireOwned(m *Machine, x *protocol.Acquire) {
	s, e := q.semaphore, q.entry
	if x.Count > e.count {
		q.refuse(m, outcomeWantsMore)
		return
	}
	if !m.roomForBytes(q.node, growth(uint64(len(x.Data)), uint64(len(e.data)))) {
		q.refuse(m, outcomeBytesQuota)
		return
	}
	e.rememberOutcome(m, outcomeOK, protocol.Acquired)
	m.touch(e)
	e.seq = q.seq
	lowered, other := x.Count < e.count, !bytes.Equal(e.data, x.Data)
	if lowered {
		m.touch(s)
		s.used -= e.count - x.Count
		e.count = x.Count
	}
	if other {
		e.setData(x.Data)
	}
	m.replyAnswer(answer{kind: CmdAcquire, state: protocol.Acquired, value: e.orderID})
	if lowered || other {
		m.touch(s)
		s.revision = m.applied
		m.emitOwnerChange(e, protocol.ChangeOwnerChanged)
	}
	if lowered {
		s.promote(m)
		m.batch.checkHandOn(s)
	}
}

// acquireWaiting serves a waiter: it may ask for the same or for less, which ends the request it
// waits with.
func (q *request) acquireWaiting(m *Machine, x *protocol.Acquire) {
	s, e := q.semaphore, q.entry
	if x.Count > e.count {
		q.refuse(m, outcomeWaiterMore)
		return
	}
	if (x.Timeout > 0 || s.waiters.first == e && s.fits(x.Count)) &&
		!m.roomForBytes(q.node, growth(uint64(len(x.Data)), uint64(len(e.data)))) {
		q.refuse(m, outcomeBytesQuota)
		return
	}
	granted := s.waiters.first == e && s.fits(x.Count)
	m.emitResult(e, protocol.StatusAborted, 0, textReplaced)
	e.rememberOutcome(m, outcomeAborted, 0)
	if x.Timeout == 0 && !granted {
		q.finish(m, answer{state: protocol.NotAcquired})
		e.release(m)
		return
	}
	m.touch(e)
	m.touch(s)
	e.waitEnded(m, WaitAborted)
	e.seq, e.count, e.timeout, e.since, e.began = q.seq, x.Count, x.Timeout, m.wall, m.logTime
	s.queueChanged()
	if !bytes.Equal(e.data, x.Data) {
		e.setData(x.Data)
	}
	s.revision = m.applied
	if granted {
		m.replyAnswer(answer{kind: CmdAcquire, state: protocol.Acquired, value: e.orderID})
		e.grant(m)
		s.promote(m)
		return
	}
	e.scheduleTimeout(m)
	m.replyAnswer(answer{kind: CmdAcquire, state: protocol.Accepted, value: e.orderID})
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
	q.finish(m, answer{flag: true})
	e.release(m)
}
