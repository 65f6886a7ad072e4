package shard

import (
	"github.com/signalbox-dev/signalbox/protocol"
)

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
