package replica

import (
	"github.com/signalbox-dev/signalbox/protocol"
)

// leadership follows who leads, by what raft reports and by the epochs that are applied, and begins
// and ends the work of a leader. Its fields are guarded by applyMu.
type leadership struct {
	s        *Shard
	notified bool // the sink was notified of a leader
	leader   uint64
	leading  bool
}

// handleLeaderUpdate acts on raft's report: it starts a take-over, or ends a leadership. The report
// proves nothing.
func (l *leadership) handleLeaderUpdate() {
	s := l.s
	q := &s.proposals
	q.mu.Lock()
	changed := q.raftChanged
	q.mu.Unlock()
	if !changed {
		return
	}
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	q.mu.Lock()
	term, leader := q.raftTerm, q.raftLeader
	q.raftChanged = false
	if q.phase == stopping {
		q.mu.Unlock()
		return
	}
	var waiting []*batch
	was := q.phase
	switch {
	case leader != s.cfg.Replica:
		waiting = q.depose()
	case term > q.term:
		waiting = q.depose()
		q.phase = takingOver
		q.term, q.takeOverEpoch, q.ownEpoch, q.seq = term, 0, 0, 0
	default:
		// Known already, or ended by a newer epoch in the log: a term is led only once.
	}
	now := q.phase
	q.mu.Unlock()
	s.proposer.fail(waiting, protocol.StatusUnavailable)
	if was == leading && now != leading {
		l.end()
	}
	l.notify(leader, now == leading)
}

// epochApplied is called in the step whose entry changed the shard's epoch register. Older batches
// in flight will be rejected.
func (l *leadership) epochApplied(epoch, logTime uint64) {
	s := l.s
	q := &s.proposals
	q.mu.Lock()
	failed := q.removeOlderInFlight(epoch)
	was := q.phase
	switch {
	case q.phase == stopping:
	case epoch == q.takeOverEpoch && (q.phase == takingOver || q.phase == leading):
		q.ownEpoch, q.seq, q.takeOverAgain = epoch, 1, false
		q.phase = leading
		q.leading.Store(true)
	case epoch>>16 == q.term:
		// An earlier take-over of this replica, late. The latest one is under way.
	case epoch>>16 > q.term:
		// A former leader's epoch says nothing: this replica may have been elected before it
		// applied that.
		failed = append(failed, q.depose()...)
	}
	now := q.phase
	q.mu.Unlock()
	s.proposer.fail(failed, protocol.StatusUnavailable)
	switch {
	case now == leading && was != leading:
		l.begin(epoch, logTime)
		l.notify(s.cfg.Replica, true)
	case was == leading && now != leading:
		l.end()
		l.notify(0, false)
	}
	q.wake()
}

// begin is called in the step that applied this replica's epoch: later events belong to later
// entries.
func (l *leadership) begin(epoch, logTime uint64) {
	s := l.s
	now := millis(s.clock)
	s.barriers.lastProof.at.Store(0)
	s.logTime.start(epoch>>16, now, logTime)
	s.tasks.start(now, epoch, logTime)
	s.members.lead(epoch >> 16)
}

func (l *leadership) end() {
	l.s.tasks.stop()
	l.s.members.lead(0)
}

// notify tells the sink when something changed. The caller holds applyMu.
func (l *leadership) notify(leader uint64, leading bool) {
	if l.notified && l.leader == leader && l.leading == leading {
		return
	}
	l.notified, l.leader, l.leading = true, leader, leading
	s := l.s
	s.proposals.leader.Store(leader)
	s.sink.LeaderChanged(s, leader, leading)
	s.host.cfg.Changed()
}
