package replica

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// phase is the replica's part in the shard's leadership.
type phase uint8

const (
	following  phase = iota // another replica leads, or none
	takingOver              // raft elected this replica; its epoch is not applied yet
	leading                 // its epoch is applied: requests are accepted
	stopping                // the replica is stopping
)

// proposalQueue holds commands on their way into the log. They wait in the open batch, then in
// sealed batches, then in flight, until the log has decided their outcome.
//
// Invariants, all under mu:
//   - A batch is in at most one of open, sealed and inFlight. The goroutine that removes it from
//     inFlight reports its outcome, and no other does.
//   - open and sealed hold commands only in phase leading.
//   - inFlight is in the order of (epoch, seq). Each batch in it was proposed, or is about to be,
//     under an epoch of this replica.
//   - ownEpoch <= takeOverEpoch.
//   - A batch is proposed only while ownEpoch == takeOverEpoch: during a take-over nothing new
//     enters the log under the old epoch.
type proposalQueue struct {
	leading atomic.Bool   // phase == leading, readable without mu
	leader  atomic.Uint64 // replica id, 0 unknown

	maxOpen, maxBatch, maxCommands, maxFlight int
	single                                    bool // the group had no other members when it was started

	wakeup

	mu           sync.Mutex
	phase        phase
	draining     bool // new commands are rejected; waiting ones are still proposed
	paused       bool // nothing is proposed: leadership is being transferred
	idle         bool // no goroutine proposes, and none was woken to
	pool         batchPool
	open         *batch
	sealed       []*batch
	waitingBytes int // in open and sealed
	inFlight     []*batch
	tick         bool // propose a batch even if it is empty
	handOff      handOff

	raftChanged       bool // raftTerm and raftLeader were not handled yet
	raftTerm          uint64
	raftLeader        uint64
	term              uint64 // of this replica's leadership, or of its last one
	takeOverEpoch     uint64 // of the latest take-over proposed in term
	ownEpoch          uint64 // of the latest take-over applied in term, 0 for none
	seq               uint64 // of the last batch proposed under ownEpoch
	takeOverAgain     bool   // the outcome of a batch under ownEpoch is undetermined
	takeOverInFlight  bool
	takeOverNotBefore time.Time
}

func (q *proposalQueue) init(cfg ShardConfig) {
	q.maxOpen, q.maxBatch, q.maxCommands, q.maxFlight =
		cfg.MaxOpenBytes, cfg.MaxBatchBytes, cfg.MaxBatchCommands, cfg.InFlight
	q.single = len(cfg.Members) == 1
	q.wakeup = newWakeup()
	q.open = q.pool.get()
}

// needsWake reports whether the caller must start the proposer after it added a command. While
// there is no room, or a take-over is in flight, it need not: the end of that wakes the proposer.
// Only one caller gets true until the proposer has run. The caller holds mu.
func (q *proposalQueue) needsWake() bool {
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
func (q *proposalQueue) hasRoom() bool {
	switch n := len(q.inFlight); {
	case n == 0:
		return !q.holds()
	case n >= q.maxFlight:
		return false
	}
	return !q.single || len(q.sealed) > 0 || len(q.open.origins) >= minSecondBatchCommands ||
		q.open.size() >= minSecondBatchBytes
}

// submitInternal adds a command of the replica itself. These are few and small, and must not fail
// because the queue is full.
func (q *proposalQueue) submitInternal(c shard.Command, w internalWaiter) protocol.Status {
	q.mu.Lock()
	if q.phase != leading || q.draining {
		q.mu.Unlock()
		return protocol.StatusUnavailable
	}
	q.add(c, Origin{})
	w.command = len(q.open.origins) - 1
	q.open.waiters = append(q.open.waiters, w)
	wake := q.needsWake()
	q.mu.Unlock()
	if wake {
		q.wake()
	}
	return protocol.StatusOK
}

// add appends to the open batch, and first seals a full one. The caller holds mu.
func (q *proposalQueue) add(c shard.Command, o Origin) {
	b := q.open
	if !b.empty() && (b.size()+len(c.Body) > q.maxBatch || len(b.origins) >= q.maxCommands) {
		q.sealed = append(q.sealed, b)
		b = q.pool.get()
		q.open = b
	}
	before := b.size()
	b.add(c, o)
	q.waitingBytes += b.size() - before
}

// requestTick proposes a batch soon, even an empty one, so that log time reaches a deadline.
func (q *proposalQueue) requestTick() {
	q.mu.Lock()
	if q.phase == leading && !q.draining {
		q.tick = true
	}
	q.mu.Unlock()
	q.wake()
}

// next puts the next batch in flight, with the next number of ownEpoch. It returns nil if there is
// none or it must wait; the proposer is woken when that changes.
func (q *proposalQueue) next(began int64) *batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.idle = true
	if q.phase != leading || q.ownEpoch != q.takeOverEpoch || !q.hasRoom() || q.paused && !q.draining {
		return nil
	}
	var b *batch
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
	b.epoch, b.seq, b.began = q.ownEpoch, q.seq, began
	q.inFlight = append(q.inFlight, b)
	q.hold() // what is open may wait now that nothing is sealed
	return b
}

