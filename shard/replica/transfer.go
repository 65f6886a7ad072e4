package replica

import (
	"context"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica/proposal"
)

const (
	transferAttempts   = 3
	transferTimeout    = 80 * time.Millisecond // of the first attempt; doubles
	transferPause      = 50 * time.Millisecond // between two attempts, for waiting requests
	transferPoll       = time.Millisecond
	logTransferTimeout = 200 * time.Millisecond // of logging the transfer; then the change counts as unplanned
)

// await polls until ok, or for a limited time, and returns ok's last result.
func await(ctx context.Context, stop <-chan struct{}, most time.Duration, ok func() bool) bool {
	end := time.NewTimer(most)
	defer end.Stop()
	t := time.NewTicker(transferPoll)
	defer t.Stop()
	for !ok() {
		select {
		case <-t.C:
		case <-end.C:
			return ok()
		case <-ctx.Done():
			return false
		case <-stop:
			return false
		}
	}
	return true
}

// shardTransfer hands the leadership of a data shard over to another replica.
type shardTransfer struct {
	s  *Shard
	mu sync.Mutex // held during a transfer
}

func (t *shardTransfer) run(ctx context.Context, to, after uint64) (err error) {
	s := t.s
	if term, leads := s.proposals.LeaderTerm(); leads && to == s.cfg.Replica {
		return checkNewerTerm(s.cfg.ID, term, after)
	}
	if !t.mu.TryLock() {
		return protocol.Errorf(protocol.StatusAborted, "leadership of shard %d is being transferred already",
			s.cfg.ID)
	}
	defer t.mu.Unlock()
	first, cancel := context.WithTimeout(ctx, logTransferTimeout)
	_ = t.log(first) // the transfer does not depend on it
	cancel()
	defer func() {
		if err != nil {
			t.cancel()
		}
	}()
	for try := range transferAttempts {
		if try > 0 {
			await(ctx, s.stopC, transferPause, func() bool { return false })
		}
		if term, leads := s.proposals.LeaderTerm(); leads && to == s.cfg.Replica {
			return checkNewerTerm(s.cfg.ID, term, after)
		}
		moved, err := t.try(ctx, to, transferTimeout<<try)
		if err != nil {
			return err
		}
		if moved == 0 {
			continue
		}
		// Raft has reported a new term. It counts once the epoch of the term is applied.
		var leader, term uint64
		known := await(ctx, s.stopC, s.host.engine.ChangeTimeout(), func() bool {
			term, leader = s.proposals.RaftStatus()
			return leader != 0 && term >= moved && s.machine.epoch()>>16 == term
		})
		switch {
		case !known:
			return protocol.Errorf(protocol.StatusUnavailable,
				"shard %d has lost its leader and has no new one yet; retry", s.cfg.ID)
		case leader == to:
			return checkNewerTerm(s.cfg.ID, term, after)
		case leader != s.cfg.Replica:
			return protocol.Errorf(protocol.StatusAborted, "leadership of shard %d went to replica %d",
				s.cfg.ID, leader)
		}
	}
	return protocol.Errorf(protocol.StatusAborted,
		"replica %d of shard %d did not take over in %d attempts; check that it is up to date", to, s.cfg.ID,
		transferAttempts)
}

// log is [Shard.LogTransfer].
func (t *shardTransfer) log(ctx context.Context) error {
	s := t.s
	if !s.Leading() {
		return protocol.Errorf(protocol.StatusUnavailable, "shard %d is not led here; ask its leader", s.cfg.ID)
	}
	done := make(chan struct{})
	s.tasks.Transfer(done)
	select {
	case <-done:
	case <-ctx.Done():
		return ctx.Err()
	}
	return s.ProposeInternal(ctx, shard.Command{Kind: shard.CmdTransfer, Body: shard.TransferBegins})
}

// cancel logs that the leadership stays.
func (t *shardTransfer) cancel() {
	cmd := shard.Command{Kind: shard.CmdTransfer, Body: shard.TransferCancelled}
	t.s.proposals.SubmitInternal(cmd, proposal.Waiter{Done: func(error) {}})
}

// checkNewerTerm rejects a leadership whose term is not newer than the given one.
func checkNewerTerm(shard, term, after uint64) error {
	if term > after {
		return nil
	}
	return protocol.Errorf(protocol.StatusUnavailable,
		"shard %d has a leader of term %d, but the newest term known here is %d; ask its leader", shard, after, term)
}

// try pauses the proposer, requests a transfer once, and returns the new term, 0 for none.
func (t *shardTransfer) try(ctx context.Context, to uint64, most time.Duration) (moved uint64, err error) {
	s := t.s
	q := &s.proposals
	term, leads := q.Pause()
	if !leads {
		return 0, protocol.Errorf(protocol.StatusUnavailable, "shard %d is not led here; ask its leader", s.cfg.ID)
	}
	defer q.Resume()
	// A target ignores the request until it has applied all that is committed. What is applied here
	// is committed, and the others learn of it at once.
	if !await(ctx, s.stopC, most, q.NothingInFlight) {
		return 0, ctx.Err()
	}
	asked := time.Now()
	if err := s.host.engine.TransferLeader(s.cfg.ID, to); err != nil {
		return 0, nil // another transfer is under way in the engine
	}
	changed := func() bool {
		newer, stopping := q.NewerTerm(term)
		moved = max(moved, newer)
		return moved > 0 || stopping
	}
	if await(ctx, s.stopC, transferTimeout, changed) {
		return moved, nil
	}
	// The engine would drop proposals made now. The target may still take over.
	await(context.WithoutCancel(ctx), s.stopC, s.host.engine.TransferTimeout()-time.Since(asked), changed)
	if moved > 0 {
		return moved, nil
	}
	return 0, ctx.Err()
}

// transfer of the meta shard needs no pause: dropped commands are proposed again.
func (m *Meta) transfer(ctx context.Context, to, after uint64) error {
	var term uint64
	moved := func() bool {
		var leader uint64
		leader, term = m.host.groups.leaderOf(MetaShard, m.cfg.Replica)
		return leader == to && m.leader.Load() == to
	}
	for range transferAttempts {
		if moved() {
			return checkNewerTerm(MetaShard, term, after)
		}
		if err := m.host.engine.TransferLeader(MetaShard, to); err != nil {
			await(ctx, m.stopC, transferPause, func() bool { return false })
			continue
		}
		if await(ctx, m.stopC, m.host.engine.TransferTimeout(), moved) {
			return checkNewerTerm(MetaShard, term, after)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if isClosed(m.stopC) {
		return errHostClosed
	}
	return protocol.Errorf(protocol.StatusAborted,
		"replica %d of the meta shard did not take over in %d attempts; check that it is up to date", to,
		transferAttempts)
}
