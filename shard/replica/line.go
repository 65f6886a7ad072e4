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
	following phase = iota // another replica leads, or none
	claiming               // raft made this one the leader; its epoch is not applied yet
	leading                // its epoch is applied: requests are accepted
	stopping               // the replica is stopping
)

// line is the way into the log: commands wait in the open batch, then in sealed ones, then in flight, until the log says what became of them.
//
// Invariants, all under mu:
//   - a batch is in at most one of open, sealed, flight; whoever takes it out of flight, and nobody else, tells its origins the outcome
//   - open and sealed hold something only in phase leading
//   - flight is in order of (epoch, seq); every batch in it was proposed, or is about to be, under an epoch of this replica's own
//   - held is the last epoch of this replica's own that was applied in its present term, 0 before that; held <= claim
//   - a batch is proposed only while held == claim: while the epoch is retaken nothing new enters the log under the old one
type line struct {
	leading atomic.Bool   // phase == leading, for readers in a hurry
	leader  atomic.Uint64 // replica id, 0 unknown

	maxOpen, maxBatch, maxCommands, maxFlight int
	alone                                     bool // the group had no other members when it was started

	wakeC chan struct{}

	mu       sync.Mutex
	phase    phase
	draining bool // nothing is accepted any more; what is there still goes out
	paused   bool // nothing is proposed: leadership is being handed over
	parked   bool // nobody proposes, and nobody was told to yet
	pool     batchPool
	open     *batch
	sealed   []*batch
	waiting  int // bytes in open and sealed
	flight   []*batch
	tick     bool // propose a batch even if it is empty

	news           bool // newTerm, newLeader were not looked at yet
	newTerm        uint64
	newLeader      uint64
	term           uint64 // of this replica's leadership, or the last one
	claim          uint64 // the latest epoch proposed in it
	held           uint64
	seq            uint64 // of the last batch proposed under held
	retake         bool   // a batch under held is undetermined
	claimUnderWay  bool
	claimNotBefore time.Time
}

func (l *line) init(cfg ShardConfig) {
	l.maxOpen, l.maxBatch, l.maxCommands, l.maxFlight = cfg.MaxOpenBytes, cfg.MaxBatchBytes, cfg.MaxBatchCommands, cfg.InFlight
	l.alone = len(cfg.Members) == 1
	l.wakeC = make(chan struct{}, 1)
	l.open = l.pool.get()
}

func (l *line) wake() {
	select {
	case l.wakeC <- struct{}{}:
	default:
	}
}

// Submit queues a command for the next batch and copies its body. It never blocks. StatusOK: the outcome will come through the sink. StatusUnavailable:
// this replica does not lead. StatusOverloaded: too many bytes wait already.
func (s *Shard) Submit(c shard.Command, o Origin) protocol.Status {
	st, due := s.SubmitMore(c, o)
	if due {
		s.line.wake()
	}
	return st
}

