package shard

import (
	"bytes"
	"math/big"

	"github.com/signalbox-dev/signalbox/protocol"
)

func (m *model) acquire(o op, x *protocol.Acquire) {
	if badHead(x.Head, x.Name) || x.Count == 0 || x.Timeout > 24*60*60*1000 && x.Timeout != ^uint64(0) ||
		len(x.Data) > mebibyte || x.Options != nil && x.Validate() != nil {
		m.reply(protocol.StatusBadRequest)
		return
	}
	s := m.request(o, x.Head, x.Name)
	if s == nil {
		return
	}
	sem := m.sem(o.node, x.Name)
	switch {
	case sem == nil && !x.Ephemeral:
		m.refuse(s, o, x.Seq, protocol.StatusNotFound)
		return
	case sem != nil && sem.ephemeral != x.Ephemeral:
		m.countRule("acquire of another kind of semaphore")
		m.refuse(s, o, x.Seq, protocol.StatusPreconditionFailed)
		return
	}
	var row *modelEntry
	if sem != nil {
		row = sem.entryOf(s)
	}
	if sem != nil && x.Count > sem.limit {
		if row == nil || x.Count > row.count {
			m.countRule("acquire above the limit")
			m.refuse(s, o, x.Seq, protocol.StatusBadRequest)
			return
		}
		if row.owner {
			m.countRule("owner above a lowered limit asks for the same or less")
		} else {
			m.countRule("waiter above a lowered limit asks for the same or less")
		}
	}
	if cap, ask := m.node(o.node).config.MaxPriority, askOf(x).level; cap != 0 && ask > cap &&
		(row == nil || ask > row.ask.level) {
		m.countRule("priority above the node's")
		m.refuse(s, o, x.Seq, protocol.StatusBadRequest)
		return
	}
	if sem != nil {
		if st := m.selectorRefused(sem, row, askOf(x), x.Count); st != protocol.StatusOK {
			m.refuse(s, o, x.Seq, st)
			return
		}
	}
	if st := m.boundRefused(sem, row, x.Options); st != protocol.StatusOK {
		m.refuse(s, o, x.Seq, st)
		return
	}
	switch {
	case row == nil:
		m.acquireNew(s, sem, o, x)
	case row.owner:
		m.acquireOwned(sem, row, o, x)
	default:
		m.acquireWaiting(sem, row, o, x)
	}
}

func (m *model) acquireNew(s *modelSession, sem *modelSemaphore, o op, x *protocol.Acquire) {
	granted := sem == nil || sem.head() == nil && sem.fits(x.Count)
	ask := &modelEntry{session: s, order: ^uint64(0), count: x.Count, ask: askOf(x)}
	var slots []*modelSlot
	if sem != nil && sem.laned() {
		ask.arrival = m.now
		slots, granted = m.serves(sem, ask, sem.waiting())
		if granted && sem.head() != nil {
			m.countRule("granted at once past waiters")
		}
	} else if sem != nil && sem.head() != nil && sem.fits(x.Count) {
		m.countRule("small acquire behind a large head")
	}
	more := 256 + len(x.Data)
	if sem != nil {
		more += m.askedBytes(sem, ask, slots, granted)
	}
	if sem == nil {
		more += 512 + len(x.Name) + m.askedBytes(&modelSemaphore{}, ask, nil, true)
	}
	held := 0
	for _, other := range m.sems {
		if other.entryOf(s) != nil {
			held++
		}
	}
	switch {
	case !granted && x.Timeout == 0:
		m.countRule("not acquired at once")
		m.answer(s, o, x.Seq, Event{State: protocol.NotAcquired})
		return
	case held >= m.limits.Semaphores || !granted && sem.waiters() >= m.limits.Waiters:
		m.countRule("limit of entries or waiters")
		m.refuse(s, o, x.Seq, protocol.StatusOverloaded)
		return
	case sem == nil && len(m.byName(o.node)) >= m.share(m.node(o.node).config.MaxSemaphores):
		m.countRule("quota of semaphores, ephemeral")
		m.refuse(s, o, x.Seq, protocol.StatusPreconditionFailed)
		return
	case !granted && m.waiting(o.node) >= m.share(m.node(o.node).config.MaxWaiters):
		m.countRule("quota of waiters")
		m.refuse(s, o, x.Seq, protocol.StatusOverloaded)
		return
	case m.full(o.node, more):
		m.refuse(s, o, x.Seq, protocol.StatusPreconditionFailed)
		return
	case sem == nil:
		sem = m.make(o.node, x.Name, ^uint64(0), nil, true)
	}
	wasIdle := m.idle(s)
	b := m.bucketOf(sem)
	m.orders[b]++
	r := ask
	r.order, r.seq, r.since, r.data = m.orders[b], x.Seq, m.wall, bytes.Clone(x.Data)
	sem.revision = m.index
	m.setTimeout(r, x.Timeout)
	if granted {
		if sem.laned() {
			tag := new(big.Int)
			if sem.queue.o.Policy == protocol.PolicyFair {
				tag = sem.tag(r)
			}
			sem.entries = append(sem.entries, r)
			m.granted(sem, r, slots, tag)
		} else {
			sem.entries = append(sem.entries, r)
		}
		m.grant(sem, r)
		m.emit(Event{Kind: EventReply, Command: m.command, State: protocol.Acquired, OrderID: r.order, Grant: m.grantOf(sem, r)})
	} else {
		sem.entries = append(sem.entries, r)
		sem.joins(r.ask.key)
		m.count(sem, r, 1)
		m.emit(Event{Kind: EventReply, Command: m.command, State: protocol.Queued, OrderID: r.order,
			Grant: m.grantOf(sem, r)})
		m.updatePreempted(sem, nil)
	}
	if wasIdle && !s.home {
		m.emit(Event{Kind: EventRemoteHeld, Session: s.id, Node: s.node, Epoch: s.epoch})
	}
}

