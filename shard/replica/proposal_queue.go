package replica

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// phase is where this replica stands in the shard's leadership.
type phase uint8

const (
	following  phase = iota // another replica leads, or none
	takingOver              // raft made this one the leader; its epoch is not applied yet
	leading                 // its epoch is applied: requests are accepted
	stopping                // the replica is stopping
)

// line is the way into the log: commands wait in the open batch, then in sealed ones, then in flight, until the log says what became of them.
//
// Invariants, all under mu:
//   - a batch is in at most one of open, sealed, flight; whoever takes it out of flight, and nobody else, tells its origins the outcome
//   - open and sealed hold something only in phase leading
//   - flight is in order of (epoch, seq); every batch in it was proposed, or is about to be, under an epoch of this replica's own
//   - held is the last epoch of this replica's own that was applied in its present term, 0 before that; held <= claim
//   - a batch is proposed only while held == claim: while the epoch is retaken nothing new enters the log under the old one
type proposalQueue struct {
	leading atomic.Bool   // phase == leading, for readers in a hurry
	leader  atomic.Uint64 // replica id, 0 unknown

	maxOpen, maxBatch, maxCommands, maxFlight int
	single                                    bool // the group had no other members when it was started

	wakeup chan struct{}

	mu           sync.Mutex
	phase        phase
	draining     bool // nothing is accepted any more; what is there still goes out
	paused       bool // nothing is proposed: leadership is being handed over
	idle         bool // nobody proposes, and nobody was told to yet
	pool         batchPool
	open         *batch
	sealed       []*batch
	waitingBytes int // bytes in open and sealed
	inFlight     []*batch
	tick         bool // propose a batch even if it is empty

	raftChanged       bool // raftTerm, raftLeader were not looked at yet
	raftTerm          uint64
	raftLeader        uint64
	term              uint64 // of this replica's leadership, or the last one
	takeOverEpoch     uint64 // the latest epoch proposed in it
	ownEpoch          uint64
	seq               uint64 // of the last batch proposed under held
	takeOverAgain     bool   // a batch under held is undetermined
	takeOverInFlight  bool
	takeOverNotBefore time.Time
}

func (l *proposalQueue) init(cfg ShardConfig) {
	l.maxOpen, l.maxBatch, l.maxCommands, l.maxFlight = cfg.MaxOpenBytes, cfg.MaxBatchBytes, cfg.MaxBatchCommands, cfg.InFlight
	l.single = len(cfg.Members) == 1
	l.wakeup = make(chan struct{}, 1)
	l.open = l.pool.get()
}

func (l *proposalQueue) wake() {
	select {
	case l.wakeup <- struct{}{}:
	default:
	}
}

// Submit queues a command for the next batch and copies its body. It never blocks. StatusOK: the outcome will come through the sink. StatusUnavailable:
// this replica does not lead. StatusOverloaded: too many bytes wait already.
func (s *Shard) Submit(c shard.Command, o Origin) protocol.Status {
	st, due := s.SubmitMore(c, o)
	if due {
		s.proposals.wake()
	}
	return st
}

