package replica

import (
	"context"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/shard/replica/wakeup"
)

// readBarriers collects callers that wait for a read barrier. A round of read-index serves all that
// came before it began.
type readBarriers struct {
	s       *Shard
	periods readPeriods
	wakeup.Wakeup
	leaderChanged wakeup.Wakeup // raft reported another leader, or none

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

func (b *readBarriers) init(s *Shard) {
	b.s, b.periods.fixed = s, s.cfg.ReadPeriod
	b.Wakeup, b.leaderChanged = wakeup.New(), wakeup.New()
}

// add has fn called after the next barrier that begins.
func (b *readBarriers) add(fn func(ok bool)) {
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
		b.Wake()
	}
}

func (b *readBarriers) refreshIfDue(now time.Duration) {
	last, period := &b.lastRead, b.periods.follower
	if b.s.Leading() {
		last, period = &b.lastProof, b.periods.leader
	}
	if !last.due(now, period()) {
		return
	}
	b.mu.Lock()
	b.refresh = true
	b.mu.Unlock()
	b.Wake()
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

func (b *readBarriers) loop() {
	stop := b.s.stopC
	for {
		list, any := b.take()
		if !any {
			select {
			case <-b.Wakeup:
				continue
			case <-stop:
				b.end()
				return
			}
		}
		ok := b.round()
		for _, fn := range list {
			fn(ok)
		}
		clear(list)
		b.mu.Lock()
		b.spare = list[:0]
		b.running = false
		b.mu.Unlock()
		if isClosed(stop) {
			b.end()
			return
		}
	}
}

func (b *readBarriers) end() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	list, _ := b.take()
	for _, fn := range list {
		fn(false)
	}
}

// round makes one read-index and checks the epoch register. Read-index alone does not prove
// leadership: the engine forwards it to a new leader, where it succeeds.
func (b *readBarriers) round() bool {
	s := b.s
	start := s.clock.Now()
	var ok bool
	if s.cfg.readVia != nil {
		ok = s.cfg.readVia(b.readIndex)
	} else {
		ok = b.readIndex()
	}
	if !ok {
		s.counters.barrierFails.Add(1)
		if sink, is := s.sink.(StaleSink); is {
			sink.Stale(s, s.Age(s.clock.Now()))
		}
		return false
	}
	b.lastRead.note(start)
	if !s.proposals.OwnsEpoch(s.machine.epoch()) {
		if s.Leading() {
			s.counters.barrierFails.Add(1)
		}
		return false
	}
	s.counters.barriers.Add(1)
	b.lastProof.note(start)
	return true
}

func (b *readBarriers) readIndex() bool {
	s := b.s
	term, leader := s.proposals.RaftStatus()
	// A former leader may never answer, and must not delay barriers of the present one.
	return s.host.engine.ReadIndex(context.Background(), s.cfg.ID, s.cfg.ProposeTimeout, s.stopC, b.leaderChanged,
		func() bool {
			t, l := s.proposals.RaftStatus()
			return t != term || l != leader
		})
}