// removeInFlight removes the batch with this number from inFlight, nil if it is not there. If more,
// the proposer has work.
func (q *proposalQueue) removeInFlight(epoch, seq uint64) (b *batch, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.removeInFlightLocked(epoch, seq)
}

// applied is removeInFlight for a batch that was applied and has handed this on.
func (q *proposalQueue) applied(epoch, seq uint64, on shard.HandedOn) (b *batch, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if b, more = q.removeInFlightLocked(epoch, seq); b != nil {
		q.noteHandOff(on)
	}
	return b, more
}

func (q *proposalQueue) removeInFlightLocked(epoch, seq uint64) (b *batch, more bool) {
	for i, f := range q.inFlight {
		if f.epoch == epoch && f.seq == seq {
			q.inFlight = append(q.inFlight[:i], q.inFlight[i+1:]...)
			q.hold() // it may have failed: then nothing was noted of a hand-off
			return f, len(q.sealed) > 0 || !q.open.empty() || q.tick || q.draining
		}
	}
	return nil, false
}

// removeOlderInFlight removes all batches of older epochs from inFlight: the register has a newer
// epoch. The caller holds mu.
func (q *proposalQueue) removeOlderInFlight(epoch uint64) (list []*batch) {
	keep := q.inFlight[:0]
	for _, f := range q.inFlight {
		if f.epoch < epoch {
			list = append(list, f)
		} else {
			keep = append(keep, f)
		}
	}
	clear(q.inFlight[len(keep):])
	q.inFlight = keep
	return list
}

// takeWaiting removes the open and sealed batches, which were never proposed. The caller holds mu.
func (q *proposalQueue) takeWaiting() (list []*batch) {
	list = append(list, q.sealed...)
	clear(q.sealed)
	q.sealed = q.sealed[:0]
	if !q.open.empty() {
		list = append(list, q.open)
		q.open = q.pool.get()
	}
	q.waitingBytes = 0
	q.tick = false
	q.noteHandOff(shard.HandedOn{})
	return list
}

// recycle returns a batch to the pool after it was applied here. One that failed is not recycled:
// the log may show a newer leader while it is still given to the engine.
func (q *proposalQueue) recycle(b *batch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pool.put(b)
}

// markUndetermined notes that the engine cannot tell the outcome of a batch in flight. The batch
// stays there and the epoch is taken over again: once the new epoch is applied, all batches in
// flight under the old one are rejected for good.
func (q *proposalQueue) markUndetermined(epoch, seq uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, f := range q.inFlight {
		if f.epoch == epoch && f.seq == seq {
			if q.phase == leading && epoch == q.ownEpoch {
				q.takeOverAgain = true
			}
			return true
		}
	}
	return false
}

// empty reports whether nothing waits and nothing is in flight.
func (q *proposalQueue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.emptyLocked()
}

func (q *proposalQueue) emptyLocked() bool {
	return len(q.inFlight) == 0 && len(q.sealed) == 0 && q.open.empty() &&
		!q.tick && !q.takeOverInFlight && !q.takeOverAgain
}

// drain rejects new commands and waits until the queue is empty, for a limited time.
func (q *proposalQueue) drain(most time.Duration) {
	q.mu.Lock()
	q.draining = true
	q.mu.Unlock()
	end := time.Now().Add(most)
	for time.Now().Before(end) {
		q.mu.Lock()
		done := q.phase != leading || q.emptyLocked()
		q.mu.Unlock()
		if done {
			return
		}
		q.wake()
		time.Sleep(time.Millisecond)
	}
}

// close ends the queue and returns what was never proposed.
func (q *proposalQueue) close() []*batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.phase = stopping
	q.leading.Store(false)
	q.handOff.stop()
	return q.takeWaiting()
}
