package shard

import (
	"github.com/signalbox-dev/signalbox/protocol"
)

// What leaves an Apply beside plain replies: events of the subjects, and changes for watches.

// emitResult ends an accepted acquire.
func (b *batch) emitResult(e *entry, status protocol.Status, state protocol.AcquireState, text string) {
	b.out.List = append(b.out.List, Event{
		Kind: EventAcquireResult, Status: status, State: state, Session: e.session.id, Seq: e.seq,
		Epoch: e.session.epoch, Node: e.semaphore.node.id,
		OrderID: e.orderID, Name: e.semaphore.name, Text: text,
	})
}

// emitGranted ends an accepted acquire that was granted.
func (b *batch) emitGranted(e *entry) {
	b.emitResult(e, protocol.StatusOK, protocol.Acquired, "")
	b.out.List[len(b.out.List)-1].Grant = grantOf(e)
}

// replyAcquired answers an acquire whose entry owns its units.
func (b *batch) replyAcquired(e *entry) {
	b.replyAnswer(answer{kind: CmdAcquire, state: protocol.Acquired, value: e.orderID})
	b.out.List[len(b.out.List)-1].Grant = grantOf(e)
}

// emitChange reports a change to watches. A node that was dropped has no watches any more.
func (b *batch) emitChange(s *semaphore, c protocol.SemaphoreChange) {
	if s.node.dropped {
		return
	}
	b.out.SemaphoreChanges = append(b.out.SemaphoreChanges,
		SemaphoreChange{Node: s.node.id, Bucket: s.bucket.number, Name: s.name, SemaphoreChange: c})
}

// emitOwnerChange reports a change of an owner to watches.
func (b *batch) emitOwnerChange(e *entry, kind protocol.SemaphoreChangeKind) {
	b.emitChange(e.semaphore, protocol.SemaphoreChange{Kind: kind, Owner: owner(e)})
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
