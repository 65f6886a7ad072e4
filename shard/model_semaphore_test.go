package shard

import (
	"bytes"

	"github.com/signalbox-dev/signalbox/protocol"
)

func (s *modelSemaphore) entryOf(of *modelSession) *modelEntry {
	for _, r := range s.entries {
		if r.session == of {
			return r
		}
	}
	return nil
}

func (s *modelSemaphore) used() (sum uint64) {
	for _, r := range s.entries {
		if r.owner {
			sum += r.count
		}
	}
	return sum
}

// fits says that so many units are free; counts never overflow.
func (s *modelSemaphore) fits(count uint64) bool {
	return s.used() <= s.limit && count <= s.limit-s.used()
}

// head is the first waiter.
func (s *modelSemaphore) head() *modelEntry {
	for _, r := range s.entries {
		if !r.owner {
			return r
		}
	}
	return nil
}

func (s *modelSemaphore) waiters() (n int) {
	for _, r := range s.entries {
		if !r.owner {
			n++
		}
	}
	return n
}

func (m *model) sem(node uint64, name []byte) *modelSemaphore {
	for _, s := range m.sems {
		if s.node == node && bytes.Equal(s.name, name) {
			return s
		}
	}
	return nil
}

// reachable says that name's bucket and the node are here; else the command is answered.
func (m *model) reachable(node uint64, name []byte) bool {
	switch {
	case m.total == 0 || !m.active[protocol.Bucket(node, name, m.total)]:
		m.reply(protocol.StatusWrongShard)
		return false
	case m.node(node) == nil:
		st := protocol.StatusNotFound
		for _, id := range m.dropped {
			if id == node {
				st = protocol.StatusSessionExpired
			}
		}
		m.reply(st)
		return false
	}
	return true
}

// request is what all requests on semaphores have in common. It gives nil when the request is
// answered.
func (m *model) request(o op, h protocol.Head, name []byte) *modelSession {
	if !m.reachable(o.node, name) {
		return nil
	}
	s := m.requestSession(h.Session, o.node, o.epoch, o.client)
	if s == nil {
		return nil
	}
	// What is overdue counts as gone: a session may have been detached in this batch with its
	// deadline behind it.
	var row *modelEntry
	if sem := m.sem(o.node, name); sem != nil {
		m.process(sem)
		row = sem.entryOf(s)
	}
	if h.Low > s.low {
		s.low = h.Low
		for seq := range s.answers {
			if seq < s.low {
				delete(s.answers, seq)
			}
		}
	}
	if o.kind == CmdAcquire && row != nil && row.seq == h.Seq {
		state := protocol.Acquired
		if !row.owner {
			state = protocol.Accepted
		}
		m.countRule("sent again, answered by the entry")
		m.emit(Event{Kind: EventReply, Command: m.command, State: state, OrderID: row.order})
		return nil
	}
	if a, ok := s.answers[h.Seq]; ok {
		a.reply.Command = m.command
		switch {
		case a.kind != o.kind:
			m.countRule("number of another kind")
			m.reply(protocol.StatusBadRequest)
		case a.reply.State == protocol.Acquired && (row == nil || !row.owner || row.order != a.reply.OrderID):
			m.countRule("sent again, acquired no more")
			m.reply(protocol.StatusAborted) // it would be a lie by now
		default:
			m.countRule("sent again, answered from memory")
			m.emit(a.reply)
		}
		return nil
	}
	if h.Seq < s.low {
		m.countRule("number below the low-water mark")
		if o.kind == CmdAcquire {
			m.emit(Event{Kind: EventReply, Command: m.command, State: protocol.NotAcquired})
		} else {
			m.reply(protocol.StatusBadRequest)
		}
		return nil
	}
	if len(s.answers) >= m.limits.Answers {
		m.countRule("limit of answers")
		m.reply(protocol.StatusOverloaded)
		return nil
	}
	return s
}

// answer answers a request and remembers it; what may be sent again is not remembered.
func (m *model) answer(s *modelSession, o op, seq uint64, e Event) {
	e.Kind, e.Command = EventReply, m.command
	if !e.Status.Retryable() {
		s.answers[seq] = modelAnswer{o.kind, e}
	}
	m.emit(e)
}

func (m *model) refuse(s *modelSession, o op, seq uint64, st protocol.Status) {
	m.answer(s, o, seq, Event{Status: st})
}

// recall remembers what an acquire came to when its entry stops carrying its number, if the client
// may not know.
func (m *model) recall(r *modelEntry, e Event) {
	if s := r.session; !s.ended && r.seq >= s.low {
		e.Kind = EventReply
		s.answers[r.seq] = modelAnswer{CmdAcquire, e}
	}
}

