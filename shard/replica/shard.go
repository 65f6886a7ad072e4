package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lni/dragonboat/v4/client"
	"github.com/lni/dragonboat/v4/statemachine"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

const (
	defaultSnapshotEntries  = 100_000
	defaultSnapshotBytes    = 256 << 20
	DefaultMaxOpenBytes     = 16 << 20
	defaultMaxBatchBytes    = 256 << 10
	defaultMaxBatchCommands = 2048
	defaultInFlight         = 4
	defaultReadPeriod       = protocol.DefaultSelfCheckPeriod * time.Millisecond
	minProposeTimeout       = 2 * time.Second
	proposeTimeoutRTTs      = 50
	drainTimeout            = time.Second
)

// ShardConfig configures a shard's replica. ID, Replica and Sink are required, and Members unless
// it joins or restarts.
type ShardConfig struct {
	ID      uint64 // of the shard, from 1; never reused
	Replica uint64 // of this replica in the shard, from 1; never reused in the shard
	// Members of a new shard: replica id -> raft address, the same on all members. Members and Join
	// matter only when the replica starts on this host for the first time.
	Members map[uint64]string
	Join    bool // this replica was added to a running shard by [Host.AddNonVoting]; Members is empty

	Sink     Sink
	Messages MessageSender // nil: messages are dropped
	Relay    MemberSink    // nil: messages of members of processes are rejected
	// Route returns the shard and the epoch of a bucket of a tier, 0 for unknown. The leader's
	// goroutine calls it. Nil knows no bucket.
	Route func(tier uint8, bucket uint32) (shard, bucketEpoch uint64)
	// Heard returns the last receive on a connection by the host's clock, 0 for an unknown one. The
	// leader's goroutine calls it. Nil knows none.
	Heard func(conn uint64) time.Duration

	// MaxOpenBytes bounds the commands that wait for a proposal; beyond it Submit returns
	// StatusOverloaded. Default 16 MiB.
	MaxOpenBytes int
	// MaxBatchBytes and MaxBatchCommands bound a batch: a larger one would keep Apply busy for more
	// than a few milliseconds. Defaults 256 KiB and 2,048. A single command may be larger than
	// MaxBatchBytes.
	MaxBatchBytes    int
	MaxBatchCommands int
	// InFlight is the number of batches proposed and not yet applied, 1 to 64, default 4. More of
	// them make smaller batches.
	InFlight int
	// SnapshotEntries is the number of entries between snapshots, default 100,000.
	// CompactionOverhead is the number of entries kept before a snapshot, default half of it.
	SnapshotEntries, CompactionOverhead uint64
	// SnapshotBytes is the length of log after which a snapshot is saved with fewer entries too, or
	// the length of the last snapshot if that is more. Default 256 MiB.
	SnapshotBytes int64
	// ReadPeriod is how often the replica checks that it is up to date, for [Shard.Fresh], and a
	// leader that it leads. Default on the leader: the least self-check period of the shard's
	// nodes, 1 s without nodes. On others: half of the nodes' least grace period, if that is
	// longer.
	ReadPeriod time.Duration
	// ProposeTimeout is when a proposal counts as undetermined and the leader takes over a new
	// epoch. Default 50 round trip times, at least 2 s.
	ProposeTimeout time.Duration

	// Tests inject faults here.
	proposeVia func(next func(entry []byte) (engineProposal, error), entry []byte) (engineProposal, error)
	readVia    func(next func() bool) bool
}

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
	// in the order applyMu, mu, proposals.mu.
	applyMu         sync.Mutex
	events          shard.Events  // of the step
	appliedAt       time.Duration // of the last entry
	notified        bool          // the sink was notified of a leader
	notifiedLeader  uint64
	notifiedLeading bool

	// mu guards the machine. Apply and the steps of a snapshot hold it for writing, readers for
	// reading.
	mu      sync.RWMutex
	machine *shard.Machine
	backup  *shard.Snapshot // being written, while the engine writes no snapshot

	proposals  proposalQueue
	transferMu sync.Mutex // held during a leadership transfer
	proposer   proposer
	barriers   readBarriers
	tasks      taskQueue
	members    memberQueue
	counters   counters

	selfCheck atomic.Uint64 // ms: the least of the machine's nodes, as of the last tick
	grace     atomic.Uint64 // ms: their least grace period, as of the last tick
	logTail   logTail

	stopC    chan struct{} // closed before the engine stops this replica
	stopOnce sync.Once
	wg       sync.WaitGroup
}

