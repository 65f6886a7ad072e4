package replica

import (
	"context"
	"sync"
	"time"
)

// readBarriers collects callers that wait for a read barrier. A round of read-index serves all that
// came before it began.
type readBarriers struct {
	wakeup        chan struct{}
	leaderChanged chan struct{} // raft reported another leader, or none

	// lastProof is the start of the last proof of leadership: a barrier that found the own epoch,
	// or an own batch that was applied. lastRead is the start of the last read-index that
	// succeeded. Any replica can make one: it proves that the replica is up to date, not that it
	// leads.
	lastProof, lastRead roundStart

	mu      sync.Mutex
	waiting []func(ok bool)
	spare   []func(ok bool)
	refresh bool // make a round even without waiters
	closed  bool // the goroutine has ended
	running bool // a round is under way, or its waiters are being called
}

func (b *readBarriers) init() {
	b.wakeup, b.leaderChanged = make(chan struct{}, 1), make(chan struct{}, 1)
}

func (b *readBarriers) noteLeaderChange() {
	select {
	case b.leaderChanged <- struct{}{}:
	default:
	}
}

func (b *readBarriers) wake() {
	select {
	case b.wakeup <- struct{}{}:
	default:
	}
}

// Barrier calls fn after a read barrier that began after this call. If ok, a linearizable read of
// the shard's epoch register returned this replica's own epoch: it led at a moment after the call,
// and its machine had applied everything acknowledged before. Waiting callers share a barrier. fn
// runs on the shard's barrier goroutine and must not block. It is called exactly once, with false
// if the replica stops.
func (s *Shard) Barrier(fn func(ok bool)) {
	b := &s.barriers
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		go fn(false)
		return
	}
	b.waiting = append(b.waiting, fn)
	first := len(b.waiting) == 1
	b.mu.Unlock()
	if first {
		b.wake()
	}
}

// Fresh reports whether this replica's machine was up to date less than within ago. On a leader
// that is the start of its last barrier, so it led then; on another replica the start of its last
// read-index, see followPeriod.
func (s *Shard) Fresh(within time.Duration) bool { return s.FreshAt(s.clock.Now(), within) }

// FreshAt is Fresh at a time that the caller has read from the host's clock: reading it is a system
// call.
func (s *Shard) FreshAt(now, within time.Duration) bool {
	if s.Leading() {
		return s.barriers.lastProof.within(now, within)
	}
	return s.barriers.lastRead.within(now, within)
}

// ProofAge is the age, at now, of the last proof that this replica leads: the start of a barrier,
// or of an own batch that was applied. The machine has everything committed by then. False: it does
// not lead, or has not proved it yet.
func (s *Shard) ProofAge(now time.Duration) (age time.Duration, ok bool) {
	at := s.barriers.lastProof.at.Load()
	return max(0, now-time.Duration(at)), at != 0 && s.Leading()
}

// readPeriod is the time between two self-checks of the leader.
func (s *Shard) readPeriod() time.Duration {
	switch asked := s.selfCheck.Load(); {
	case s.cfg.ReadPeriod > 0:
		return s.cfg.ReadPeriod
	case asked > 0:
		return time.Duration(asked) * time.Millisecond
	default:
		return defaultReadPeriod
	}
}

// A replica that does not lead makes a read-index when this part of the least grace period is over.
// The rest is for rounds that fail.
const gracePeriodDivisor = 2

// followPeriod is the time between two rounds on a replica that does not lead. It answers reads for
// a node's grace period after a round, and has nothing else to prove.
func (s *Shard) followPeriod() time.Duration {
	if s.cfg.ReadPeriod > 0 {
		return s.cfg.ReadPeriod
	}
	return max(s.readPeriod(), time.Duration(s.grace.Load())*time.Millisecond/gracePeriodDivisor)
}

// due reports whether a round is due: the last one is older than the period, or older than half of
// it if a multiple of the period has passed since. So the rounds of all idle shards here come
// together and share messages to the other instances.
func (x *roundStart) due(now, period time.Duration) bool {
	at := time.Duration(x.at.Load())
	return at == 0 || now-at >= period || now-at >= period/2 && at < now.Truncate(period)
}

// refreshIfDue makes a round if it is due.
func (s *Shard) refreshIfDue(now time.Duration) {
	b := &s.barriers
	last, period := &b.lastRead, s.followPeriod
	if s.Leading() {
		last, period = &b.lastProof, s.readPeriod
	}
	if !last.due(now, period()) {
		return
	}
	b.mu.Lock()
	b.refresh = true
	b.mu.Unlock()
	b.wake()
}

func (b *readBarriers) take() (list []func(ok bool), any bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	list, b.waiting = b.waiting, b.spare[:0]
	b.spare = nil
	any = len(list) > 0 || b.refresh
	b.running = any
	b.refresh = false
	return list, any
}

func (b *readBarriers) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting) == 0 && !b.refresh && !b.running
}

func (s *Shard) barrierLoop() {
	defer s.wg.Done()
	b := &s.barriers
	for {
		list, any := b.take()
		if !any {
			select {
			case <-b.wakeup:
				continue
			case <-s.stopC:
				s.endBarriers()
				return
			}
		}
		ok := s.readRound()
		for _, fn := range list {
			fn(ok)
		}
		clear(list)
		b.mu.Lock()
		b.spare = list[:0]
		b.running = false
		b.mu.Unlock()
		if isClosed(s.stopC) {
			s.endBarriers()
			return
		}
	}
}

func (s *Shard) endBarriers() {
	s.barriers.mu.Lock()
	s.barriers.closed = true
	s.barriers.mu.Unlock()
	list, _ := s.barriers.take()
	for _, fn := range list {
		fn(false)
	}
}

// readRound makes one read-index and checks the epoch register. Read-index alone does not prove
// leadership: the engine forwards it to a new leader, where it succeeds.
func (s *Shard) readRound() bool {
	start := s.clock.Now()
	var ok bool
	if s.cfg.readVia != nil {
		ok = s.cfg.readVia(s.readIndex)
	} else {
		ok = s.readIndex()
	}
	if !ok {
		s.counters.barrierFails.Add(1)
		return false
	}
	s.barriers.lastRead.note(start)
	s.mu.RLock()
	epoch := s.machine.Epoch()
	s.mu.RUnlock()
	if !s.proposals.isOwnEpoch(epoch) {
		if s.Leading() {
			s.counters.barrierFails.Add(1)
		}
		return false
	}
	s.counters.barriers.Add(1)
	s.barriers.lastProof.note(start)
	return true
}

func (s *Shard) readIndex() bool {
	term, leader := s.proposals.raftStatus()
	// A former leader may never answer, and must not delay barriers of the present one.
	return s.host.engine.readIndex(context.Background(), s.cfg.ID, s.cfg.ProposeTimeout, s.stopC, s.barriers.leaderChanged, func() bool {
		t, l := s.proposals.raftStatus()
		return t != term || l != leader
	})
}