func badHead(h protocol.Head, name []byte) bool {
	return h.Seq == 0 || len(name) == 0 || len(name) > 1024
}

const mebibyte = 1 << 20

func (m *model) create(o op, x *protocol.Create) {
	if badHead(x.Head, x.Name) || x.Limit == 0 || len(x.Data) > mebibyte {
		m.reply(protocol.StatusBadRequest)
		return
	}
	s := m.request(o, x.Head, x.Name)
	if s == nil {
		return
	}
	sem := m.sem(o.node, x.Name)
	switch {
	case sem != nil && sem.ephemeral:
		m.refuse(s, o, x.Seq, protocol.StatusPreconditionFailed)
	case sem != nil:
		m.refuse(s, o, x.Seq, protocol.StatusAlreadyExists)
	case len(m.byName(o.node)) >= m.share(m.node(o.node).config.MaxSemaphores):
		m.countRule("quota of semaphores")
		m.refuse(s, o, x.Seq, protocol.StatusPreconditionFailed)
	case m.full(o.node, 512+len(x.Name)+len(x.Data)):
		m.refuse(s, o, x.Seq, protocol.StatusPreconditionFailed)
	default:
		m.make(o.node, x.Name, x.Limit, x.Data, false)
		m.answer(s, o, x.Seq, Event{})
	}
}

func (m *model) make(node uint64, name []byte, limit uint64, data []byte, ephemeral bool) *modelSemaphore {
	sem := &modelSemaphore{
		node: node, name: bytes.Clone(name), data: bytes.Clone(data), limit: limit, version: 1, revision: m.index, created: m.wall, ephemeral: ephemeral,
	}
	m.sems = append(m.sems, sem)
	m.change(sem, protocol.SemaphoreChange{Kind: protocol.ChangeCreated, Limit: limit, Ephemeral: ephemeral, Version: 1, Data: sem.data})
	return sem
}

func (m *model) change(s *modelSemaphore, c protocol.SemaphoreChange) {
	s.revision = m.index
	if m.node(s.node) != nil {
		m.changes = append(m.changes, SemaphoreChange{Node: s.node, Bucket: m.bucketOf(s), Name: s.name, SemaphoreChange: c})
	}
}

func (m *model) update(o op, x *protocol.Update) {
	if badHead(x.Head, x.Name) || len(x.Data) > mebibyte {
		m.reply(protocol.StatusBadRequest)
		return
	}
	s := m.request(o, x.Head, x.Name)
	if s == nil {
		return
	}
	sem := m.sem(o.node, x.Name)
	switch {
	case sem == nil:
		m.refuse(s, o, x.Seq, protocol.StatusNotFound)
	case x.Expected != 0 && x.Expected != sem.version:
		m.countRule("update of another version")
		m.refuse(s, o, x.Seq, protocol.StatusPreconditionFailed)
	case m.full(o.node, len(x.Data)-len(sem.data)):
		m.countRule("update beyond the quota of bytes")
		m.refuse(s, o, x.Seq, protocol.StatusPreconditionFailed)
	default:
		if !bytes.Equal(sem.data, x.Data) {
			sem.data = bytes.Clone(x.Data)
			sem.version++
			m.change(sem, protocol.SemaphoreChange{Kind: protocol.ChangeData, Version: sem.version, Data: sem.data})
		}
		m.answer(s, o, x.Seq, Event{Result: sem.version})
	}
}

func (m *model) resize(o op, x *protocol.Resize) {
	if badHead(x.Head, x.Name) || x.Limit == 0 {
		m.reply(protocol.StatusBadRequest)
		return
	}
	s := m.request(o, x.Head, x.Name)
	if s == nil {
		return
	}
	sem := m.sem(o.node, x.Name)
	switch {
	case sem == nil:
		m.refuse(s, o, x.Seq, protocol.StatusNotFound)
	case sem.ephemeral:
		m.refuse(s, o, x.Seq, protocol.StatusPreconditionFailed)
	default:
		m.answer(s, o, x.Seq, Event{})
		if sem.limit != x.Limit {
			if x.Limit < sem.used() {
				m.countRule("limit lowered below what is held")
			}
			sem.limit = x.Limit
			m.change(sem, protocol.SemaphoreChange{Kind: protocol.ChangeLimit, Limit: x.Limit})
			m.process(sem)
		}
	}
}