// SubmitMore is Submit for a caller that has more to submit. When it says due, the caller must call [Shard.Propose] soon, once it has submitted the rest: nobody
// else sees to what waits.
func (s *Shard) SubmitMore(c shard.Command, o Origin) (st protocol.Status, due bool) {
	l := &s.line
	if !l.leading.Load() {
		return protocol.StatusUnavailable, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phase != leading || l.draining {
		return protocol.StatusUnavailable, false
	}
	if l.waiting+len(c.Body) > l.maxOpen {
		s.counters.overloaded.Add(1)
		return protocol.StatusOverloaded, false
	}
	l.add(c, o)
	return protocol.StatusOK, l.rouse()
}

// rouse says whether the proposer must be woken for a command that was added. While there is no room, or the epoch is retaken, it need not: what ends that
// wakes it. Caller holds mu.
func (l *line) rouse() bool {
	if !l.parked || l.held != l.claim || !l.roomy() {
		return false
	}
	l.parked = false
	return true
}

// Where a group is alone, so many commands, or bytes of them, go on their way beside a batch in flight.
const (
	worthCommands = 64
	worthBytes    = 16 << 10
)

// roomy says whether what is open may be proposed now. In a group that is alone, a few commands wait for the batch in flight to land: the engine's worker syncs
// one thing after the other, so that they would be no earlier on the disk, and each batch has its price. In other groups batches overlap on the network. Caller
// holds mu.
func (l *line) roomy() bool {
	switch n := len(l.flight); {
	case n == 0:
		return true
	case n >= l.maxFlight:
		return false
	}
	return !l.alone || len(l.sealed) > 0 || len(l.open.origins) >= worthCommands || l.open.size() >= worthBytes
}

// submit is Submit for commands of the replica's own: few, small, and not to be lost behind a full line.
func (l *line) submit(s *Shard, c shard.Command, o Origin, fn func(error)) protocol.Status {
	return l.submitWait(c, o, wait{fn: fn})
}

func (l *line) submitWait(c shard.Command, o Origin, w wait) protocol.Status {
	l.mu.Lock()
	if l.phase != leading || l.draining {
		l.mu.Unlock()
		return protocol.StatusUnavailable
	}
	l.add(c, o)
	w.command = len(l.open.origins) - 1
	l.open.waits = append(l.open.waits, w)
	rouse := l.rouse()
	l.mu.Unlock()
	if rouse {
		l.wake()
	}
	return protocol.StatusOK
}

// add appends to the open batch, sealing it first when it is full. Caller holds mu.
func (l *line) add(c shard.Command, o Origin) {
	b := l.open
	if !b.empty() && (b.size()+len(c.Body) > l.maxBatch || len(b.origins) >= l.maxCommands) {
		l.sealed = append(l.sealed, b)
		b = l.pool.get()
		l.open = b
	}
	before := b.size()
	b.add(c, o)
	l.waiting += b.size() - before
}

// askTick has an entry proposed soon, even an empty one, so that log time reaches what is due.
func (l *line) askTick() {
	l.mu.Lock()
	if l.phase == leading && !l.draining {
		l.tick = true
	}
	l.mu.Unlock()
	l.wake()
}

// next takes the next batch to propose and puts it in flight, under the next number of the held epoch. Nil: there is nothing to do, or it must wait; the
// proposer is woken when that changes.
func (l *line) next(began int64) *batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.parked = true
	if l.phase != leading || l.held != l.claim || !l.roomy() || l.paused && !l.draining {
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
	l.parked = false
	l.tick = false
	l.waiting -= b.size()
	l.seq++
	b.epoch, b.seq, b.began = l.held, l.seq, began
	l.flight = append(l.flight, b)
	return b
}

// land takes the batch with this number out of flight, nil if it is not, or not any more, there. More says that the proposer has something to do.
func (l *line) land(epoch, seq uint64) (b *batch, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, f := range l.flight {
		if f.epoch == epoch && f.seq == seq {
			l.flight = append(l.flight[:i], l.flight[i+1:]...)
			return f, len(l.sealed) > 0 || !l.open.empty() || l.tick || l.draining
		}
	}
	return nil, false
}

// landOlder takes everything out of flight that was proposed under an older epoch: the register has passed it by.
func (l *line) landOlder(epoch uint64) (list []*batch) {
	keep := l.flight[:0]
	for _, f := range l.flight {
		if f.epoch < epoch {
			list = append(list, f)
		} else {
			keep = append(keep, f)
		}
	}
	clear(l.flight[len(keep):])
	l.flight = keep
	return list
}

// takeWaiting empties the open batch and the sealed ones: they were never proposed. Caller holds mu.
func (l *line) takeWaiting() (list []*batch) {
	list = append(list, l.sealed...)
	clear(l.sealed)
	l.sealed = l.sealed[:0]
	if !l.open.empty() {
		list = append(list, l.open)
		l.open = l.pool.get()
	}
	l.waiting = 0
	l.tick = false
	return list
}

// recycle gives batches back whose outcome has been told.
func (l *line) recycle(list ...*batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range list {
		l.pool.put(b)
	}
}

// undetermined notes that nobody can tell what became of a batch in flight. It stays there: the epoch is retaken, and when the new one is applied, what is
// still in flight under the old one is refused for ever.
func (l *line) undetermined(epoch, seq uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.flight {
		if f.epoch == epoch && f.seq == seq {
			if l.phase == leading && epoch == l.held {
				l.retake = true
			}
			return true
		}
	}
	return false
}

// quiet says that nothing waits and nothing is in flight.
func (l *line) quiet() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.quietLocked()
}

func (l *line) quietLocked() bool {
	return len(l.flight) == 0 && len(l.sealed) == 0 && l.open.empty() && !l.tick && !l.claimUnderWay && !l.retake
}

// drain refuses new commands and waits until the line is quiet, at most for the given time.
func (l *line) drain(most time.Duration) {
	l.mu.Lock()
	l.draining = true
	l.mu.Unlock()
	end := time.Now().Add(most)
	for time.Now().Before(end) {
		l.mu.Lock()
		done := l.phase != leading || l.quietLocked()
		l.mu.Unlock()
		if done {
			return
		}
		l.wake()
		time.Sleep(time.Millisecond)
	}
}

// shut ends the line and returns what was never proposed.
func (l *line) shut() []*batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.phase = stopping
	l.leading.Store(false)
	return l.takeWaiting()
}
