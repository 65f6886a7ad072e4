package shard

import (
	"math"

	"github.com/signalbox-dev/signalbox/protocol"
)

// takeovers remembers the take-overs of leadership for the sessions that were not looked at since. A take-over detaches every attached session and
// postpones every deadline, but touches no record: each session carries the generation (number of the take-over) its own state belongs to,
// and what later take-overs made of it is worked out when somebody asks. A sweep of a bounded number of sessions an Apply writes it down.
type takeovers struct {
	generation uint64     // number of take-overs so far
	open       []takeover // those that the sweep has not brought to every session yet, oldest first
	sweeping   bool
	node       uint64 // the sweep goes on behind this node and session
	session    uint64
}

type takeover struct {
	generation uint64
	at         uint64 // log time of the take-over
	seen       uint64 // log time before it: a session overdue by then had been answered for as gone, and stays gone

	// An activation of buckets is a take-over for the sessions at home in them; count is 0 where it is for all.
	first, count uint32
}

// covers says that a take-over is one for the sessions of a bucket.
func (o *takeover) covers(b *bucket) bool {
	return o.count == 0 || b.number >= o.first && b.number-o.first < o.count
}

// termOf is the raft term in a leader epoch.
func termOf(epoch uint64) uint64 { return epoch >> 16 }

// takeOver makes the batch's epoch the shard's. A retake, which has the same term, detaches nobody: the leader is the same.
func (m *Machine) takeOver(epoch, seen uint64) {
	newTerm := termOf(epoch) > termOf(m.epoch)
	m.epoch = epoch
	if !newTerm {
		return
	}
	t := &m.takeovers
	t.generation++
	t.open = append(t.open, takeover{generation: t.generation, at: m.logTime, seen: seen})
	t.sweeping, t.node, t.session = true, 0, 0
}

// attached says whether a session is attached under the present leader, and otherwise the last moment of its bucket's time at which it exists.
func (m *Machine) attached(s *session) (attached bool, deadline uint64) {
	attached, deadline = s.attached, s.due.at
	if s.generation == m.takeovers.generation {
		return attached, deadline
	}
	b := m.bucketOf(s)
	if b.state != bucketActive {
		return attached, deadline // as it is when its bucket is activated
	}
	for i := range m.takeovers.open {
		o := &m.takeovers.open[i]
		if o.generation <= s.generation || !o.covers(b) {
			continue
		}
		if !attached && deadline < b.at(o.seen) {
			return false, deadline
		}
		grace := addSaturated(addSaturated(b.at(o.at), uint64(s.timeout)), s.node.grace(o.generation, o.at))
		if attached {
			attached, deadline = false, grace
		} else {
			deadline = max(deadline, grace)
		}
	}
	return attached, deadline
}

// overdue says whether a session has passed its deadline, fired or not.
func (m *Machine) overdue(s *session) bool {
	attached, deadline := m.attached(s)
	return !attached && m.time(m.bucketOf(s)) > deadline
}

// settle writes down what the take-overs since made of a session.
func (m *Machine) settle(s *session) {
	if s.generation == m.takeovers.generation || m.bucketOf(s).state != bucketActive {
		return
	}
	m.touchParty(s.party)
	attached, deadline := m.attached(s)
	s.attached, s.generation = attached, m.takeovers.generation
	if !attached {
		m.arm(s, deadline)
	}
}

// sweep settles the next sessions, in order of node and session.
func (m *Machine) sweep() {
	t := &m.takeovers
	if !t.sweeping {
		return
	}
	left := m.work.swept
	done := true
	low, high := m.sweepRange()
	m.nodeIndex.ascend(func(n *node) bool { return n.id < t.node }, func(n *node) bool {
		after := low
		if n.id == t.node {
			after = max(after, t.session)
		}
		n.sessions.ascend(func(s *session) bool { return s.id <= after }, func(s *session) bool {
			if s.id > high {
				return false
			}
			if left == 0 {
				done = false
				return false
			}
			left--
			m.settle(s)
			t.node, t.session = n.id, s.id
			return true
		})
		return done
	})
	if done {
		t.sweeping, t.open, t.node, t.session = false, nil, 0, 0
	}
}

// sweepRange are the ids between which the sessions to be swept are: all, or those at home in buckets that were activated.
func (m *Machine) sweepRange() (low, high uint64) {
	low = math.MaxUint64
	for i := range m.takeovers.open {
		o := &m.takeovers.open[i]
		if o.count == 0 {
			return 0, math.MaxUint64
		}
		low, high = min(low, m.firstSession(o.first)), max(high, m.lastSession(o.first+o.count-1))
	}
	return low, high
}

// applyTakeOver is reached when the batch's epoch was taken over already, before any deadline fired.
func (m *Machine) applyTakeOver() {
	m.run.out.List = append(m.run.out.List, Event{Kind: EventTookOver, Epoch: m.epoch})
	m.reply(protocol.StatusOK, "")
}