// SubmitMore is Submit for a caller that has more to submit. When it says due, the caller must call [Shard.Propose] soon, once it has submitted the rest: nobody
// else sees to what waits.
func (s *Shard) SubmitMore(c shard.Command, o Origin) (st protocol.Status, due bool) {
	l := &s.proposals
	if !l.leading.Load() {
		return protocol.StatusUnavailable, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phase != leading || l.draining {
		return protocol.StatusUnavailable, false
	}
	if l.waitingBytes+len(c.Body) > l.maxOpen {
		s.counters.overloaded.Add(1)
		return protocol.StatusOverloaded, false
	}
	l.add(c, o)
	return protocol.StatusOK, l.needsWake()
}

// rouse says whether the proposer must be woken for a command that was added. While there is no room, or the epoch is retaken, it need not: what ends that
// wakes it. Caller holds mu.
func (l *proposalQueue) needsWake() bool {
	if !l.idle || l.ownEpoch != l.takeOverEpoch || !l.hasRoom() {
		return false
	}
	l.idle = false
	return true
}

// Where a group is alone, so many commands, or bytes of them, go on their way beside a batch in flight.
const (
	minSecondBatchCommands = 64
	minSecondBatchBytes    = 16 << 10
)

// roomy says whether what is open may be proposed now. In a group that is alone, a few commands wait for the batch in flight to land: the engine's worker syncs
// one thing after the other, so that they would be no earlier on the disk, and each batch has its price. In other groups batches overlap on the network. Caller
// holds mu.
func (l *proposalQueue) hasRoom() bool {
	switch n := len(l.inFlight); {
	case n == 0:
		return true
	case n >= l.maxFlight:
		return false
	}
	return !l.single || len(l.sealed) > 0 || len(l.open.origins) >= minSecondBatchCommands || l.open.size() >= minSecondBatchBytes
}

// submit is Submit for commands of the replica's own: few, small, and not to be lost behind a full line.
func (l *proposalQueue) submit(s *Shard, c shard.Command, o Origin, fn func(error)) protocol.Status {
	return l.submitWait(c, o, internalWaiter{fn: fn})
}

func (l *proposalQueue) submitWait(c shard.Command, o Origin, w internalWaiter) protocol.Status {
	l.mu.Lock()
	if l.phase != leading || l.draining {
		l.mu.Unlock()
		return protocol.StatusUnavailable
	}
	l.add(c, o)
	w.command = len(l.open.origins) - 1
	l.open.waiters = append(l.open.waiters, w)
	wake := l.needsWake()
	l.mu.Unlock()
	if wake {
		l.wake()
	}
	return protocol.StatusOK
}

// add appends to the open batch, sealing it first when it is full. Caller holds mu.
func (l *proposalQueue) add(c shard.Command, o Origin) {
	b := l.open
	if !b.empty() && (b.size()+len(c.Body) > l.maxBatch || len(b.origins) >= l.maxCommands) {
		l.sealed = append(l.sealed, b)
		b = l.pool.get()
		l.open = b
	}
	before := b.size()
	b.add(c, o)
	l.waitingBytes += b.size() - before
}

// requestTick has an entry proposed soon, even an empty one, so that log time reaches what is due.
func (l *proposalQueue) requestTick() {
	l.mu.Lock()
	if l.phase == leading && !l.draining {
		l.tick = true
	}
	l.mu.Unlock()
	l.wake()
}

// next takes the next batch to propose and puts it in flight, under the next number of the held epoch. Nil: there is nothing to do, or it must wait; the
// proposer is woken when that changes.
func (l *proposalQueue) next(began int64) *batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.idle = true
	if l.phase != leading || l.ownEpoch != l.takeOverEpoch || !l.hasRoom() || l.paused && !l.draining {
		return nil
	}
	var b *batch
	switch {
	case len(l.sealed) > 0:
		b = l.sealed[0]
		l.sealed[0] = nil
		l.sealed = l.sealed[1:]
	case !l.open.empty() || l.tick:
		b = l.open
		l.open = l.pool.get()
	default:
		return nil
	}
	l.idle = false
	l.tick = false
	l.waitingBytes -= b.size()
	l.seq++
	b.epoch, b.seq, b.began = l.ownEpoch, l.seq, began
	l.inFlight = append(l.inFlight, b)
	return b
}

// land takes the batch with this number out of flight, nil if it is not, or not any more, there. More says that the proposer has something to do.
func (l *proposalQueue) removeInFlight(epoch, seq uint64) (b *batch, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, f := range l.inFlight {
		if f.epoch == epoch && f.seq == seq {
			l.inFlight = append(l.inFlight[:i], l.inFlight[i+1:]...)
			return f, len(l.sealed) > 0 || !l.open.empty() || l.tick || l.draining
		}
	}
	return nil, false
}

// removeOlderInFlight takes everything out of flight that was proposed under an older epoch: the register has passed it by.
func (l *proposalQueue) removeOlderInFlight(epoch uint64) (list []*batch) {
	keep := l.inFlight[:0]
	for _, f := range l.inFlight {
		if f.epoch < epoch {
			list = append(list, f)
		} else {
			keep = append(keep, f)
		}
	}
	clear(l.inFlight[len(keep):])
	l.inFlight = keep
	return list
}

// takeWaiting empties the open batch and the sealed ones: they were never proposed. Caller holds mu.
func (l *proposalQueue) takeWaiting() (list []*batch) {
	list = append(list, l.sealed...)
	clear(l.sealed)
	l.sealed = l.sealed[:0]
	if !l.open.empty() {
		list = append(list, l.open)
		l.open = l.pool.get()
	}
	l.waitingBytes = 0
	l.tick = false
	return list
}

// recycle gives batches back whose outcome has been told.
func (l *proposalQueue) recycle(list ...*batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range list {
		l.pool.put(b)
	}
}

// undetermined notes that nobody can tell what became of a batch in flight. It stays there: the epoch is retaken, and when the new one is applied, what is
// still in flight under the old one is refused for ever.
func (l *proposalQueue) markUndetermined(epoch, seq uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.inFlight {
		if f.epoch == epoch && f.seq == seq {
			if l.phase == leading && epoch == l.ownEpoch {
				l.takeOverAgain = true
			}
			return true
		}
	}
	return false
}

// quiet says that nothing waits and nothing is in flight.
func (l *proposalQueue) empty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.emptyLocked()
}

func (l *proposalQueue) emptyLocked() bool {
	return len(l.inFlight) == 0 && len(l.sealed) == 0 && l.open.empty() && !l.tick && !l.takeOverInFlight && !l.takeOverAgain
}

// drain refuses new commands and waits until the line is quiet, at most for the given time.
func (l *proposalQueue) drain(most time.Duration) {
	l.mu.Lock()
	l.draining = true
	l.mu.Unlock()
	end := time.Now().Add(most)
	for time.Now().Before(end) {
		l.mu.Lock()
		done := l.phase != leading || l.emptyLocked()
		l.mu.Unlock()
		if done {
			return
		}
		l.wake()
		time.Sleep(time.Millisecond)
	}
}

// shut ends the line and returns what was never proposed.
func (l *proposalQueue) close() []*batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.phase = stopping
	l.leading.Store(false)
	return l.takeWaiting()
}
