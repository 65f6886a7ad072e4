package peer

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/logger"
	"github.com/lni/dragonboat/v4/statemachine"
	"github.com/lni/vfs"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/memorynet"
)

func muteEngine() {
	for _, name := range []string{"raft", "rsm", "transport", "grpc", "dragonboat", "raftpb", "logdb", "config",
		"settings", "tests", "registry", "tan", "utils",
		"server", "fileutil", "id"} {
		logger.GetLogger(name).SetLevel(logger.CRITICAL)
	}
}

// kvStore is a state machine: names with values.
type kvStore struct {
	mu       sync.Mutex
	values   map[string][]byte
	restored int
}

func (m *kvStore) Update(e statemachine.Entry) (statemachine.Result, error) {
	name, value, _ := strings.Cut(string(e.Cmd), "=")
	m.mu.Lock()
	defer m.mu.Unlock()
	m.values[name] = []byte(value)
	return statemachine.Result{Value: e.Index}, nil
}

func (m *kvStore) Lookup(any) (any, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.values), nil
}

func (m *kvStore) SaveSnapshot(w io.Writer, _ statemachine.ISnapshotFileCollection, _ <-chan struct{}) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, value := range m.values {
		line := name + "=" + string(value)
		if err := binary.Write(w, binary.BigEndian, uint32(len(line))); err != nil {
			return err
		}
		if _, err := io.WriteString(w, line); err != nil {
			return err
		}
	}
	return nil
}

func (m *kvStore) RecoverFromSnapshot(r io.Reader, _ []statemachine.SnapshotFile, _ <-chan struct{}) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.values)
	m.restored++
	for {
		var n uint32
		if err := binary.Read(r, binary.BigEndian, &n); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		line := make([]byte, n)
		if _, err := io.ReadFull(r, line); err != nil {
			return err
		}
		name, value, _ := strings.Cut(string(line), "=")
		m.values[name] = []byte(value)
	}
}

func (m *kvStore) Close() error { return nil }

func (m *kvStore) has(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.values[name]
	return ok
}

func (m *kvStore) restores() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.restored
}

// raftCluster is three raft engines with one group, over transports.
type raftCluster struct {
	t          *testing.T
	configs    [3]Config
	disks      [3]*vfs.MemFS
	members    map[uint64]string
	transports [3]*Transport
	hosts      [3]*dragonboat.NodeHost
	tables     [3]*kvStore
}

const raftGroup = 7

func newGroup(t *testing.T, configs [3]Config) *raftCluster {
	g := &raftCluster{t: t, configs: configs, members: make(map[uint64]string)}
	for i := range configs {
		g.disks[i] = vfs.NewStrictMem()
		g.members[uint64(i+1)] = configs[i].Advertise
	}
	for i := range configs {
		g.start(i)
	}
	t.Cleanup(func() {
		for i := range g.hosts {
			g.stop(i)
		}
	})
	return g
}

func (g *raftCluster) start(i int) {
	g.t.Helper()
	m, err := New(g.configs[i])
	if err != nil {
		g.t.Fatal(err)
	}
	if err := m.Start(); err != nil {
		g.t.Fatal(err)
	}
	store := config.GetTinyMemLogDBConfig()
	store.Shards = 1
	h, err := dragonboat.NewNodeHost(config.NodeHostConfig{
		NodeHostDir: "/host", RTTMillisecond: 20, RaftAddress: g.configs[i].Advertise, DeploymentID: 5,
		Expert: config.ExpertConfig{
			FS: g.disks[i], LogDB: store, TransportFactory: m.RaftTransport(),
			Engine: config.EngineConfig{ExecShards: 1, CommitShards: 1, ApplyShards: 1, SnapshotShards: 1, CloseShards: 1},
		},
	})
	if err != nil {
		g.t.Fatal(err)
	}
	g.transports[i], g.hosts[i] = m, h
	own := &kvStore{values: make(map[string][]byte)}
	g.tables[i] = own
	err = h.StartReplica(g.members, false, func(uint64, uint64) statemachine.IStateMachine { return own }, config.Config{
		ShardID: raftGroup, ReplicaID: uint64(i + 1), ElectionRTT: 10, HeartbeatRTT: 1, CheckQuorum: true, PreVote: true,
		SnapshotEntries: 20, CompactionOverhead: 2,
	})
	if err != nil {
		g.t.Fatal(err)
	}
}

func (g *raftCluster) stop(i int) {
	if g.hosts[i] != nil {
		g.hosts[i].Close()
		_ = g.transports[i].Close()
		g.hosts[i] = nil
	}
}

// set proposes at the hosts in turn until one of them says that it is applied. A proposal that is
// repeated does no harm.
func (g *raftCluster) set(name, value string, except ...int) (host int) {
	g.t.Helper()
	await.True(g.t, name+" to be set", func() bool {
		host = slices.IndexFunc(g.hosts[:], func(h *dragonboat.NodeHost) bool {
			if h == nil || slices.Contains(except, slices.Index(g.hosts[:], h)) {
				return false
			}
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			_, err := h.SyncPropose(ctx, h.GetNoOPSession(raftGroup), []byte(name+"="+value))
			return err == nil
		})
		return host >= 0
	})
	return host
}

// leader is the host that leads by the word of a majority.
func (g *raftCluster) leader(except ...int) (leader int) {
	g.t.Helper()
	await.True(g.t, "a leader", func() bool {
		votes := make(map[uint64]int)
		for i, h := range g.hosts {
			if h == nil || slices.Contains(except, i) {
				continue
			}
			if id, _, ok, err := h.GetLeaderID(raftGroup); err == nil && ok && !slices.Contains(except, int(id-1)) {
				if votes[id]++; votes[id] == 2 {
					leader = int(id - 1)
					return true
				}
			}
		}
		return false
	})
	return leader
}

