package replica

import (
	"context"
	"io"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/lni/dragonboat/v4/client"
	"github.com/lni/dragonboat/v4/statemachine"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/leader"
	"github.com/signalbox-dev/signalbox/shard/replica/engine"
	"github.com/signalbox-dev/signalbox/shard/replica/leaderdriver"
	"github.com/signalbox-dev/signalbox/shard/replica/proposal"
)

// Shard is one replica of a data shard. All methods are safe for concurrent use.
type Shard struct {
	cfg     ShardConfig
	host    *Host
	group   *group
	clock   Clock
	log     *slog.Logger
	sink    Sink
	session *client.Session

	// applyMu is held during each step of the log, Apply and the sink's delivery. Locks are taken
	// in the order applyMu, machine.mu, the queue's.
	applyMu   sync.Mutex
	events    shard.Events  // of the step
	appliedAt time.Duration // of the last entry

	machine    lockedMachine
	proposals  proposal.Queue
	proposer   proposer
	leadership leadership
	transfers  shardTransfer
	barriers   readBarriers
	logTime    logClock
	driver     *leaderdriver.Driver
	tasks      leaderdriver.Tasks
	members    *leaderdriver.Members
	limits     *leaderdriver.RateLimits
	logTail    logTail
	counters   counters

	stopC    chan struct{} // closed before the engine stops this replica
	stopOnce sync.Once
	wg       sync.WaitGroup
}

// StartShard starts a replica. It returns before the log is read back: the replica is ready when
// LeaderChanged was called for it.
func (h *Host) StartShard(cfg ShardConfig) (*Shard, error) {
	if err := cfg.check(h.cfg.RTT); err != nil {
		return nil, err
	}

	s := &Shard{
		cfg:     cfg,
		host:    h,
		clock:   h.clock,
		log:     h.log.With("shard", cfg.ID),
		sink:    cfg.Sink,
		session: h.engine.Session(cfg.ID),
		machine: lockedMachine{machine: shard.New(cfg.ID)},
		stopC:   make(chan struct{}),
	}
	s.leadership.s, s.transfers.s = s, s
	s.logTime.clock, s.logTail.most = s.clock, cfg.SnapshotBytes
	s.proposals.Init(proposal.Limits{
		OpenBytes: cfg.MaxOpenBytes, BatchBytes: cfg.MaxBatchBytes, BatchCommands: cfg.MaxBatchCommands,
		InFlight: cfg.InFlight, Single: len(cfg.Members) == 1,
	})
	s.proposer.init(s)
	s.barriers.init(s)
	s.tasks.Init()
	s.members = leaderdriver.NewMembers(memberSide{(*leaderSide)(s), cfg.Relay})
	s.limits = leaderdriver.NewRateLimits(limitSide{s, cfg.Limits})
	parts := []leaderdriver.Part{leaderdriver.NewLeader(cfg.ID, (*leaderSide)(s), &s.tasks, cfg.Route)}
	if cfg.Relay != nil {
		parts = append(parts, s.members)
	}
	if cfg.Limits != nil {
		parts = append(parts, s.limits)
	}
	s.driver = leaderdriver.New(parts...)
	s.group = &group{shard: cfg.ID, id: cfg.Replica, replica: s}
	create := func(uint64, uint64) statemachine.IConcurrentStateMachine { return (*stateMachine)(s) }
	raft := engine.GroupConfig(cfg.ID, cfg.Replica, cfg.SnapshotEntries, cfg.CompactionOverhead)
	// The host may be closed from another goroutine as soon as it knows the group: it waits for the
	// goroutines.
	loops := append(s.driver.Loops(s.stopC), s.proposer.loop, s.barriers.loop)
	s.wg.Add(len(loops))
	if err := h.startGroup(s.group, bootstrap{cfg.Members, cfg.Join}, create, raft); err != nil {
		s.wg.Add(-len(loops))
		return nil, err
	}
	for _, loop := range loops {
		go func() {
			defer s.wg.Done()
			loop()
		}()
	}
	return s, nil
}

// ID is the shard's id.
func (s *Shard) ID() uint64 { return s.cfg.ID }

// Replica is this replica's id in the shard.
func (s *Shard) Replica() uint64 { return s.cfg.Replica }

// View runs fn with the machine, which does not change meanwhile. Calls may run concurrently. Keep
// fn short: the log waits.
func (s *Shard) View(fn func(m *shard.Machine)) { s.machine.view(fn) }

// Exclusive runs fn between two steps of the log: no entry is applied and no event delivered
// meanwhile. So the state that fn reads and the watches that it registers for later events fit
// together without a gap. It must not be called inside a [Sink].
func (s *Shard) Exclusive(fn func(m *shard.Machine)) {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	s.machine.view(fn)
}

// Leading reports whether this replica leads, as far as it knows: its own epoch is applied. Only a
// barrier proves it.
func (s *Shard) Leading() bool { return s.proposals.Leading() }

// LeaderReplica is the replica id of the leader as known here, 0 for none.
func (s *Shard) LeaderReplica() uint64 { return s.leadership.known.Load() }

// Term is the newest raft term known here.
func (s *Shard) Term() uint64 {
	term, _ := s.proposals.RaftStatus()
	return term
}

// Digest is the machine's digest, equal on all replicas that applied the same log.
func (s *Shard) Digest() (digest uint64) {
	s.machine.view(func(m *shard.Machine) { digest = m.Digest() })
	return digest
}

