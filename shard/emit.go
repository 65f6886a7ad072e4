package shard

import (
	"github.com/signalbox-dev/signalbox/protocol"
)

// What leaves an Apply beside plain replies: events of the subjects, and changes for watches.

// emitResult ends a queued acquire.
func (b *batch) emitResult(e *entry, status protocol.Status, state protocol.AcquireState, text string) {
	b.out.List = append(b.out.List, Event{
		Kind: EventAcquireResult, Status: status, State: state, Session: e.session.id, Seq: e.seq,
		Epoch: e.session.epoch, Node: e.semaphore.node.id,
		OrderID: e.orderID, Name: e.semaphore.name, Text: text,
	})
}

// emitGranted ends a queued acquire that was granted.
func emitGranted(m *Machine, e *entry) {
	m.emitResult(e, protocol.StatusOK, protocol.Acquired, "")
	addGrant(m, e)
}

// replyAcquired answers an acquire whose entry owns its units.
func replyAcquired(m *Machine, e *entry) { replyEntry(m, e, protocol.Acquired) }

// replyQueued answers an acquire whose entry waits.
func replyQueued(m *Machine, e *entry) { replyEntry(m, e, protocol.Queued) }

func replyEntry(m *Machine, e *entry, state protocol.AcquireState) {
	out := m.batch.out
	out.List = append(out.List, Event{Kind: EventReply, Command: m.batch.command, State: state, OrderID: e.orderID})
	addGrant(m, e)
}

// addGrant adds to the last event what its owner has beyond plain units, or its waiter knows of
// bounds.
func addGrant(m *Machine, e *entry) {
	if q := e.semaphore.queue(); q != nil {
		list := m.batch.out.List
		list[len(list)-1].Grant = q.reply(m, e)
	}
}

// emitChange reports a change to watches. A node that was dropped has no watches any more.
func (b *batch) emitChange(s *semaphore, c protocol.SemaphoreChange) {
	if x := b.newChange(s, c.Kind); x != nil {
		x.SemaphoreChange = c
	}
}

// newChange is a change to report to watches, for the caller to fill in: a change is large to copy.
// It is nil where there are no watches.
func (b *batch) newChange(s *semaphore, kind protocol.SemaphoreChangeKind) *SemaphoreChange {
	if s.node.dropped {
		return nil
	}
	list := append(b.out.SemaphoreChanges, SemaphoreChange{})
	b.out.SemaphoreChanges = list
	x := &list[len(list)-1]
	x.Node, x.Bucket, x.Name, x.Owners, x.Kind = s.node.id, s.bucket.number, s.name, s.owners.n, kind
	return x
}

// emitOwnerChange reports a change of an owner to watches.
func (b *batch) emitOwnerChange(e *entry, kind protocol.SemaphoreChangeKind) {
	if x := b.newChange(e.semaphore, kind); x != nil {
		fillOwner(&x.Owner, e)
	}
}

// replyAttached answers a start or attach. EventSessionAttached comes first: when the client has
// the reply it may use the session at once.
func (b *batch) replyAttached(s *homeSession) {
	out := b.out
	grace := s.node.config.GracePeriod
	out.List = append(out.List,
		Event{Kind: EventSessionAttached, Command: b.command, Session: s.id, Node: s.node.id,
			Epoch: s.epoch, Timeout: uint64(s.timeout),
			Grace: grace, Text: s.description},
		Event{Kind: EventReply, Command: b.command, Session: s.id, Node: s.node.id, Epoch: s.epoch,
			Timeout: uint64(s.timeout), Grace: grace, Result: uint64(s.node.config.ReadConsistency)})
}

func (b *batch) emitBuckets(kind EventKind, x *BucketsBody) {
	b.out.List = append(b.out.List,
		Event{Kind: kind, First: x.First, Count: x.Count, Total: x.Total, Epoch: x.Epoch})
}

func (b *batch) emitProcessChange(x *hostedObject, c protocol.ProcessChange) {
	if !x.node.dropped {
		b.out.ProcessChanges = append(b.out.ProcessChanges, ProcessChange{
			Node: x.node.id, Bucket: x.bucket.number, Name: x.name, ProcessChange: c,
		})
	}
}
