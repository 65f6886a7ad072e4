package proposal

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica/wakeup"
)

// phase is the replica's part in the shard's leadership.
type phase uint8

const (
	following  phase = iota // another replica leads, or none
	takingOver              // raft elected this replica; its epoch is not applied yet
	leading                 // its epoch is applied: requests are accepted
	stopping                // the replica is stopping
)

// Queue holds commands on their way into the log. They wait in the open batch, then in sealed
// batches, then in flight, until the log has decided their outcome. The effect of each input:
//
//	                        following    takingOver     leading                         stopping
//	Submit, SubmitInternal  UNAVAILABLE  UNAVAILABLE    into the open batch (1)         UNAVAILABLE
//	RequestTick             -            -              a batch is due, even empty (1)  -
//	Next                    none         none           the oldest batch, in flight (2) none
//	FollowRaft, this leads
//	  in a newer term       takingOver   takingOver     takingOver, waiting fails       -
//	  in the term known     -            -              -                               -
//	FollowRaft, another     following    following      following, waiting fails        -
//	EpochApplied            each of them fails batches in flight under older epochs; then
//	  the latest proposed   -            leading        leading, sequence begins at 1   -
//	  of this term, older   -            -              -                               -
//	  of a newer term       following    following      following, waiting fails        -
//	Applied, Remove         the batch leaves those in flight; its outcome is the caller's to report
//	MarkUndetermined        -            -              the epoch is taken over again   -
//	NextTakeOver            none         number 1       the next number if due (3)      none
//	TakeOverEnded           -            another may follow, after a pause unless it was applied
//	Pause, Resume           false        false          Next gives none between them    false
//	Drain                   from now on nothing new is accepted; ends when nothing is left
//	Close                   stopping     stopping       stopping, waiting fails         stopping
//
//	(1) Beyond the bytes that may wait Submit is OVERLOADED. Once the queue drains all are
//	    UNAVAILABLE.
//	(2) If there is room, see hasRoom, and no take-over is under way.
//	(3) After MarkUndetermined, or while the latest one proposed is not applied.
//
// "Waiting fails": the open and sealed batches are returned, and were never proposed. Batches in
// flight stay when a leadership ends: the log decides them.
//
// Invariants, all under mu:
//   - A batch is in at most one of open, sealed and inFlight. The goroutine that removes it from
//     inFlight reports its outcome, and no other does.
//   - open and sealed hold commands only in phase leading.
//   - inFlight is in the order of (Epoch, Seq). Each batch in it was proposed, or is about to be,
//     under an epoch of this replica.
//   - ownEpoch <= takeOverEpoch.
//   - A batch is proposed only while ownEpoch == takeOverEpoch: during a take-over nothing new
//     enters the log under the old epoch.
type Queue struct {
	leading atomic.Bool // phase == leading, readable without mu

	limits Limits

	wakeup.Wakeup // of the proposer

	mu           sync.Mutex
	phase        phase
	draining     bool // new commands are rejected; waiting ones are still proposed
	paused       bool // nothing is proposed: leadership is being transferred
	idle         bool // no goroutine proposes, and none was woken to
	pool         batchPool
	open         *Batch
	sealed       []*Batch
	waitingBytes int // in open and sealed
	inFlight     []*Batch
	tick         bool // propose a batch even if it is empty
	handOff      handOff

	raftChanged bool // raftTerm and raftLeader were not handled yet
	raftTerm    uint64
	raftLeader  uint64
	term        uint64 // of this replica's leadership, or of its last one
	ownEpoch    uint64 // of the latest take-over applied in term, 0 for none
	seq         uint64 // of the last batch proposed under ownEpoch
	takeOver
}

// Limits bound a queue.
type Limits struct {
	OpenBytes     int // that wait, beyond which Submit is OVERLOADED
	BatchBytes    int
	BatchCommands int
	InFlight      int  // batches
	Single        bool // the group had no other members when it was started
}

