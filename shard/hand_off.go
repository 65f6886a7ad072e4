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

// applyForceRelease takes leases away from owners whose sessions live, because an operator says so:
// those with the order ids that the command names, in order. Waiters are granted what became free,
// in this one Apply: its cost grows with their number. Unlike every other release it does not wait
// until the owner stopped believing; the event notifies the owner. Order ids rise, so a copy of
// the command that comes late finds nobody.
func applyForceRelease(m *Machine, c *rawCommand) {
	x := &m.batch.force
	if !m.decode(x, c.body) || !m.valid(x) {
		return
	}
	b := m.activeBucket(c.node, x.Name)
	if b == nil {
		m.reply(protocol.StatusWrongShard, textWrongShard)
		return
	}
	n := requireNode(m, c.node)
	if n == nil {
		return
	}
	s := m.semaphores.lookup(b, n.id, x.Name)
	if s == nil {
		m.replyError(errNoSemaphore)
		return
	}
	at := len(m.batch.out.List)
	m.reply(protocol.StatusOK, "")
	released := uint64(0)
	for e := s.owners.first; e != nil && e.orderID <= x.Last; {
		this := e
		e = next(e, byOrder)
		if this.orderID < x.First {
			continue
		}
		released++
		if p := this.session; !p.ended { // no event follows the end of a session
			m.batch.out.List = append(m.batch.out.List, Event{
				Kind: EventLeaseLost, Session: p.id, Seq: this.seq, Epoch: p.epoch,
				Node: n.id, Name: s.name, OrderID: this.orderID,
				Text: forceReleaseText(string(c.sender), x.Reason),
			})
		}
		this.rememberOutcome(m, outcomeOK, protocol.Acquired)
		if !this.session.ended {
			m.lost[LostForceReleased]++
		}
		this.remove(m, true, protocol.HoldForced)
	}
	m.batch.out.List[at].Result = released
	if released > 0 {
		s.promote(m)
		s.reapEphemeral(m)
	}
}

// forceReleaseText is the event's text: which operator took the lease away, and why.
func forceReleaseText(by, reason string) string {
	if by == "" {
		return "taken away by an operator: " + reason
	}
	return "taken away by the operator " + by + ": " + reason
}

// heir is the waiter of the session that a release names, and the slots that it gets; nil if the
// release is an ordinary one. The waiter lives, wants no more than is given back, and fits what is
// free then.
func (q *request) heir(m *Machine, session uint64) (to *entry, slots []uint32) {
	s, e, p := q.semaphore, q.entry, m.sessions.get(session)
	if p == nil || e.waiting {
		return nil, nil
	}
	to = s.entryOf(p)
	if to == nil || !to.waiting || m.waiterEnded(to) || to.count > e.count ||
		s.used-e.count > s.limit || to.count > s.limit-(s.used-e.count) {
		return nil, nil
	}
	if x := s.queue(); x != nil {
		var ok bool
		if slots, ok = x.HeirSlots(e.orderID, to.orderID, to.count); !ok {
			return nil, nil
		}
	}
	return to, slots
}

// transfer takes the units from their owner and gives them to a waiter before anybody else is
// looked at. Where it passes somebody by, tokens are late from now on, until the queue is empty.
func (q *request) transfer(m *Machine, to *entry, slots []uint32) {
	s := q.semaphore
	q.entry.remove(m, true, protocol.HoldTransferred)
	switch x := s.queue(); {
	case !x.laned() && s.waiters.first == to:
		to.grant(m)
	default:
		m.touch(s)
		if !x.laned() {
			s.ownQueue().DrawLate()
		}
		s.queue().grant(m, to, slots)
	}
	emitGranted(m, to)
	m.noteHandOff(to)
	m.leaseTransfers++
	s.promote(m)
}
