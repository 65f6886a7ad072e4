package proposal

import "time"

const (
	// takeOverRetry is the pause before a take-over is repeated that the engine dropped at once, as
	// it does during a leadership transfer.
	takeOverRetry = 25 * time.Millisecond
	maxTakeOvers  = 1<<16 - 1
)

// takeOver is a queue's state of take-overs. The epoch of a take-over is the term and, in the lower
// 16 bits, its number in the term. It is guarded by the queue's mu.
type takeOver struct {
	takeOverEpoch     uint64 // of the latest take-over proposed in the term
	takeOverAgain     bool   // the outcome of a batch under ownEpoch is undetermined
	takeOverInFlight  bool
	takeOverNotBefore time.Time
}

// TakeOver is a take-over to propose.
type TakeOver struct {
	Epoch uint64
	Again bool // this replica leads already
	// Late is how many of the term came before it and were not applied.
	Late uint64
}

// MarkUndetermined records that the engine cannot know the outcome of a batch in flight. The batch
// stays there and the epoch is taken over again: once the new epoch is applied, all batches in
// flight under the old one are rejected for good. It returns false if the batch is not there.
func (q *Queue) MarkUndetermined(epoch, seq uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, f := range q.inFlight {
		if f.Epoch == epoch && f.Seq == seq {
			if q.phase == leading && epoch == q.ownEpoch {
				q.takeOverAgain = true
			}
			return true
		}
	}
	return false
}

// NextTakeOver returns the take-over to propose now: raft elected this replica, or a batch of the
// present epoch is undetermined. If due and not now, the caller tries again later.
func (q *Queue) NextTakeOver() (t TakeOver, now, due bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	due = q.phase == takingOver && q.ownEpoch == 0 ||
		q.phase == leading && (q.takeOverAgain || q.ownEpoch != q.takeOverEpoch)
	if !due || q.takeOverInFlight || time.Now().Before(q.takeOverNotBefore) {
		return TakeOver{}, false, due
	}
	n := q.takeOverEpoch & maxTakeOvers
	if n == maxTakeOvers {
		// 65,535 undetermined outcomes in one term: without another number nothing more is
		// proposed, and raft finds another leader.
		return TakeOver{}, false, false
	}
	late := n
	if q.ownEpoch != 0 {
		late = q.takeOverEpoch - q.ownEpoch
	}
	q.takeOverEpoch = q.term<<16 | (n + 1)
	q.takeOverInFlight = true
	return TakeOver{Epoch: q.takeOverEpoch, Again: q.phase == leading, Late: late}, true, true
}

// TakeOverEnded records that a take-over is not in flight any more, or was not proposed. If it was
// applied, EpochApplied came first. If not, or if that is unknown, the next one has a higher
// number, so it does not matter which of them is applied in the end.
func (q *Queue) TakeOverEnded(epoch uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if epoch != q.takeOverEpoch {
		return
	}
	q.takeOverInFlight = false
	if q.ownEpoch != q.takeOverEpoch {
		q.takeOverNotBefore = time.Now().Add(takeOverRetry)
	}
}