// Init makes the queue ready, in phase following.
func (q *Queue) Init(l Limits) {
	q.limits = l
	q.Wakeup = wakeup.New()
	q.open = q.pool.get()
}

// Submit adds a command to the open batch. StatusUnavailable: this replica does not lead.
// StatusOverloaded: too many bytes wait. It never blocks. If it returns wake, the caller must wake
// the proposer, or propose itself: no other goroutine does.
func (q *Queue) Submit(c shard.Command, o Origin) (status protocol.Status, wake bool) {
	if !q.leading.Load() {
		return protocol.StatusUnavailable, false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.phase != leading || q.draining {
		return protocol.StatusUnavailable, false
	}
	if q.waitingBytes+len(c.Body) > q.limits.OpenBytes {
		return protocol.StatusOverloaded, false
	}
	q.add(c, o)
	q.noteQueuing(c)
	return protocol.StatusOK, q.needsWake()
}

// SubmitInternal adds a command of the replica itself. These are few and small, and must not fail
// because the queue is full.
func (q *Queue) SubmitInternal(c shard.Command, w Waiter) protocol.Status {
	q.mu.Lock()
	if q.phase != leading || q.draining {
		q.mu.Unlock()
		return protocol.StatusUnavailable
	}
	q.add(c, Origin{})
	w.Command = len(q.open.Origins) - 1
	q.open.Waiters = append(q.open.Waiters, w)
	wake := q.needsWake()
	q.mu.Unlock()
	if wake {
		q.Wake()
	}
	return protocol.StatusOK
}

// needsWake reports whether the caller must start the proposer after it added a command. While
// there is no room, or a take-over is in flight, it need not: the end of that wakes the proposer.
// Only one caller gets true until the proposer has run. The caller holds mu.
func (q *Queue) needsWake() bool {
	if !q.idle || q.ownEpoch != q.takeOverEpoch || !q.hasRoom() {
		return false
	}
	q.idle = false
	return true
}

// In a group of one, a second batch is proposed beside one in flight only if it has this many
// commands or bytes.
const (
	minSecondBatchCommands = 64
	minSecondBatchBytes    = 16 << 10
)

// hasRoom reports whether the open batch may be proposed now. In a group of one, a few commands
// wait for the batch in flight: the engine's worker makes one sync after the other, so a second
// small batch would not be on disk earlier, and each batch costs CPU. In larger groups, batches
// overlap on the network. Commands that only queue up may wait without one. The caller holds mu.
func (q *Queue) hasRoom() bool {
	switch n := len(q.inFlight); {
	case n == 0:
		return !q.holds()
	case n >= q.limits.InFlight:
		return false
	}
	return !q.limits.Single || len(q.sealed) > 0 || len(q.open.Origins) >= minSecondBatchCommands ||
		q.open.size() >= minSecondBatchBytes
}

// add appends to the open batch, and first seals a full one. The caller holds mu.
func (q *Queue) add(c shard.Command, o Origin) {
	b := q.open
	if !b.empty() && (b.size()+len(c.Body) > q.limits.BatchBytes || len(b.Origins) >= q.limits.BatchCommands) {
		q.sealed = append(q.sealed, b)
		b = q.pool.get()
		q.open = b
	}
	before := b.size()
	b.add(c, o)
	q.waitingBytes += b.size() - before
}

// RequestTick proposes a batch soon, even an empty one, so that log time reaches a deadline.
func (q *Queue) RequestTick() {
	q.mu.Lock()
	if q.phase == leading && !q.draining {
		q.tick = true
	}
	q.mu.Unlock()
	q.Wake()
}

// Next puts the next batch in flight, with the next number of the own epoch. It returns nil if no
// batch may go out; the proposer is woken when that changes. began is the time, by the host's
// clock.
func (q *Queue) Next(began int64) *Batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.idle = true
	if q.phase != leading || q.ownEpoch != q.takeOverEpoch || !q.hasRoom() || q.paused && !q.draining {
		return nil
	}
	var b *Batch
	switch {
	case len(q.sealed) > 0:
		b = q.sealed[0]
		q.sealed[0] = nil
		q.sealed = q.sealed[1:]
	case !q.open.empty() || q.tick:
		b = q.open
		q.open = q.pool.get()
	default:
		return nil
	}
	q.idle = false
	q.tick = false
	q.waitingBytes -= b.size()
	q.seq++
	b.Epoch, b.Seq, b.Began = q.ownEpoch, q.seq, began
	q.inFlight = append(q.inFlight, b)
	q.hold() // the open batch may wait now that nothing is sealed
	return b
}

