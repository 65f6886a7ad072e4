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

// ShardConfig says how a shard's replica lives. ID, Replica, Sink and, unless it joins or restarts, Members are needed.
type ShardConfig struct {
	ID      uint64 // of the shard, from 1; never reused
	Replica uint64 // of this replica in the shard, from 1; never reused in the shard
	// Members of a shard that is founded: replica id -> raft address, the same on each of them. Members and Join matter when the replica starts on this host for
	// the first time; later they may be left out, or be given again.
	Members map[uint64]string
	Join    bool // this replica was added to a running shard by [Host.AddNonVoting]; Members is empty
	// InstanceOf maps a replica of the shard to its instance, 0 for unknown. Called by any goroutine; must not block. Nil: their ids are the same.
	InstanceOf func(replica uint64) uint64

	Sink     Sink
	Messages MessageSender // nil: there are none, messages are dropped
	// Route finds the shard and the epoch of a bucket of a tier, 0 for unknown. Called by the shard's own goroutine; nil knows no bucket.
	Route func(tier uint8, bucket uint32) (shard, bucketEpoch uint64)
	// Heard is when something was last heard on a connection, by the host's clock; 0 for an unknown one. Called by the shard's own goroutine; nil knows
	// none.
	Heard func(conn uint64) time.Duration

	// MaxOpenBytes bounds what waits for a proposal; beyond it Submit answers StatusOverloaded. Default 16 MiB.
	MaxOpenBytes int
	// MaxBatchBytes and MaxBatchCommands close a batch: a larger one would keep Apply busy for longer than a few milliseconds. Defaults 256 KiB and 2,048.
	// A single command may be larger than MaxBatchBytes.
	MaxBatchBytes    int
	MaxBatchCommands int
	// InFlight is the number of batches proposed and not yet applied; 1 to 64, default 4. More of them make smaller batches.
	InFlight int
	// SnapshotEntries is the number of entries between snapshots, default 100,000; CompactionOverhead the number kept before one, default half of it.
	SnapshotEntries, CompactionOverhead uint64
	// SnapshotBytes is the length of log after which a snapshot is saved too, however few entries it has; the length of the last snapshot, if that is more.
	// Default 256 MiB.
	SnapshotBytes int64
	// ReadPeriod is how often the replica makes sure that it is up to date, for [Shard.Fresh], and
	// a leader that it leads. Default: on the leader the least self-check period of the shard's
	// nodes, and 1 s without nodes; on the others half of their least grace period, if that is
	// longer.
	ReadPeriod time.Duration
	// ProposeTimeout is when a proposal counts as undetermined and the leader retakes its epoch. Default 50 round trip times, at least 2 s.
	ProposeTimeout time.Duration

	// Tests put faults here.
	proposeVia func(next func(entry []byte) (engineProposal, error), entry []byte) (engineProposal, error)
	readVia    func(next func() bool) bool
}

// Shard is one replica of a data shard. All methods may be called from any goroutine.
type Shard struct {
	cfg     ShardConfig
	host    *Host
	group   *group
	clock   Clock
	log     *slog.Logger
	sink    Sink
	session *client.Session

	// applyMu is held over each step of the log: Apply and what the sink does with it. Locks are taken in the order applyMu, mu, line.mu.
	applyMu         sync.Mutex
	events          shard.Events // of the step
	notified        bool         // the sink was told of some leader
	notifiedLeader  uint64
	notifiedLeading bool

	// mu guards the machine: Apply and the steps of a snapshot hold it for writing, reads hold it for reading.
	mu      sync.RWMutex
	machine *shard.Machine
	backup  *shard.Snapshot // being written, and no snapshot of the engine's

	proposals  proposalQueue
	transferMu sync.Mutex // held by the transfer of leadership that is under way
	proposer   proposer
	barriers   readBarriers
	tasks      taskQueue
	counters   counters

	selfCheck atomic.Uint64 // ms: what the machine's nodes ask for, as of the last tick
	grace     atomic.Uint64 // ms: their least grace period, as of the last tick
	logTail   logTail

	stopC    chan struct{} // closed when the engine is about to stop this replica
	stopOnce sync.Once
	wg       sync.WaitGroup
}