// askedBytes is what a request counts beyond a plain one, as it would wait or own.
func (m *model) askedBytes(sem *modelSemaphore, r *modelEntry, slots []*modelSlot, granted bool) int {
	as := *r
	if as.owner = granted; granted {
		as.ask.labels, as.ask.names = "", ""
	}
	sum := sem.placeBytes(&as)
	if len(slots) > 0 {
		sum = 128 + 4*len(slots) + len(as.ask.key)
	}
	return sum
}

func (m *model) setTimeout(r *modelEntry, timeout uint64) {
	r.timeout, r.timed, r.deadline = timeout, timeout != ^uint64(0), m.now+timeout
}

func (m *model) acquireOwned(sem *modelSemaphore, r *modelEntry, o op, x *protocol.Acquire) {
	if x.Count > r.count {
		m.countRule("owner asks for more")
		m.refuse(r.session, o, x.Seq, protocol.StatusBadRequest)
		return
	}
	ask := askOf(x)
	given, ok := m.kept(sem, r, ask, x.Count)
	if !ok {
		m.countRule("owner asks with other slots")
		m.refuse(r.session, o, x.Seq, protocol.StatusBadRequest)
		return
	}
	hold := ask.hold
	ask.labels, ask.names, ask.hold = "", "", 0
	as := *r
	as.ask = ask
	now := m.askedBytes(sem, &as, sem.slotsOf(r)[len(given):], true)
	if m.full(o.node, len(x.Data)+now-len(r.data)-sem.placeBytes(r)) {
		m.countRule("owner's data beyond the quota of bytes")
		m.refuse(r.session, o, x.Seq, protocol.StatusPreconditionFailed)
		return
	}
	if x.Count < r.count && sem.head() != nil {
		m.countRule("owner asks for less, and others wait")
	}
	m.recall(r, Event{State: protocol.Acquired, OrderID: r.order})
	changed := x.Count != r.count || !bytes.Equal(x.Data, r.data) || r.ask != ask
	r.seq, r.count, r.data, r.ask = x.Seq, x.Count, bytes.Clone(x.Data), ask
	sem.give(given)
	m.extend(sem, r, hold)
	if x.Options != nil && x.Options.Known != 0 {
		switch {
		case r.want.silent:
			m.countRule("silent owner answers")
			fallthrough
		case x.Options.Known == r.want.number:
			m.countRule("owner knows its preemption")
		default:
			m.countRule("owner knows another preemption")
		}
		r.want.silent = false
		r.want.known = r.want.known || x.Options.Known == r.want.number
	}
	m.emit(Event{Kind: EventReply, Command: m.command, State: protocol.Acquired, OrderID: r.order, Grant: m.grantOf(sem, r)})
	if changed {
		m.change(sem, protocol.SemaphoreChange{Kind: protocol.ChangeOwnerChanged, Owner: sem.asOwner(r)})
	}
	m.process(sem)
}