// StartShard starts a replica. It returns before the log is read back: the replica is ready when
// LeaderChanged was called for it.
func (h *Host) StartShard(cfg ShardConfig) (*Shard, error) {
	if cfg.ID == 0 || cfg.ID >= MetaShard {
		return nil, fmt.Errorf("shard id is %d, but must be at least 1 and below %d", cfg.ID, MetaShard)
	}
	if cfg.Sink == nil {
		return nil, errors.New("shard needs a sink")
	}
	if cfg.InFlight < 0 || cfg.InFlight > 64 {
		return nil, fmt.Errorf("%d batches in flight, but must be 1 to 64", cfg.InFlight)
	}
	setDefault(&cfg.InFlight, defaultInFlight)
	setDefault(&cfg.MaxOpenBytes, DefaultMaxOpenBytes)
	setDefault(&cfg.MaxBatchBytes, defaultMaxBatchBytes)
	setDefault(&cfg.MaxBatchCommands, defaultMaxBatchCommands)
	setDefault(&cfg.SnapshotBytes, defaultSnapshotBytes)
	setDefault(&cfg.ProposeTimeout, max(minProposeTimeout, proposeTimeoutRTTs*h.cfg.RTT))

	s := &Shard{
		cfg:     cfg,
		host:    h,
		clock:   h.clock,
		log:     h.log.With("shard", cfg.ID),
		sink:    cfg.Sink,
		session: h.engine.GetNoOPSession(cfg.ID),
		machine: shard.New(cfg.ID),
		stopC:   make(chan struct{}),
	}
	s.proposals.init(cfg)
	s.proposer.init(s)
	s.barriers.init()
	s.tasks.init(s)
	s.members.init()
	s.group = &group{shard: cfg.ID, id: cfg.Replica, replica: s}
	create := func(uint64, uint64) statemachine.IConcurrentStateMachine { return (*stateMachine)(s) }
	raft := groupConfig(cfg.ID, cfg.Replica, cfg.SnapshotEntries, cfg.CompactionOverhead)
	// The host may be closed from another goroutine as soon as it knows the group: it waits for the
	// goroutines.
	loops := []func(){s.proposeLoop, s.barrierLoop, s.runLeader}
	if cfg.Relay != nil {
		loops = append(loops, s.runMembers)
	}
	s.wg.Add(len(loops))
	if err := h.startGroup(s.group, bootstrap{cfg.Members, cfg.Join}, create, raft); err != nil {
		s.wg.Add(-len(loops))
		return nil, err
	}
	for _, loop := range loops {
		go loop()
	}
	return s, nil
}

func setDefault[T int | int64 | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// ID is the shard's id.
func (s *Shard) ID() uint64 { return s.cfg.ID }

// Replica is this replica's id in the shard.
func (s *Shard) Replica() uint64 { return s.cfg.Replica }

// View runs fn with the machine, which does not change meanwhile. Calls may run concurrently. Keep
// fn short: the log waits.
func (s *Shard) View(fn func(m *shard.Machine)) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	fn(s.machine)
}

// Exclusive runs fn between two steps of the log: no entry is applied and no event delivered
// meanwhile. So what fn reads, and what it registers for later events, fit together without a gap.
// It must not be called inside a [Sink].
func (s *Shard) Exclusive(fn func(m *shard.Machine)) {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	s.mu.RLock()
	defer s.mu.RUnlock()
	fn(s.machine)
}

// Leading reports whether this replica leads, as far as it knows: its own epoch is applied. Only a
// barrier proves it.
func (s *Shard) Leading() bool { return s.proposals.leading.Load() }

// LeaderReplica is the replica id of the leader as known here, 0 for none.
func (s *Shard) LeaderReplica() uint64 { return s.proposals.leader.Load() }

// Term is the newest raft term known here.
func (s *Shard) Term() uint64 {
	term, _ := s.proposals.raftStatus()
	return term
}

// ProposeInternal proposes a command of the cluster itself (nodes, buckets) on the leader and waits
// until it is applied. The error carries a status. It is StatusUnavailable also if the outcome is
// unknown, so the command must be idempotent. The body is copied.
func (s *Shard) ProposeInternal(ctx context.Context, c shard.Command) error {
	done := make(chan error, 1)
	st := s.proposals.submitInternal(c, internalWaiter{fn: func(err error) { done <- err }})
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

// leaderUpdated is called on the engine's event goroutine.
func (s *Shard) leaderUpdated(term, leader uint64) {
	s.proposals.setRaftLeader(term, leader)
	s.barriers.noteLeaderChange()
}

// stop waits until batches in flight are applied, for at most a second, and ends the shard's
// goroutines. The engine still runs.
func (s *Shard) stop() {
	s.stopOnce.Do(func() {
		s.proposals.drain(drainTimeout)
		close(s.stopC)
		s.wg.Wait()
		s.fail(s.proposals.close(), protocol.StatusUnavailable)
	})
}

// stopped is called after the engine has stopped the replica: the outcome of batches in flight will
// not be known here.
func (s *Shard) stopped() {
	s.cutUndetermined("outcome unknown: the replica has stopped")
}

// roundStart is the start of the latest round of some kind, as a monotonic time.
type roundStart struct{ at atomic.Int64 }

// note keeps the latest start.
func (t *roundStart) note(start time.Duration) {
	for {
		old := t.at.Load()
		if int64(start) <= old || t.at.CompareAndSwap(old, int64(start)) {
			return
		}
	}
}

func (t *roundStart) within(now, d time.Duration) bool {
	at := t.at.Load()
	return at != 0 && now-time.Duration(at) < d
}
