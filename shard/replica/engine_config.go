package replica

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/config"
)

// Fixed for the life of a data directory: dragonboat refuses to open one with other numbers, which
// say in which of its logs a shard's entries are.
const (
	stepWorkers = 1 // it syncs for all its shards at once; more workers only split the syncs of one disk
)

// applyWorkers may change at any time.
const applyWorkers = 4

const (
	defaultRTT          = 100 * time.Millisecond
	defaultDeployment   = 0x7369_676e_616c_6278 // "signalbx"
	defaultCloseTimeout = 10 * time.Second
	tickPeriod          = 100 * time.Millisecond
	restartTimeout      = 5 * time.Second
	// electionRTT is the number of round trip times without a leader after which a replica
	// campaigns. A group of one has no leader to wait for: the campaigner shortens its wait.
	electionRTT  = 10
	heartbeatRTT = 1
	maxInMemLog  = 128 << 20
	maxPeerQueue = 16 << 20 // more is dropped, and read from the log again: much more than a leader has under way
)

// newNodeHost turns the engine's start-up failures, some of which are panics, into errors that say
// what to do.
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

func engineConfig(cfg *HostConfig, events *engineEvents) config.NodeHostConfig {
	c := config.NodeHostConfig{
		DeploymentID:        cfg.deployment,
		NodeHostDir:         cfg.Dir,
		RTTMillisecond:      uint64(cfg.RTT.Milliseconds()),
		RaftAddress:         cfg.RaftAddress,
		RaftEventListener:   events,
		SystemEventListener: events,
		MaxSendQueueSize:    maxPeerQueue,
		MaxReceiveQueueSize: maxPeerQueue,
		Expert: config.ExpertConfig{
			Engine: config.EngineConfig{
				ExecShards: stepWorkers, CommitShards: stepWorkers, ApplyShards: applyWorkers,
				SnapshotShards: 4, CloseShards: 4,
			},
		},
	}
	c.Expert.FS = snapshotFS{cfg.fs(), beginWrite}
	return c
}

func groupConfig(shard, replica, snapshotEntries, compactionOverhead uint64) config.Config {
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