// forceRelease takes leases away; nobody's request number is in it.
func (m *model) forceRelease(o op, x *protocol.ForceRelease) {
	if len(x.Name) == 0 || len(x.Name) > 1024 || x.First == 0 || x.Last < x.First || badReason(x.Reason) {
		m.reply(protocol.StatusBadRequest)
		return
	}
	if !m.reachable(o.node, x.Name) {
		return
	}
	sem := m.sem(o.node, x.Name)
	if sem == nil {
		m.reply(protocol.StatusNotFound)
		return
	}
	var taken []*modelEntry
	for _, r := range sem.entries {
		if r.owner && r.order >= x.First && r.order <= x.Last {
			taken = append(taken, r)
		}
	}
	m.emit(Event{Kind: EventReply, Command: m.command, Result: uint64(len(taken))})
	if len(taken) == 0 {
		m.countRule("force release of a token that is no owner's")
		return
	}
	for _, r := range taken {
		m.countRule("lease taken by force")
		m.emit(Event{Kind: EventLeaseLost, Session: r.session.id, Seq: r.seq, Epoch: r.session.epoch, Node: sem.node, Name: sem.name, OrderID: r.order})
		m.recall(r, Event{State: protocol.Acquired, OrderID: r.order})
		m.remove(sem, r, true)
	}
	if len(sem.entries) > 0 {
		m.countRule("others go on after a lease was taken by force")
	}
	m.process(sem)
}

func (m *model) delete(o op, x *protocol.Delete) {
	if badHead(x.Head, x.Name) {
		m.reply(protocol.StatusBadRequest)
		return
	}
	s := m.request(o, x.Head, x.Name)
	if s == nil {
		return
	}
	sem := m.sem(o.node, x.Name)
	switch {
	case sem == nil:
		m.refuse(s, o, x.Seq, protocol.StatusNotFound)
	case sem.ephemeral || len(sem.entries) > 0 && !x.Force:
		if !sem.ephemeral && len(sem.entries) == sem.waiters() {
			m.countRule("delete with waiters only")
		}
		m.refuse(s, o, x.Seq, protocol.StatusPreconditionFailed)
	default:
		if len(sem.entries) > sem.waiters() && sem.waiters() > 0 {
			m.countRule("deleted with owners and waiters")
		}
		m.answer(s, o, x.Seq, Event{})
		for _, r := range sem.entries {
			if !r.owner {
				m.result(sem, r, protocol.StatusAborted, 0)
				m.recall(r, Event{Status: protocol.StatusAborted})
				m.remove(sem, r, false)
			}
		}
		for _, r := range sem.entries {
			m.emit(Event{
				Kind: EventLeaseLost, Session: r.session.id, Seq: r.seq, Epoch: r.session.epoch, Node: sem.node, Name: sem.name, OrderID: r.order,
			})
			m.recall(r, Event{State: protocol.Acquired, OrderID: r.order})
			m.remove(sem, r, false)
		}
		m.sems = without(m.sems, sem)
		m.change(sem, protocol.SemaphoreChange{Kind: protocol.ChangeDeleted})
	}
}

// Acquire and release.

