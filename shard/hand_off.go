package shard

import (
	"bytes"

	"github.com/signalbox-dev/signalbox/protocol"
)

// HandedOff is the semaphore that was granted to a waiter last, if the waiter is its only owner and
// nothing is left for anybody who asks for it now. Name is nil if there is none. It is a hint for
// the leader, who expects the owner to release it soon.
type HandedOff struct {
	Node  uint64
	Name  []byte
	Owner uint64 // session
}

// Is reports whether both are of the same semaphore.
func (h HandedOff) Is(other HandedOff) bool {
	return h.Name != nil && h.Node == other.Node && bytes.Equal(h.Name, other.Name)
}

// Queues reports whether a command only joins the queue of the semaphore that was handed off: it is
// an acquire of a session that is not the owner, with a timeout of at least this many ms, least.
func (h HandedOff) Queues(c Command, least uint64) (session uint64, ok bool) {
	if h.Name == nil || c.Kind != CmdAcquire || c.Node != h.Node {
		return 0, false
	}
	var m protocol.Acquire
	if m.DecodeBody(c.Body) != nil || m.Timeout < least || m.Session == h.Owner || !bytes.Equal(m.Name, h.Name) {
		return 0, false
	}
	return m.Session, true
}

// noteHandOff notes that a waiter was granted its units.
func (b *batch) noteHandOff(e *entry) {
	off, s := &b.out.HandedOff, e.semaphore
	*off = HandedOff{}
	if s.isHandedOff() {
		*off = HandedOff{Node: s.node.id, Name: s.name, Owner: e.session.id}
	}
}

// checkHandOff forgets the hand-off that was noted if a caller that asks for the semaphore now may
// get it.
func (b *batch) checkHandOff(s *semaphore) {
	if b.out == nil {
		return // nothing is applied
	}
	if off := &b.out.HandedOff; off.Name != nil && off.Node == s.node.id &&
		bytes.Equal(off.Name, s.name) && !s.isHandedOff() {
		*off = HandedOff{}
	}
}
