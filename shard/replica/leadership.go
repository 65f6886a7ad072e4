package replica

import (
	"github.com/signalbox-dev/signalbox/protocol"
)

// setRaftLeader keeps the newest report of raft for the proposer's goroutine.
func (q *proposalQueue) setRaftLeader(term, leader uint64) {
	q.mu.Lock()
	q.raftChanged, q.raftTerm, q.raftLeader = true, term, leader
	q.mu.Unlock()
	q.wake()
}

// raftStatus is raft's newest report, handled or not.
func (q *proposalQueue) raftStatus() (term, leader uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.raftTerm, q.raftLeader
}

// handleLeaderUpdate acts on raft's report: it starts a take-over, or ends a leadership. The report
// proves nothing.
func (s *Shard) handleLeaderUpdate() {
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
	s.fail(waiting, protocol.StatusUnavailable)
	if was == leading && now != leading {
		s.tasks.stop()
	}
	s.notifyLeader(leader, now == leading)
}

// depose ends this replica's leadership and returns the batches that were never proposed. Batches
// in flight stay: the log decides them. The caller holds mu.
func (q *proposalQueue) depose() []*batch {
	q.phase = following
	q.leading.Store(false)
	q.takeOverAgain, q.takeOverInFlight = false, false
	return q.takeWaiting()
}

// epochApplied is called in the step whose entry changed the shard's epoch register. Older batches
// in flight will be rejected.
func (s *Shard) epochApplied(epoch, logTime uint64) {
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
		// An earlier claim of this replica's own, late. The latest one is under way.
	case epoch > q.takeOverEpoch:
		failed = append(failed, q.depose()...)
	}
	now := q.phase
	q.mu.Unlock()
	s.fail(failed, protocol.StatusUnavailable)
	switch {
	case now == leading && was != leading:
		s.tasks.start(epoch, logTime)
		s.notifyLeader(s.cfg.Replica, true)
	case was == leading && now != leading:
		s.tasks.stop()
		s.notifyLeader(0, false)
	}
	q.wake()
}

// notifyLeader tells the sink when something changed. Caller holds applyMu.
func (s *Shard) notifyLeader(leader uint64, leading bool) {
	if s.notified && s.notifiedLeader == leader && s.notifiedLeading == leading {
		return
	}
	s.notified, s.notifiedLeader, s.notifiedLeading = true, leader, leading
	s.proposals.leader.Store(leader)
	s.sink.LeaderChanged(s, leader, leading)
	s.host.cfg.Changed()
}

// isOwnEpoch says whether a register that holds this epoch shows that this replica still leads: a
// term is led once, by one replica.
func (q *proposalQueue) isOwnEpoch(epoch uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.phase == leading && epoch>>16 == q.term
}