func (g *raftCluster) awaitEverywhere(name string) {
	g.t.Helper()
	for i := range g.tables {
		await.True(g.t, fmt.Sprintf("%s at host %d", name, i), func() bool { return g.tables[i].has(name) })
	}
}

// memoryGroup is a group over a memory network, with keep-alives short enough that a test sees them
// at work.
func memoryGroup(t *testing.T) (*raftCluster, *memorynet.Network) {
	n := memorynet.New()
	var configs [3]Config
	for i := range configs {
		configs[i] = memoryConfig(n, fmt.Sprintf("host-%d:1", i))
		configs[i].Limits.KeepAlive = 100 * time.Millisecond
		configs[i].Limits.DialTimeout = time.Second
	}
	return newGroup(t, configs), n
}

func tcpGroup(t *testing.T) *raftCluster {
	var configs [3]Config
	for i := range configs {
		configs[i] = tcpConfig(t)
		configs[i].Limits.DialTimeout = time.Second // a transport that is closed lets its port ring
	}
	return newGroup(t, configs)
}

// log is the first and the last index of what a host has of the log.
func (g *raftCluster) log(host int) (first, last uint64) {
	g.t.Helper()
	r, err := g.hosts[host].GetLogReader(raftGroup)
	if err != nil {
		g.t.Fatal(err)
	}
	return r.GetRange()
}

// catchUp stops a follower until the log it needs is gone, and lets it come back: it needs a
// snapshot, of several chunks. What was sent to it while it was away may still wait for a dial to
// succeed, and spare it the snapshot; then it is stopped once more.
func (g *raftCluster) catchUp() {
	g.t.Helper()
	chunks := func() (n uint64) {
		for _, m := range g.transports {
			n += m.Stats().ChunksSent.Load()
		}
		return n
	}
	for round := 0; chunks() < 3; round++ {
		if round == 50 {
			g.t.Fatalf("%d chunks were sent, want at least 3", chunks())
		}
		behind := (g.leader() + 1) % 3
		_, has := g.log(behind)
		g.stop(behind)
		big := strings.Repeat("x", 100<<10)
		for i := range 60 {
			g.set(fmt.Sprintf("big %d", i), big)
		}
		for i, h := range g.hosts { // any of them may lead then
			if h != nil {
				await.True(g.t, "the log to be cut", func() bool {
					first, _ := g.log(i)
					return first > has+1
				})
			}
		}
		g.start(behind)
		tail := fmt.Sprint("tail ", round)
		g.set(tail, "1")
		g.awaitEverywhere(tail)
		g.awaitEverywhere("big 0")
		if g.tables[behind].restores() == 0 {
			g.t.Error("the host caught up without a snapshot")
		}
	}
}

func TestRaftOverTCP(t *testing.T) {
	g := tcpGroup(t)
	for i := range 50 {
		g.set(fmt.Sprint(i), "1")
	}
	g.awaitEverywhere("49")
	g.catchUp()
	for i, m := range g.transports {
		if s := m.Stats(); s.Inbound.Load() > 4 || s.BadFrames.Load() != 0 || s.Panics.Load() != 0 {
			t.Errorf("host %d: %+v", i, s)
		}
	}
}

func TestRaftOverMemory(t *testing.T) {
	g, _ := memoryGroup(t)
	g.set("first", "1")
	g.awaitEverywhere("first")
	g.catchUp()
}

// TestRaftSurvivesOneWayCuts: a leader that nobody hears, but that hears the others; and one that
// hears nobody.
func TestRaftSurvivesOneWayCuts(t *testing.T) {
	g, n := memoryGroup(t)
	g.set("before", "1")
	for round := range 2 {
		old := g.leader()
		for i := range g.hosts {
			if i == old {
				continue
			}
			if round == 0 {
				n.Cut(g.configs[old].Advertise, g.configs[i].Advertise)
			} else {
				n.Cut(g.configs[i].Advertise, g.configs[old].Advertise)
			}
		}
		g.leader(old)
		name := fmt.Sprintf("during %d", round)
		g.set(name, "1", old)
		if g.tables[old].has(name) && round == 1 {
			t.Error("the cut lets through")
		}
		n.HealAll()
		g.awaitEverywhere(name)
		g.set("after", "1")
	}
	g.awaitEverywhere("after")
	// A broken connection is nothing but a delay.
	for i := range g.hosts {
		n.Reset(g.configs[i].Advertise, g.configs[(i+1)%3].Advertise)
		name := fmt.Sprintf("reset %d", i)
		g.set(name, "1")
		g.awaitEverywhere(name)
	}
}

func TestEngineMustHaveTheTransportsAddress(t *testing.T) {
	t.Parallel()
	n := memorynet.New()
	m := startTransport(t, memoryConfig(n, "a:1"), nil)
	f := m.RaftTransport()
	if f.Validate("nonsense") || !f.Validate("host:1") {
		t.Error("addresses are judged wrongly")
	}
	one := f.Create(config.NodeHostConfig{RaftAddress: "A:1"}, nil, nil)
	two := f.Create(config.NodeHostConfig{RaftAddress: "a:1"}, nil, nil)
	if err := f.Create(config.NodeHostConfig{RaftAddress: "b:1"}, nil, nil).Start(); err == nil {
		t.Error("an engine with another address starts")
	}
	if err := one.Start(); err != nil {
		t.Fatal(err)
	}
	if err := two.Start(); err == nil {
		t.Error("two engines at once")
	}
	_ = two.Close()
	_ = one.Close()
	if err := two.Start(); err != nil {
		t.Errorf("the next engine does not start: %v", err)
	}
}
