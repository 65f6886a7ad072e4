package shard

import (
	"bytes"

	"github.com/signalbox-dev/signalbox/protocol"
)

const mebibyte = 1 << 20

func (m *model) create(o op, x *protocol.Create) {
	if badHead(x.Head, x.Name) || x.Limit == 0 || len(x.Data) > mebibyte || protocol.Validate(x) != nil {
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
	case m.full(o.node, 512+len(x.Name)+len(x.Data)+createBytes(x)):
		m.refuse(s, o, x.Seq, protocol.StatusPreconditionFailed)
	default:
		sem := m.make(o.node, x.Name, x.Limit, x.Data, false)
		sem.setOptions(x.Options)
		m.answer(s, o, x.Seq, Event{Result: sem.version})
	}
}

func createBytes(x *protocol.Create) int {
	if x.Options == nil {
		return 0
	}
	return modelOptionBytes(*x.Options, x.Limit)
}

// nextVersion follows a version of a semaphore's data, 0 of a new one. It is above those of all that
// were deleted from its bucket.
func (m *model) nextVersion(node uint64, name []byte, version uint64) uint64 {
	return max(version, m.versions[protocol.Bucket(node, name, m.total)]) + 1
}

// deleted notes that a semaphore is no more.
func (m *model) deleted(s *modelSemaphore) {
	b := m.bucketOf(s)
	m.versions[b] = max(m.versions[b], s.version)
}

func (m *model) make(node uint64, name []byte, limit uint64, data []byte, ephemeral bool) *modelSemaphore {
	sem := &modelSemaphore{
		node: node, name: bytes.Clone(name), data: bytes.Clone(data), limit: limit,
		version: m.nextVersion(node, name, 0), revision: m.index, created: m.wall, ephemeral: ephemeral,
	}
	m.sems = append(m.sems, sem)
	m.change(sem, protocol.SemaphoreChange{Kind: protocol.ChangeCreated,
		Limit: limit, Ephemeral: ephemeral, Version: sem.version, Data: sem.data})
	return sem
}

func (m *model) change(s *modelSemaphore, c protocol.SemaphoreChange) {
	s.revision = m.index
	if m.node(s.node) != nil {
		m.changes = append(m.changes,
			SemaphoreChange{Node: s.node, Bucket: m.bucketOf(s), Name: s.name, Owners: s.ownerCount(), SemaphoreChange: c})
	}
}

func (s *modelSemaphore) ownerCount() (n int) {
	for _, r := range s.entries {
		if r.owner {
			n++
		}
	}
	return n
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
			sem.version = m.nextVersion(o.node, x.Name, sem.version)
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
	case x.Expected != 0 && x.Expected != sem.version:
		m.countRule("resize of another version")
		m.refuse(s, o, x.Seq, protocol.StatusPreconditionFailed)
	case sem.queue != nil && len(sem.queue.slots) > 0 && !sem.queue.o.Numbered && x.Limit != sem.limit:
		m.countRule("resize of named slots")
		m.refuse(s, o, x.Seq, protocol.StatusPreconditionFailed)
	case sem.queue != nil && (sem.queue.o.Numbered && x.Limit > 1024 || sem.queue.o.Policy == protocol.PolicyFair && x.Limit > 1<<20 ||
		sem.queue.o.Preempt != protocol.PreemptOff && x.Limit > 4096):
		m.countRule("resize above what options allow")
		m.refuse(s, o, x.Seq, protocol.StatusPreconditionFailed)
	case sem.queue != nil && sem.queue.o.Numbered && x.Limit > sem.limit && m.full(o.node, 64*int(x.Limit-sem.limit)):
		m.refuse(s, o, x.Seq, protocol.StatusPreconditionFailed)
	default:
		m.answer(s, o, x.Seq, Event{})
		if sem.limit != x.Limit && sem.queue != nil && sem.queue.o.Numbered {
			m.countRule("numbered slots resized")
			sem.setSlots(modelSlots(sem.queue.o, x.Limit))
		}
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
	m.forcing = true
	defer func() { m.forcing = false }()
	for _, r := range taken {
		m.countRule("lease taken by force")
		m.emit(Event{Kind: EventLeaseLost, Session: r.session.id, Seq: r.seq, Epoch: r.session.epoch,
			Node: sem.node, Name: sem.name, OrderID: r.order})
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
	case !sem.ephemeral && x.Expected != 0 && x.Expected != sem.version:
		m.countRule("delete of another version")
		m.refuse(s, o, x.Seq, protocol.StatusPreconditionFailed)
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
				Kind: EventLeaseLost, Session: r.session.id, Seq: r.seq, Epoch: r.session.epoch,
				Node: sem.node, Name: sem.name, OrderID: r.order,
			})
			m.recall(r, Event{State: protocol.Acquired, OrderID: r.order})
			m.remove(sem, r, false)
		}
		m.sems = without(m.sems, sem)
		m.deleted(sem)
		m.change(sem, protocol.SemaphoreChange{Kind: protocol.ChangeDeleted})
	}
}
