package replica

import (
	"errors"
	"fmt"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica/engine"
)

const (
	defaultSnapshotBytes    = 256 << 20
	DefaultMaxOpenBytes     = 16 << 20
	defaultMaxBatchBytes    = 256 << 10
	defaultMaxBatchCommands = 2048
	defaultInFlight         = 4
	defaultReadPeriod       = protocol.DefaultSelfCheckPeriod * time.Millisecond
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
	Limits   LimitSink     // nil: no rate limits are leased
	// Route returns the shard and the epoch of a bucket of a tier, 0 for unknown. The leader's
	// goroutine calls it. Nil knows no bucket.
	Route func(tier uint8, bucket uint32) (shard, bucketEpoch uint64)
	// Format returns the highest format version that may be written: the cluster's version allows
	// it. It never goes down. Nil: [shard.FormatVersion].
	Format func() uint8
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
	proposeVia func(next func(entry []byte) (engine.Proposal, error), entry []byte) (engine.Proposal, error)
	readVia    func(next func() bool) bool
}

// check sets the defaults.
func (cfg *ShardConfig) check(rtt time.Duration) error {
	if cfg.ID == 0 || cfg.ID >= MetaShard {
		return fmt.Errorf("shard id is %d, but must be at least 1 and below %d", cfg.ID, MetaShard)
	}
	if cfg.Sink == nil {
		return errors.New("shard needs a sink")
	}
	if cfg.InFlight < 0 || cfg.InFlight > 64 {
		return fmt.Errorf("%d batches in flight, but must be 1 to 64", cfg.InFlight)
	}
	if cfg.Format == nil {
		cfg.Format = func() uint8 { return shard.FormatVersion }
	}
	setDefault(&cfg.InFlight, defaultInFlight)
	setDefault(&cfg.MaxOpenBytes, DefaultMaxOpenBytes)
	setDefault(&cfg.MaxBatchBytes, defaultMaxBatchBytes)
	setDefault(&cfg.MaxBatchCommands, defaultMaxBatchCommands)
	setDefault(&cfg.SnapshotBytes, defaultSnapshotBytes)
	setDefault(&cfg.ProposeTimeout, engine.ProposeTimeout(rtt))
	return nil
}

func setDefault[T int | int64 | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}