// Remove removes the batch with this number from those in flight; b is nil if it is not there. If
// more, the proposer has work.
func (q *Queue) Remove(epoch, seq uint64) (b *Batch, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.remove(epoch, seq)
}

// Applied is Remove for a batch that was applied and has handed this on.
func (q *Queue) Applied(epoch, seq uint64, on shard.HandedOff) (b *Batch, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if b, more = q.remove(epoch, seq); b != nil {
		q.noteHandOff(on)
	}
	return b, more
}

func (q *Queue) remove(epoch, seq uint64) (b *Batch, more bool) {
	for i, f := range q.inFlight {
		if f.Epoch == epoch && f.Seq == seq {
			q.inFlight = append(q.inFlight[:i], q.inFlight[i+1:]...)
			return f, len(q.sealed) > 0 || !q.open.empty() || q.tick || q.draining
		}
	}
	return nil, false
}

// TakeInFlight removes all batches in flight: their outcome will not be known here.
func (q *Queue) TakeInFlight() []*Batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := q.inFlight
	q.inFlight = nil
	return list
}

// Recycle returns a batch to the pool after it was applied here. One that failed is not recycled:
// the log may show a newer leader while it is still given to the engine.
func (q *Queue) Recycle(b *Batch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pool.put(b)
}

// Load is how many batches are in flight, and how many bytes wait before them.
func (q *Queue) Load() (inFlight, waitingBytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.inFlight), q.waitingBytes
}

// Empty reports whether nothing waits and nothing is in flight.
func (q *Queue) Empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.nothingInFlight() && len(q.sealed) == 0 && q.open.empty() && !q.tick
}

// NothingInFlight reports whether everything proposed here has been applied here.
func (q *Queue) NothingInFlight() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.nothingInFlight()
}

func (q *Queue) nothingInFlight() bool {
	return len(q.inFlight) == 0 && !q.takeOverInFlight && !q.takeOverAgain
}

// Pause has Next give nothing until Resume, for a transfer of the leadership. It returns false if
// this replica does not lead, and else the term that it leads.
func (q *Queue) Pause() (term uint64, leads bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.phase != leading || q.draining {
		return 0, false
	}
	q.paused = true
	return q.term, true
}

// Resume ends a Pause.
func (q *Queue) Resume() {
	q.mu.Lock()
	q.paused = false
	q.mu.Unlock()
	q.Wake()
}

// Drain rejects new commands and waits until the queue is empty, for a limited time.
func (q *Queue) Drain(most time.Duration) {
	q.mu.Lock()
	q.draining = true
	q.mu.Unlock()
	for end := time.Now().Add(most); time.Now().Before(end) && q.leading.Load() && !q.Empty(); {
		q.Wake()
		time.Sleep(time.Millisecond)
	}
}

// Close ends the queue and returns the batches that were never proposed.
func (q *Queue) Close() []*Batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.phase = stopping
	q.leading.Store(false)
	q.handOff.stop()
	return q.takeWaiting()
}

// takeWaiting removes the open and sealed batches, which were never proposed. The caller holds mu.
func (q *Queue) takeWaiting() (list []*Batch) {
	list = append(list, q.sealed...)
	clear(q.sealed)
	q.sealed = q.sealed[:0]
	if !q.open.empty() {
		list = append(list, q.open)
		q.open = q.pool.get()
	}
	q.waitingBytes = 0
	q.tick = false
	q.noteHandOff(shard.HandedOff{})
	return list
}