// StartShard starts a replica. It returns before the log is read back: the replica is of use when LeaderChanged was called for it.
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
		session: h.nh.GetNoOPSession(cfg.ID),
		machine: shard.New(cfg.ID),
		stopC:   make(chan struct{}),
	}
	s.proposals.init(cfg)
	s.proposer.init(s)
	s.barriers.init()
	s.tasks.init(s)
	s.group = &group{shard: cfg.ID, id: cfg.Replica, replica: s}
	create := func(uint64, uint64) statemachine.IConcurrentStateMachine { return (*stateMachine)(s) }
	raft := groupConfig(cfg.ID, cfg.Replica, h.election(cfg.Members), cfg.SnapshotEntries, cfg.CompactionOverhead)
	// The host may be closed from another goroutine as soon as it knows the group: it waits for the three loops from then on.
	s.wg.Add(3)
	if err := h.startGroup(s.group, bootstrap{cfg.Members, cfg.Join}, create, raft); err != nil {
		s.wg.Add(-3)
		return nil, err
	}
	go s.proposeLoop()
	go s.barrierLoop()
	go s.runLeader()
	return s, nil
}

func setDefault[T int | int64 | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// ID is the shard's.
func (s *Shard) ID() uint64 { return s.cfg.ID }

// Replica is this replica's id in the shard.
func (s *Shard) Replica() uint64 { return s.cfg.Replica }

// View runs fn with the machine, which does not change meanwhile. Many may run at once; keep it short, the log waits.
func (s *Shard) View(fn func(m *shard.Machine)) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	fn(s.machine)
}

// Exclusive runs fn between two steps of the log: no entry is applied, and no event delivered, while it runs, so that what is read and what is
// registered in it for later events fit together without a gap. Not from inside a [Sink].
func (s *Shard) Exclusive(fn func(m *shard.Machine)) {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	s.mu.RLock()
	defer s.mu.RUnlock()
	fn(s.machine)
}

// Leading says that this replica leads, as far as it knows: its own epoch is applied and nothing speaks against it. Only a barrier proves it.
func (s *Shard) Leading() bool { return s.proposals.leading.Load() }

// LeaderReplica is the replica id of the leader as far as is known here, 0 for none.
func (s *Shard) LeaderReplica() uint64 { return s.proposals.leader.Load() }

// Term is the newest raft term that this replica has heard of a leader in, or that there is none.
func (s *Shard) Term() uint64 {
	term, _ := s.proposals.raftStatus()
	return term
}

// LeaderInstance is the instance of the leader as far as is known here, 0 for none.
func (s *Shard) LeaderInstance() uint64 { return s.Instance(s.LeaderReplica()) }

// Instance is the instance of a replica of the shard, 0 for unknown.
func (s *Shard) Instance(replica uint64) uint64 {
	if replica == 0 || s.cfg.InstanceOf == nil {
		return replica
	}
	return s.cfg.InstanceOf(replica)
}

// ProposeInternal proposes a command of the cluster's own (nodes, buckets) on the leader and waits until it is applied. The error carries a status:
// StatusUnavailable also when the outcome is not known, so the command must be one that may be applied twice. The body is copied.
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

// leaderUpdated comes from the engine's one goroutine for such news: it only notes them.
func (s *Shard) leaderUpdated(term, leader uint64) {
	s.proposals.setRaftLeader(term, leader)
	s.barriers.noteLeaderChange()
}

// stop lets the batches in flight finish, for at most a second, and ends the shard's goroutines. The engine still runs.
func (s *Shard) stop() {
	s.stopOnce.Do(func() {
		s.proposals.drain(drainTimeout)
		close(s.stopC)
		s.wg.Wait()
		s.fail(s.proposals.close(), protocol.StatusUnavailable)
	})
}

// stopped is called when the engine has let go of the replica: what is still open has an outcome that nobody here will learn.
func (s *Shard) stopped() {
	s.cutUndetermined("outcome is not known: the replica has stopped")
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
