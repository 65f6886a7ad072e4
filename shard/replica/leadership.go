package replica

import (
	"github.com/signalbox-dev/signalbox/protocol"
)

// setRaftLeader keeps the newest news of who leads; the proposer looks at them.
func (l *proposalQueue) setRaftLeader(term, leader uint64) {
	l.mu.Lock()
	l.raftChanged, l.raftTerm, l.raftLeader = true, term, leader
	l.mu.Unlock()
	l.wake()
}

// raftStatus is what raft said last, looked at or not.
func (l *proposalQueue) raftStatus() (term, leader uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.raftTerm, l.raftLeader
}

// handleLeaderUpdate acts on what raft last said of the leader: it only ever starts a claim, or ends what was claimed. It proves nothing.
func (s *Shard) handleLeaderUpdate() {
	l := &s.proposals
	l.mu.Lock()
	news := l.raftChanged
	l.mu.Unlock()
	if !news {
		return
	}
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	l.mu.Lock()
	term, leader := l.raftTerm, l.raftLeader
	l.raftChanged = false
	if l.phase == stopping {
		l.mu.Unlock()
		return
	}
	var waiting []*batch
	was := l.phase
	switch {
	case leader != s.cfg.Replica:
		waiting = l.depose()
	case term > l.term:
		waiting = l.depose()
		l.phase = takingOver
		l.term, l.takeOverEpoch, l.ownEpoch, l.seq = term, 0, 0, 0
	default:
		// Known already; or ended since by a newer epoch in the log, and a term is never led twice.
	}
	now := l.phase
	l.mu.Unlock()
	s.fail(waiting, protocol.StatusUnavailable)
	if was == leading && now != leading {
		s.tasks.stop()
	}
	s.notifyLeader(leader, now == leading)
}

// depose ends this replica's leadership and returns what was never proposed under it. What is in flight stays: the log decides. Caller holds mu.
func (l *proposalQueue) depose() []*batch {
	l.phase = following
	l.leading.Store(false)
	l.takeOverAgain, l.takeOverInFlight = false, false
	return l.takeWaiting()
}

// epochApplied is called within the step whose entry moved the shard's epoch register. Everything older that is still in flight will be refused.
func (s *Shard) epochApplied(epoch, logTime uint64) {
	l := &s.proposals
	l.mu.Lock()
	failed := l.removeOlderInFlight(epoch)
	was := l.phase
	switch {
	case l.phase == stopping:
	case epoch == l.takeOverEpoch && (l.phase == takingOver || l.phase == leading):
		l.ownEpoch, l.seq, l.takeOverAgain = epoch, 1, false
		l.phase = leading
		l.leading.Store(true)
	case epoch>>16 == l.term:
		// An earlier claim of this replica's own, late. The latest one is under way.
	case epoch > l.takeOverEpoch:
		failed = append(failed, l.depose()...)
	}
	now := l.phase
	l.mu.Unlock()
	s.fail(failed, protocol.StatusUnavailable)
	switch {
	case now == leading && was != leading:
		s.tasks.start(epoch, logTime)
		s.notifyLeader(s.cfg.Replica, true)
	case was == leading && now != leading:
		s.tasks.stop()
		s.notifyLeader(0, false)
	}
	l.wake()
}

// announce tells the sink when something changed. Caller holds applyMu.
func (s *Shard) notifyLeader(leader uint64, leading bool) {
	if s.notified && s.notifiedLeader == leader && s.notifiedLeading == leading {
		return
	}
	s.notified, s.notifiedLeader, s.notifiedLeading = true, leader, leading
	s.proposals.leader.Store(leader)
	s.sink.LeaderChanged(s, leader, leading)
	s.host.cfg.Changed()
}

// isOwnEpoch says whether a register that holds this epoch shows that this replica still leads: a term is led once, by one replica.
func (l *proposalQueue) isOwnEpoch(epoch uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.phase == leading && epoch>>16 == l.term
}
