// What does a durable answer take at least?

package limits

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/client"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/logger"
	"github.com/lni/dragonboat/v4/statemachine"
)

// Raft holds the figures of bare dragonboat.
type Raft struct {
	Sequential float64 `json:"sequential_per_second"` // one synced proposal of 64 bytes after the other
	P50        float64 `json:"p50_ms"`
}

const (
	shard       = 1
	messageSize = 64 // bytes of a proposal
)

// MeasureRaft proposes to a raft group of one replica that keeps its log in dir and ignores
// committed entries. Each proposal is synced to the disk before it is answered, as everywhere in
// dragonboat.
//
// The engine has the settings that signalbox gives it: one step worker, one log store, and no
// snapshots. It keeps its log in its own store, with small buffers. Signalbox has an append-only
// store instead, which writes and syncs less, so a figure above this one is possible.
func MeasureRaft(ctx context.Context, dir, addr string, d time.Duration) (Raft, error) {
	store := config.GetSmallMemLogDBConfig()
	store.Shards = 1
	nh, err := startGroup(config.NodeHostConfig{
		NodeHostDir: filepath.Join(dir, "raft"), RaftAddress: addr, Expert: config.ExpertConfig{LogDB: store},
	}, &noopStateMachine{})
	if err != nil {
		return Raft{}, err
	}
	defer nh.Close()
	session := nh.GetNoOPSession(shard)
	propose, err := proposeFirst(ctx, nh, session)
	if err != nil {
		return Raft{}, err
	}
	one := make([]byte, messageSize)
	var r Raft
	for end := time.Now().Add(d / 4); time.Now().Before(end); { // warm-up
		if err := propose(one); err != nil {
			return r, err
		}
	}
	var took []time.Duration
	begun := time.Now()
	for last := begun; last.Sub(begun) < d; {
		if err := propose(one); err != nil {
			return r, err
		}
		now := time.Now()
		took = append(took, now.Sub(last))
		last = now
	}
	r.Sequential = float64(len(took)) / time.Since(begun).Seconds()
	slices.Sort(took)
	r.P50 = float64(took[len(took)/2].Nanoseconds()) / 1e6
	return r, nil
}

// silenceEngine lets the engine log errors alone. Once: a running engine reads the levels.
var silenceEngine = sync.OnceFunc(func() {
	for _, name := range []string{"dragonboat", "raft", "rsm", "transport", "grpc", "logdb", "raftpb", "config",
		"settings", "utils", "tan", "pebblekv", "server"} {
		logger.GetLogger(name).SetLevel(logger.ERROR)
	}
})

// startGroup starts an engine with the settings of signalbox, and one group of one replica.
func startGroup(c config.NodeHostConfig, m statemachine.IConcurrentStateMachine) (*dragonboat.NodeHost, error) {
	silenceEngine()
	c.RTTMillisecond = 100
	c.Expert.Engine = config.EngineConfig{ExecShards: 1, CommitShards: 1, ApplyShards: 4, SnapshotShards: 4, CloseShards: 4}
	nh, err := dragonboat.NewNodeHost(c)
	if err != nil {
		return nil, err
	}
	group := config.Config{ShardID: shard, ReplicaID: 1, ElectionRTT: 5, HeartbeatRTT: 1, CheckQuorum: true, PreVote: true}
	create := func(uint64, uint64) statemachine.IConcurrentStateMachine { return m }
	if err := nh.StartConcurrentReplica(map[uint64]string{1: c.RaftAddress}, false, create, group); err != nil {
		nh.Close()
		return nil, err
	}
	return nh, nil
}

// proposeFirst proposes until the election is over. It returns how to propose.
func proposeFirst(ctx context.Context, nh *dragonboat.NodeHost, s *client.Session) (func([]byte) error, error) {
	propose := func(b []byte) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		_, err := nh.SyncPropose(ctx, s, b)
		return err
	}
	for end := time.Now().Add(20 * time.Second); ; {
		err := propose(make([]byte, messageSize))
		if err == nil {
			return propose, nil
		}
		if time.Now().After(end) || ctx.Err() != nil {
			return nil, fmt.Errorf("no leader: %w", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

type noopStateMachine struct{}

func (noopStateMachine) Update(e []statemachine.Entry) ([]statemachine.Entry, error) { return e, nil }
func (noopStateMachine) Lookup(any) (any, error)                                     { return nil, nil }
func (noopStateMachine) PrepareSnapshot() (any, error)                               { return nil, nil }
func (noopStateMachine) Close() error                                                { return nil }
func (noopStateMachine) RecoverFromSnapshot(io.Reader, []statemachine.SnapshotFile, <-chan struct{}) error {
	return nil
}
func (noopStateMachine) SaveSnapshot(any, io.Writer, statemachine.ISnapshotFileCollection, <-chan struct{}) error {
	return nil
}