func (m *model) acquireWaiting(sem *modelSemaphore, r *modelEntry, o op, x *protocol.Acquire) {
	s := r.session
	if x.Count > r.count {
		m.countRule("waiter asks for more")
		m.refuse(s, o, x.Seq, protocol.StatusBadRequest)
		return
	}
	granted := sem.head() == r && sem.fits(x.Count)
	as := *r
	as.ask, as.count = askOf(x), x.Count
	var slots []*modelSlot
	if sem.laned() {
		slots, granted = m.serves(sem, &as, without(sem.waiting(), r))
	}
	now := m.askedBytes(sem, &as, slots, granted)
	if (granted || x.Timeout > 0) && m.full(o.node, len(x.Data)+now-len(r.data)-sem.placeBytes(r)) {
		m.countRule("waiter's data beyond the quota of bytes")
		m.refuse(s, o, x.Seq, protocol.StatusPreconditionFailed)
		return
	}
	m.result(sem, r, protocol.StatusAborted, 0)
	m.recall(r, Event{Status: protocol.StatusAborted})
	if x.Timeout == 0 && !granted {
		m.countRule("waiter asks with timeout 0")
		m.answer(s, o, x.Seq, Event{State: protocol.NotAcquired})
		m.remove(sem, r, true)
		m.process(sem)
		return
	}
	if sem.laned() && !sem.sameLane(r, &as) {
		m.countRule("waiter changes its lane")
	}
	r.seq, r.count, r.data, r.since, r.ask = x.Seq, x.Count, bytes.Clone(x.Data), m.wall, as.ask
	sem.revision = m.index
	sem.joins(r.ask.key)
	sem.left()
	m.setTimeout(r, x.Timeout)
	if granted {
		m.countRule("waiter asks for less and is granted")
		if sem.queue != nil && sem.queue.late {
			m.grantFrom(sem, r, slots)
		} else {
			m.grant(sem, r)
		}
		m.emit(Event{Kind: EventReply, Command: m.command, State: protocol.Acquired, OrderID: r.order, Grant: m.grantOf(sem, r)})
		m.process(sem)
		return
	}
	m.emit(Event{Kind: EventReply, Command: m.command, State: protocol.Queued, OrderID: r.order,
		Grant: m.grantOf(sem, r)})
	if sem.laned() {
		m.process(sem)
	} else {
		m.updatePreempted(sem, nil)
	}
}

func (m *model) release(o op, x *protocol.Release) {
	if badHead(x.Head, x.Name) || x.To != 0 && x.To == x.Session {
		m.reply(protocol.StatusBadRequest)
		return
	}
	s := m.request(o, x.Head, x.Name)
	if s == nil {
		return
	}
	sem := m.sem(o.node, x.Name)
	var r *modelEntry
	if sem != nil {
		r = sem.entryOf(s)
	}
	if r == nil || x.OrderID != 0 && x.OrderID != r.order {
		if r != nil {
			m.countRule("release of another order id")
		}
		m.answer(s, o, x.Seq, Event{})
		return
	}
	if r.owner {
		m.recall(r, Event{State: protocol.Acquired, OrderID: r.order})
	} else {
		m.countRule("waiter released")
		m.result(sem, r, protocol.StatusAborted, 0)
		m.recall(r, Event{Status: protocol.StatusAborted})
	}
	if to, slots := m.heir(sem, r, x.To); to != nil {
		m.answer(s, o, x.Seq, Event{Flag: true, Result: 1})
		m.transfer(sem, r, to, slots)
		return
	}
	if x.To != 0 {
		m.countRule("transfer to nobody")
	}
	m.answer(s, o, x.Seq, Event{Flag: true})
	m.remove(sem, r, true)
	m.process(sem)
}