func (m *model) acquire(o op, x *protocol.Acquire) {
	if badHead(x.Head, x.Name) || x.Count == 0 || x.Timeout > 24*60*60*1000 && x.Timeout != ^uint64(0) || len(x.Data) > mebibyte {
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
	if sem != nil && sem.head() != nil && sem.fits(x.Count) {
		m.countRule("small acquire behind a large head")
	}
	more := 256 + len(x.Data)
	if sem == nil {
		more += 512 + len(x.Name)
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
	r := &modelEntry{session: s, order: m.orders[b], count: x.Count, seq: x.Seq, since: m.wall, data: bytes.Clone(x.Data)}
	sem.entries = append(sem.entries, r)
	sem.revision = m.index
	m.setTimeout(r, x.Timeout)
	if granted {
		m.grant(sem, r)
		m.emit(Event{Kind: EventReply, Command: m.command, State: protocol.Acquired, OrderID: r.order})
	} else {
		m.count(sem, r, 1)
		m.emit(Event{Kind: EventReply, Command: m.command, State: protocol.Accepted, OrderID: r.order})
	}
	if wasIdle && !s.home {
		m.emit(Event{Kind: EventRemoteHeld, Session: s.id, Node: s.node, Epoch: s.epoch})
	}
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
	if m.full(o.node, len(x.Data)-len(r.data)) {
		m.countRule("owner's data beyond the quota of bytes")
		m.refuse(r.session, o, x.Seq, protocol.StatusPreconditionFailed)
		return
	}
	if x.Count < r.count && sem.head() != nil {
		m.countRule("owner asks for less, and others wait")
	}
	m.recall(r, Event{State: protocol.Acquired, OrderID: r.order})
	changed := x.Count != r.count || !bytes.Equal(x.Data, r.data)
	r.seq, r.count, r.data = x.Seq, x.Count, bytes.Clone(x.Data)
	m.emit(Event{Kind: EventReply, Command: m.command, State: protocol.Acquired, OrderID: r.order})
	if changed {
		m.change(sem, protocol.SemaphoreChange{Kind: protocol.ChangeOwnerChanged, Owner: r.asOwner()})
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
	if (granted || x.Timeout > 0) && m.full(o.node, len(x.Data)-len(r.data)) {
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
	r.seq, r.count, r.data, r.since = x.Seq, x.Count, bytes.Clone(x.Data), m.wall
	sem.revision = m.index
	m.setTimeout(r, x.Timeout)
	if granted {
		m.countRule("waiter asks for less and is granted")
		m.emit(Event{Kind: EventReply, Command: m.command, State: protocol.Acquired, OrderID: r.order})
		m.grant(sem, r)
		m.process(sem)
		return
	}
	m.emit(Event{Kind: EventReply, Command: m.command, State: protocol.Accepted, OrderID: r.order})
}

func (m *model) release(o op, x *protocol.Release) {
	if badHead(x.Head, x.Name) {
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
	m.answer(s, o, x.Seq, Event{Flag: true})
	m.remove(sem, r, true)
	m.process(sem)
}

// The queue.

// overdue says that a waiter counts as gone.
func (m *model) overdue(r *modelEntry) bool {
	return r.timed && m.now > r.deadline || !m.alive(r.session)
}

// process looks at the head of the queue until it does not fit, and deletes an ephemeral semaphore
// with nobody left. It does nothing to a semaphore nothing has happened to.
func (m *model) process(s *modelSemaphore) {
	if m.node(s.node) == nil {
		return
	}
	for {
		r := s.head()
		switch {
		case r == nil || !m.overdue(r) && !s.fits(r.count):
			if s.ephemeral && len(s.entries) == 0 {
				m.countRule("ephemeral deleted")
				m.sems = without(m.sems, s)
				m.change(s, protocol.SemaphoreChange{Kind: protocol.ChangeDeleted})
			}
			return
		case m.overdue(r):
			m.countRule("head of the queue is overdue")
			m.endWaiter(s, r)
		default:
			m.countRule("waiter granted")
			m.result(s, r, protocol.StatusOK, protocol.Acquired)
			m.grant(s, r)
		}
	}
}

// endWaiter ends a waiter that counts as gone.
func (m *model) endWaiter(s *modelSemaphore, r *modelEntry) {
	if m.alive(r.session) {
		m.result(s, r, protocol.StatusOK, protocol.NotAcquired)
		m.recall(r, Event{State: protocol.NotAcquired})
	} else {
		m.result(s, r, protocol.StatusSessionExpired, 0)
	}
	m.remove(s, r, true)
}

func (m *model) grant(s *modelSemaphore, r *modelEntry) {
	r.owner, r.timed, r.since = true, false, m.wall
	m.change(s, protocol.SemaphoreChange{Kind: protocol.ChangeOwnerAdded, Owner: r.asOwner()})
	m.count(s, r, 0)
}

// count counts an acquire (0), a wait (1) or a release (2).
func (m *model) count(s *modelSemaphore, r *modelEntry, what int) {
	s.counts[what]++
	if n := m.node(s.node); n == nil || n.config.CountersMode != protocol.CountersDetailed {
		s.detail = nil
		return
	}
	if s.detail == nil {
		s.detail = map[uint64]*[3]uint64{}
	}
	if s.detail[r.session.id] == nil {
		s.detail[r.session.id] = new([3]uint64)
	}
	s.detail[r.session.id][what]++
}

// remove takes an entry out.
func (m *model) remove(s *modelSemaphore, r *modelEntry, notify bool) {
	s.entries = without(s.entries, r)
	s.revision = m.index
	if r.owner {
		m.count(s, r, 2)
	}
	if r.owner && notify {
		m.change(s, protocol.SemaphoreChange{Kind: protocol.ChangeOwnerRemoved, Owner: protocol.Owner{OrderID: r.order, Session: r.session.id}})
	}
	if g := r.session; !g.home && m.idle(g) {
		g.used = m.now
		m.emit(Event{Kind: EventRemoteIdle, Session: g.id, Node: g.node, Epoch: g.epoch})
	}
}

// result ends an accepted acquire.
func (m *model) result(s *modelSemaphore, r *modelEntry, st protocol.Status, state protocol.AcquireState) {
	m.emit(Event{
		Kind: EventAcquireResult, Status: st, State: state, Session: r.session.id, Seq: r.seq, Epoch: r.session.epoch, Node: s.node, OrderID: r.order,
		Name: s.name,
	})
}

func (r *modelEntry) asOwner() protocol.Owner {
	return protocol.Owner{OrderID: r.order, Session: r.session.id, Count: r.count, Data: r.data, Description: r.session.desc, Since: r.since}
}
