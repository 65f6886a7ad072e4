package shard

import (
	"math"

	"github.com/signalbox-dev/signalbox/protocol"
)

// takeovers remembers the take-overs of leadership for the sessions that were not looked at
// since. A take-over detaches every attached session, but touches no record: each attached session
// carries the generation (number of the take-over) that its state belongs to, and what the first
// later take-over made of it is worked out when it is asked for. A detached session keeps its
// deadline through all take-overs. A sweep of a bounded number of sessions an Apply writes the
// deadlines down. A take-over does not restart it, so that every session's turn comes however many
// of them follow each other; one that came during a pass gets a pass of its own afterwards.
type takeovers struct {
	generation   uint64     // number of take-overs so far
	open         []takeover // not yet brought to every session by the sweep, oldest first
	sweeping     bool
	sweepStart   uint64 // generation when the pass of the sweep began: what is newer needs another
	sweepNode    uint64 // the pass goes on behind this node and session
	sweepSession uint64
}

type takeover struct {
	generation uint64
	at         uint64 // log time of the take-over
	planned    bool   // the leader before it transferred: no grace period is added

	// An activation of buckets is a take-over for the sessions at home in them; count is 0 where
	// it is for all.
	first, count uint32
}

// covers reports whether a take-over is one for the sessions of a bucket.
func (t *takeover) covers(b *bucket) bool {
	return t.count == 0 || b.number >= t.first && b.number-t.first < t.count
}

// begin adds a take-over, and has it swept.
func (t *takeovers) begin(o takeover) {
	t.generation++
	o.generation = t.generation
	t.open = append(t.open, o)
	if !t.sweeping {
		t.sweeping, t.sweepStart, t.sweepNode, t.sweepSession = true, t.generation, 0, 0
	}
}

// endedBy is the take-over that ended a session's attachment, nil if none did. It is the first
// after the attach: no later leader answered the session, or it would be attached under that leader.
// An activation comes before it, because a copy that was not active knew of no take-over.
func (t *takeovers) endedBy(s *homeSession, b *bucket) (by *takeover) {
	for i := range t.open {
		o := &t.open[i]
		if o.generation > s.generation && o.covers(b) && (by == nil || o.count > 0) {
			by = o
		}
	}
	return by
}

// termOf is the raft term in a leader epoch.
func termOf(epoch uint64) uint64 { return epoch >> 16 }

// takeOver makes the batch's epoch the shard's. A repeated take-over has the same term and detaches
// no session: the leader is the same.
func takeOver(m *Machine, epoch uint64) {
	newTerm := termOf(epoch) > termOf(m.epoch)
	m.epoch, m.epochAt = epoch, max(m.logTime, 1) // nothing of a fresh log has a time
	if newTerm {
		m.takeovers.begin(takeover{at: m.logTime, planned: m.transferring})
		m.transferring = false
	}
}

// applyTransfer notes that the leader gives its leadership to another one, or that it keeps it
// after all. It has detached the sessions without a recent message, so that those still
// attached had nearly all of their timeout left: a take-over that follows adds no grace period.
// Nobody is promised anything that needs one: a pong proves that the leader led after the ping was
// sent, and an attach that is answered ahead of the log counts on the deadline in the log alone.
func applyTransfer(m *Machine, c *rawCommand) {
	if len(c.body) != 1 || c.body[0] > 1 {
		m.reply(protocol.StatusBadRequest, textMalformed)
		return
	}
	m.transferring = c.body[0] == 1
	m.reply(protocol.StatusOK, "")
}

// writeDownTakeOvers writes down what the take-overs since made of an attached session.
func (s *homeSession) writeDownTakeOvers(m *Machine) {
	attached, deadline := m.attached(s)
	if s.attached && !attached {
		m.touch(s.sessionRecord)
		s.attached, s.link = false, protocol.LinkLeader
		m.schedule(s, deadline)
	}
}

// sweep writes down the take-overs for the next sessions, in order of node and session.
func (t *takeovers) sweep(m *Machine) {
	if !t.sweeping {
		return
	}
	left := m.work.sweeps
	done := true
	low, high := t.sweepRange(&m.bucketTable)
	m.nodeIndex.Ascend(func(n *node) bool { return n.id < t.sweepNode }, func(n *node) bool {
		after := low
		if n.id == t.sweepNode {
			after = max(after, t.sweepSession)
		}
		n.homeSessions.Ascend(func(s *homeSession) bool { return s.id <= after }, func(s *homeSession) bool {
			if s.id > high {
				return false
			}
			if left == 0 {
				done = false
				return false
			}
			left--
			s.writeDownTakeOvers(m)
			t.sweepNode, t.sweepSession = n.id, s.id
			return true
		})
		return done
	})
	if done {
		t.finishSweep()
	}
}

// finishSweep ends a sweep, and begins another for the take-overs that came meanwhile.
func (t *takeovers) finishSweep() {
	left := 0
	for left < len(t.open) && t.open[left].generation <= t.sweepStart {
		left++
	}
	t.open = append([]takeover(nil), t.open[left:]...)
	t.sweeping, t.sweepStart, t.sweepNode, t.sweepSession = len(t.open) > 0, t.generation, 0, 0
}

// sweepRange are the ids between which the sessions to be swept are: all, or those at home in
// buckets that were activated.
func (t *takeovers) sweepRange(b *bucketTable) (low, high uint64) {
	low = math.MaxUint64
	for i := range t.open {
		o := &t.open[i]
		if o.count == 0 {
			return 0, math.MaxUint64
		}
		first, last := b.homeIDs(o.first, o.count)
		low, high = min(low, first), max(high, last)
	}
	return low, high
}

// applyTakeOver is reached when the batch's epoch was taken over already, before any deadline
// fired.
func applyTakeOver(m *Machine) {
	m.batch.out.List = append(m.batch.out.List, Event{Kind: EventTookOver, Epoch: m.epoch})
	m.reply(protocol.StatusOK, "")
}
