package proposal

// Change is the effect of an input on this replica's leadership.
type Change struct {
	Failed       []*Batch // never applied, and never to be
	Began, Ended bool     // the leadership
	Leads        bool
}

// changed is the change from a phase before to the present one. The caller holds mu.
func (q *Queue) changed(before phase, failed []*Batch) Change {
	return Change{
		Failed: failed, Leads: q.phase == leading,
		Began: before != leading && q.phase == leading,
		Ended: before == leading && q.phase != leading,
	}
}

// Leading reports whether this replica leads, as far as it knows.
func (q *Queue) Leading() bool { return q.leading.Load() }

// SetRaftLeader keeps the newest report of raft for FollowRaft, and wakes the proposer. The report
// proves nothing.
func (q *Queue) SetRaftLeader(term, leader uint64) {
	q.mu.Lock()
	q.raftChanged, q.raftTerm, q.raftLeader = true, term, leader
	q.mu.Unlock()
	q.Wake()
}

// RaftStatus is raft's newest report, followed or not.
func (q *Queue) RaftStatus() (term, leader uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.raftTerm, q.raftLeader
}

// RaftChanged reports whether raft has reported something since FollowRaft.
func (q *Queue) RaftChanged() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.raftChanged
}

// FollowRaft acts on raft's newest report: a take-over is due, or a leadership ends. self is this
// replica's id. ok is false if the replica is stopping.
func (q *Queue) FollowRaft(self uint64) (leader uint64, c Change, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.raftChanged = false
	if q.phase == stopping {
		return 0, Change{}, false
	}
	before := q.phase
	var failed []*Batch
	switch {
	case q.raftLeader != self:
		failed = q.depose()
	case q.raftTerm > q.term:
		failed = q.depose()
		q.phase = takingOver
		q.term, q.takeOverEpoch, q.ownEpoch, q.seq = q.raftTerm, 0, 0, 0
	default:
		// Known already, or ended by a newer epoch in the log: a term is led only once.
	}
	return q.raftLeader, q.changed(before, failed), true
}

// EpochApplied is called in the step whose entry changed the shard's epoch register: batches in
// flight under older epochs will be rejected.
func (q *Queue) EpochApplied(epoch uint64) Change {
	q.mu.Lock()
	defer q.mu.Unlock()
	failed := q.removeOlderInFlight(epoch)
	before := q.phase
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
	return q.changed(before, failed)
}

// removeOlderInFlight removes all batches of older epochs from inFlight: the register has a newer
// epoch. The caller holds mu.
func (q *Queue) removeOlderInFlight(epoch uint64) (list []*Batch) {
	keep := q.inFlight[:0]
	for _, f := range q.inFlight {
		if f.Epoch < epoch {
			list = append(list, f)
		} else {
			keep = append(keep, f)
		}
	}
	clear(q.inFlight[len(keep):])
	q.inFlight = keep
	return list
}

// depose ends this replica's leadership and returns the batches that were never proposed. Batches
// in flight stay: the log decides them. The caller holds mu.
func (q *Queue) depose() []*Batch {
	q.phase = following
	q.leading.Store(false)
	q.takeOverAgain, q.takeOverInFlight = false, false
	return q.takeWaiting()
}

// OwnsEpoch reports whether a register that holds this epoch shows that this replica still leads: a
// term is led once, by one replica.
func (q *Queue) OwnsEpoch(epoch uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.phase == leading && epoch>>16 == q.term
}

// LeaderTerm is the term in which this replica leads, as far as it knows.
func (q *Queue) LeaderTerm() (term uint64, leads bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.term, q.phase == leading
}

// NewerTerm is the term that raft has reported if it is newer than the given one, else 0. stopping:
// no other will be reported.
func (q *Queue) NewerTerm(term uint64) (newer uint64, isStopping bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.raftTerm > term {
		newer = q.raftTerm
	}
	return newer, q.phase == stopping
}
