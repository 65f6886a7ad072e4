package replica

import (
	"github.com/signalbox-dev/signalbox/protocol"
)

// noteLeader keeps the newest news of who leads; the proposer looks at them.
func (l *line) noteLeader(term, leader uint64) {
	l.mu.Lock()
	l.news, l.newTerm, l.newLeader = true, term, leader
	l.mu.Unlock()
	l.wake()
}

// lastNews is what raft said last, looked at or not.
func (l *line) lastNews() (term, leader uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newTerm, l.newLeader
}

// lookAtNews acts on what raft last said of the leader: it only ever starts a claim, or ends what was claimed. It proves nothing.
func (s *Shard) lookAtNews() {
	l := &s.line
	l.mu.Lock()
	news := l.news
	l.mu.Unlock()
	if !news {
		return
	}
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	l.mu.Lock()
	term, leader := l.newTerm, l.newLeader
	l.news = false
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
		l.phase = claiming
		l.term, l.claim, l.held, l.seq = term, 0, 0, 0
	default:
		// Known already; or ended since by a newer epoch in the log, and a term is never led twice.
	}
	now := l.phase
	l.mu.Unlock()
	s.fail(waiting, protocol.StatusUnavailable)
	if was == leading && now != leading {
		s.duties.end()
	}
	s.announce(leader, now == leading)
}

// depose ends this replica's leadership and returns what was never proposed under it. What is in flight stays: the log decides. Caller holds mu.
func (l *line) depose() []*batch {
	l.phase = following
	l.leading.Store(false)
	l.retake, l.claimUnderWay = false, false
	return l.takeWaiting()
}

// epochApplied is called within the step whose entry moved the shard's epoch register. Everything older that is still in flight will be refused.
func (s *Shard) epochApplied(epoch, logTime uint64) {
	l := &s.line
	l.mu.Lock()
	failed := l.landOlder(epoch)
	was := l.phase
	switch {
	case l.phase == stopping:
	case epoch == l.claim && (l.phase == claiming || l.phase == leading):
		l.held, l.seq, l.retake = epoch, 1, false
		l.phase = leading
		l.leading.Store(true)
	case epoch>>16 == l.term:
		// An earlier claim of this replica's own, late. The latest one is under way.
	case epoch > l.claim:
		failed = append(failed, l.depose()...)
	}
	now := l.phase
	l.mu.Unlock()
	s.fail(failed, protocol.StatusUnavailable)
	switch {
	case now == leading && was != leading:
		s.duties.begin(epoch, logTime)
		s.announce(s.cfg.Replica, true)
	case was == leading && now != leading:
		s.duties.end()
		s.announce(0, false)
	}
	l.wake()
}

// announce tells the sink when something changed. Caller holds applyMu.
func (s *Shard) announce(leader uint64, leading bool) {
	if s.announced && s.toldLeader == leader && s.toldLeading == leading {
		return
	}
	s.announced, s.toldLeader, s.toldLeading = true, leader, leading
	s.line.leader.Store(leader)
	s.sink.LeaderChanged(s, leader, leading)
	s.host.cfg.Changed()
}

// ownEpoch says whether a register that holds this epoch shows that this replica still leads: a term is led once, by one replica.
func (l *line) ownEpoch(epoch uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.phase == leading && epoch>>16 == l.term
}
