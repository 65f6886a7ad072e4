package engine

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/vfs"
)

// Fixed for the life of a data directory: dragonboat refuses to open one with other numbers, which
// say in which of its logs a shard's entries are.
const (
	stepWorkers = 1 // it syncs for all its shards at once; more workers only split the syncs of one disk
)

// applyWorkers may change at any time.
const applyWorkers = 4

const (
	// electionRTT is the number of round trip times without a leader after which a replica
	// campaigns. A group of one has no leader to wait for: the campaigner shortens its wait.
	electionRTT  = 10
	heartbeatRTT = 1
	maxInMemLog  = 128 << 20
	maxPeerQueue = 16 << 20 // more is dropped, and read from the log again: much more than a leader has under way

	defaultSnapshotEntries = 100_000
)

// ProposeTimeout is how long a proposal may take, by default.
func ProposeTimeout(rtt time.Duration) time.Duration { return max(2*time.Second, 50*rtt) }

// ErrLocked: the data directory is in use.
var ErrLocked = errors.New("data directory is in use by another process; stop it, or give this one another directory")

// Events receives the engine's events. All calls come from one goroutine, for which the engine's
// workers wait with their locks held. So no method may wait or call the engine.
type Events interface {
	raftio.IRaftEventListener
	raftio.ISystemEventListener
}

// Config configures an engine.
type Config struct {
	Deployment  uint64
	Dir         string
	RaftAddress string
	RTT         time.Duration
	FS          vfs.FS
	Events      Events
	LogStore    config.LogDBFactory
	Transport   config.TransportFactory
	Logger      *slog.Logger // takes the engine's lines, two levels lower
}

func (c *Config) nodeHost() config.NodeHostConfig {
	return config.NodeHostConfig{
		DeploymentID:        c.Deployment,
		NodeHostDir:         c.Dir,
		RTTMillisecond:      uint64(c.RTT.Milliseconds()),
		RaftAddress:         c.RaftAddress,
		RaftEventListener:   c.Events,
		SystemEventListener: c.Events,
		MaxSendQueueSize:    maxPeerQueue,
		MaxReceiveQueueSize: maxPeerQueue,
		Expert: config.ExpertConfig{
			Engine: config.EngineConfig{
				ExecShards: stepWorkers, CommitShards: stepWorkers, ApplyShards: applyWorkers,
				SnapshotShards: 4, CloseShards: 4,
			},
			FS:           snapshotFS{c.FS, beginWrite},
			LogDBFactory: c.LogStore, TransportFactory: c.Transport,
		},
	}
}

// Open starts dragonboat.
func (e *Engine) Open(c Config) error {
	routeLogs(c.Logger)
	nh, err := newNodeHost(c.nodeHost())
	e.nodeHost = nh
	return err
}

// newNodeHost turns the engine's start-up failures, some of which are panics, into errors that name
// the remedy.
func newNodeHost(cfg config.NodeHostConfig) (nh *dragonboat.NodeHost, err error) {
	defer func() {
		if r := recover(); r != nil {
			nh, err = nil, fmt.Errorf("raft engine does not start on this directory: %v", r)
		}
	}()
	nh, err = dragonboat.NewNodeHost(cfg)
	if err == nil && nh == nil {
		return nil, errors.New("raft engine does not start on this directory; its log lines say why")
	}
	if err == nil {
		return nh, nil
	}
	// These errors are in an internal package of the engine, so only their texts identify them.
	switch text := err.Error(); {
	case strings.Contains(text, "failed to lock data directory"):
		return nil, ErrLocked
	case strings.Contains(text, "not the owner of the data directory"):
		return nil, fmt.Errorf("data directory belongs to another raft address than %s; start with that address",
			cfg.RaftAddress)
	case strings.Contains(text, "hostname changed"):
		return nil, errors.New(
			"data directory was created on a host with another name; start under that name, or add a new replica")
	case strings.Contains(text, "deployment ID changed"):
		return nil, errors.New("data directory belongs to another cluster; give this one a directory of its own")
	}
	return nil, fmt.Errorf("open data directory: %w", err)
}

// GroupConfig are the settings of a group's replica. 0: the default.
func GroupConfig(shard, replica, snapshotEntries, compactionOverhead uint64) config.Config {
	snapshotEntries = cmp.Or(snapshotEntries, defaultSnapshotEntries)
	compactionOverhead = cmp.Or(compactionOverhead, snapshotEntries/2)
	return config.Config{
		ShardID:             shard,
		ReplicaID:           replica,
		CheckQuorum:         true,
		PreVote:             true,
		ElectionRTT:         electionRTT,
		HeartbeatRTT:        heartbeatRTT,
		SnapshotEntries:     snapshotEntries,
		CompactionOverhead:  compactionOverhead,
		OrderedConfigChange: true,
		MaxInMemLogSize:     maxInMemLog,
		Quiesce:             false, // a quiescent group has no ticks, which the self-check needs
	}
}