// Backup writes a snapshot of the machine while the log goes on, and returns the index of its last
// entry. It returns StatusUnavailable, to be retried, while another backup or a snapshot of the
// engine is being written, and if one begins meanwhile.
func (s *Shard) Backup(w io.Writer) (index uint64, err error) {
	index, err = s.machine.writeBackup(&stoppableWriter{w: w, stop: s.stopC})
	if err != nil {
		return 0, protocol.Errorf(protocol.StatusUnavailable, "backup of shard %d: %v", s.cfg.ID, err)
	}
	return index, nil
}

// Barrier calls fn after a read barrier that began after this call. If ok, a linearizable read of
// the shard's epoch register returned this replica's own epoch: it led at a moment after the call,
// and its machine had applied everything acknowledged before. Waiting callers share a barrier. fn
// runs on the shard's barrier goroutine and must not block. It is called exactly once, with false
// if the replica stops.
func (s *Shard) Barrier(fn func(ok bool)) { s.barriers.add(fn) }

// Fresh reports whether this replica's machine was up to date less than within ago. On a leader
// that is the start of its last barrier, so it led then; on another replica the start of its last
// read-index, see [readPeriods].
func (s *Shard) Fresh(within time.Duration) bool { return s.FreshAt(s.clock.Now(), within) }

// FreshAt is Fresh at a time that the caller has read from the host's clock: reading it is a system
// call.
func (s *Shard) FreshAt(now, within time.Duration) bool {
	if s.Leading() {
		return s.barriers.lastProof.within(now, within)
	}
	return s.barriers.lastRead.within(now, within)
}

// Age is how old the machine may be at now: the time since the start of the last round of
// read-index that succeeded, or of the last proof of leadership. What was acknowledged before that
// is in the machine. With neither since the replica was started it may be of any age: Age is the
// longest duration.
func (s *Shard) Age(now time.Duration) time.Duration {
	at := time.Duration(max(s.barriers.lastRead.at.Load(), s.barriers.lastProof.at.Load()))
	if at == 0 {
		return math.MaxInt64
	}
	return max(0, now-at)
}

// ProofAge returns the age, at now, of the last proof that this replica leads: the start of a
// barrier, or of an own batch that was applied. The machine has everything committed by then. ok is
// false if the replica does not lead, or has not proved it yet.
func (s *Shard) ProofAge(now time.Duration) (age time.Duration, ok bool) {
	at := s.barriers.lastProof.at.Load()
	return max(0, now-time.Duration(at)), at != 0 && s.Leading()
}

// LogTime returns the stamp of a batch proposed now, or 0 if this replica does not lead. The
// machine's log time is that of the last entry, which is older in an idle shard.
func (s *Shard) LogTime() uint64 {
	if !s.Leading() {
		return 0
	}
	return s.logTime.stamp()
}

// RelayStats returns the counters of members' messages.
func (s *Shard) RelayStats() leader.ProcessStats { return s.members.Stats() }

// RateLimits calls fn with the leases of the shard's rate limits, and returns false if this replica
// does not lead the shard of m, as far as its log says. It is called inside [Shard.View] with its
// machine, behind a barrier if fn grants or notifies.
func (s *Shard) RateLimits(m *shard.Machine, fn func(*leader.RateLimits)) bool {
	return s.limits.Do(m, fn)
}

// ProposeInternal proposes a command of the cluster itself (nodes, buckets) on the leader and waits
// until it is applied. The error carries a status. It is StatusUnavailable also if the outcome is
// unknown, so the command must be idempotent. The body is copied.
func (s *Shard) ProposeInternal(ctx context.Context, c shard.Command) error {
	done := make(chan error, 1)
	st := s.proposals.SubmitInternal(c, proposal.Waiter{Done: func(err error) { done <- err }})
	if st != protocol.StatusOK {
		return protocol.Errorf(st, "shard %d does not lead here or is busy; ask its leader again", s.cfg.ID)
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-s.stopC:
		return protocol.Errorf(protocol.StatusUnavailable, "shard %d is stopping; ask again", s.cfg.ID)
	}
}

// LogTransfer prepares for a leadership transfer: it logs the remaining time of sessions that were not
// heard lately, and then a CmdTransfer. The next leader then adds no grace period. It returns when
// that is applied. After an error the change of leader may count as unplanned.
func (s *Shard) LogTransfer(ctx context.Context) error { return s.transfers.log(ctx) }

func (s *Shard) transfer(ctx context.Context, to, after uint64) error {
	return s.transfers.run(ctx, to, after)
}

// leaderUpdated is called on the engine's event goroutine.
func (s *Shard) leaderUpdated(term, leader uint64) {
	s.proposals.SetRaftLeader(term, leader)
	s.barriers.leaderChanged.Wake()
}

// stop waits until batches in flight are applied, for at most a second, and ends the shard's
// goroutines. The engine still runs.
func (s *Shard) stop() {
	s.stopOnce.Do(func() {
		s.proposals.Drain(drainTimeout)
		close(s.stopC)
		s.wg.Wait()
		s.proposer.fail(s.proposals.Close(), protocol.StatusUnavailable)
	})
}

// stopped is called after the engine has stopped the replica: the outcome of batches in flight will
// not be known here.
func (s *Shard) stopped() {
	s.proposer.cutUndetermined("outcome unknown: the replica has stopped")
}
