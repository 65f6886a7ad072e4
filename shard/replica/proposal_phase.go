package replica

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

// depose ends this replica's leadership and returns the batches that were never proposed. Batches
// in flight stay: the log decides them. The caller holds mu.
func (q *proposalQueue) depose() []*batch {
	q.phase = following
	q.leading.Store(false)
	q.takeOverAgain, q.takeOverInFlight = false, false
	return q.takeWaiting()
}

// isOwnEpoch reports whether a register that holds this epoch shows that this replica still leads:
// a term is led once, by one replica.
func (q *proposalQueue) isOwnEpoch(epoch uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.phase == leading && epoch>>16 == q.term
}

// leaderTerm is the term in which this replica leads, as far as it knows.
func (q *proposalQueue) leaderTerm() (term uint64, leads bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.term, q.phase == leading
}

// nothingInFlight reports whether everything proposed here has been applied here.
func (q *proposalQueue) nothingInFlight() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.inFlight) == 0 && !q.takeOverInFlight && !q.takeOverAgain
}
