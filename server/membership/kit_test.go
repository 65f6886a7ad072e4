package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/cluster"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/server/peer"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testNet carries messages and calls between the instances of a test, by their raft addresses.
type testNet struct {
	mu    sync.Mutex
	links map[string]*testLink
}

// testLink is what an instance has of a testNet: a cluster.Transport.
type testLink struct {
	net      *testNet
	calls    map[uint8]func(context.Context, string, []byte) ([]byte, error)
	messages map[uint8]func(string, []byte)
}

func (n *testNet) link(address string) *testLink {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &testLink{net: n, calls: map[uint8]func(context.Context, string, []byte) ([]byte, error){},
		messages: map[uint8]func(string, []byte){}}
	if n.links[address] == nil { // later ones only send
		n.links[address] = l
	}
	return l
}

func (n *testNet) at(address string) *testLink {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.links[address]
}

func (l *testLink) Call(ctx context.Context, address string, method uint8, body []byte) ([]byte, error) {
	if to := l.net.at(address); to != nil && to.calls[method] != nil {
		return to.calls[method](ctx, "", body)
	}
	return nil, protocol.Errorf(protocol.StatusUnavailable, "nobody answers at %s", address)
}

func (l *testLink) Send(address string, kind uint8, payload []byte) {
	if to := l.net.at(address); to != nil && to.messages[kind] != nil {
		to.messages[kind]("", payload)
	}
}

func (l *testLink) HandleCall(method uint8, f func(context.Context, string, []byte) ([]byte, error)) {
	l.calls[method] = f
}
func (l *testLink) HandleMessage(kind uint8, f func(string, []byte)) { l.messages[kind] = f }
func (l *testLink) Reach(_ context.Context, address string) error {
	if l.net.at(address) == nil {
		return errors.New("connection refused")
	}
	return nil
}
func (l *testLink) Unreached(string) (u peer.Unreached) { return u }

// testLocal is an instance's replica of the meta shard, which has applied all. Nothing else is asked
// of it.
type testLocal struct {
	cluster.Local
	instance uint64
	state    func() *meta.State
}

func (l *testLocal) Report() map[uint64]governor.ShardReport {
	state := l.state()
	group := state.MetaShard()
	r, _ := group.On(l.instance)
	return map[uint64]governor.ShardReport{meta.MetaShardID: {Replica: r.Replica, Applied: state.AppliedIndex()}}
}

// memoryStore keeps an identity.
type memoryStore struct{ b []byte }

func (m *memoryStore) Load() ([]byte, error) { return m.b, nil }
func (m *memoryStore) Save(b []byte) error   { m.b = b; return nil }

// testMember is an instance of a cluster of three: 1 to 3, called i1 to i3, at raft addresses a1:1
// to a3:1, all with a replica of the meta shard that votes, and of data shard 2, which 1 leads.
type testMember struct {
	*Member
	t        *testing.T
	clock    *replica.ManualClock
	net      *testNet
	machine  *meta.Machine // instead of a replica of the meta shard; nil with one
	index    uint64
	led      atomic.Pointer[[]uint64]
	failed   []error
	failures chan struct{} // Config.Failed
}

// newMember returns instance self, which has no replica of the meta shard: the test is the log.
func newMember(t *testing.T, self uint64) *testMember {
	m := makeMember(t, self)
	m.machine = meta.New()
	m.makeCluster()
	return m
}

// newLeader returns instance 1, with a replica of the meta shard that leads.
func newLeader(t *testing.T) *testMember {
	m := makeMember(t, 1)
	m.Go(m.Meta.setReplica(m.ctx, startReplica(t, m)))
	for !m.Meta.Leading() {
		m.clock.Advance(replica.ManualStep)
	}
	m.makeCluster()
	return m
}

// startReplica starts a replica of the meta shard, the only one of a new group.
func startReplica(t *testing.T, m *testMember) *replica.Meta {
	host, err := replica.OpenHost(replica.HostConfig{Memory: true, Clock: m.clock, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := host.Close(); err != nil {
			t.Error(err)
		}
	})
	rep, err := host.StartMeta(replica.MetaConfig{Replica: 1, Members: map[uint64]string{1: host.RaftAddress()}})
	if err != nil {
		t.Fatal(err)
	}
	m.host = host
	return rep
}

// leads sets the shards that the member leads.
func (m *testMember) leads(shards ...uint64) { m.led.Store(&shards) }

func makeMember(t *testing.T, self uint64) *testMember {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	clock := replica.NewManualClock(time.Unix(0, 0))
	m := &testMember{t: t, clock: clock, failures: make(chan struct{}), net: &testNet{links: map[string]*testLink{}}}
	m.leads()
	log := slog.New(slog.DiscardHandler)
	m.Member = New(ctx, Config{Meta: NewMeta(clock), Clock: clock, Logger: log, Go: running.Go,
		Led: func() []uint64 { return *m.led.Load() }, Started: func() bool { return true }, Failed: m.failures,
		Fail: func(err error) { m.failed = append(m.failed, err) }})
	service := cluster.New(cluster.Config{
		Transport: m.net.link(address(self)), Local: &testLocal{instance: self, state: m.Meta.State},
		State: m.Meta.State, Now: clock.Now, Refusals: noRefusals, Logger: log,
		SetTarget: m.SetTarget, HeartbeatReceived: m.HeartbeatReceived, CheckApplicant: m.CheckApplicant,
	})
	m.Connect(service, &cluster.Bootstrap{Store: new(memoryStore), Logger: log})
	m.SetInstance(self)
	service.SetReady()
	m.governor = governor.New(governor.Config{Meta: m.Meta, Clock: clock, Logger: log})
	return m
}

func address(instance uint64) string { return fmt.Sprintf("a%d:1", instance) }

// do has the meta shard apply a command.
func (m *testMember) do(c meta.Command) {
	m.t.Helper()
	entry := meta.AppendCommand(nil, meta.OpID{}, c)
	var answer []byte
	if m.machine != nil {
		m.index++
		answer = m.machine.Apply(m.index, entry)
		state := m.machine.State
		m.Meta.mu.Lock()
		m.Meta.last = &state
		m.Meta.notify()
		m.Meta.mu.Unlock()
	} else {
		var err error
		if answer, err = m.Meta.Propose(m.t.Context(), entry); err != nil {
			m.t.Fatal(err)
		}
	}
	if res, err := meta.DecodeResult(answer); err != nil || res.Status != protocol.StatusOK {
		m.t.Fatalf("%+v: %+v, %v", c, res, err)
	}
}

func (m *testMember) makeCluster() {
	v := meta.Version{Minor: 1}
	m.do(&meta.Bootstrap{Cluster: "id", ClusterName: "name", Instance: 1, UUID: "u1", Name: "i1", Address: "a1:2",
		RaftAddress: address(1), Version: v, Tier: "default", Buckets: 16, ReplicationFactor: 3, CanVote: true,
		Shards: []uint64{2}, NodeConfig: protocol.DefaultNodeConfig()})
	for id := uint64(2); id <= 3; id++ {
		m.do(&meta.Join{UUID: fmt.Sprint("u", id), Name: fmt.Sprint("i", id), Address: fmt.Sprintf("a%d:2", id),
			RaftAddress: address(id), Tier: "default", Version: v})
		m.come(id)
		m.vote(2, id)
		m.vote(meta.MetaShardID, id)
	}
}

// vote gives an instance a replica of a shard that votes.
func (m *testMember) vote(shard, instance uint64) {
	m.t.Helper()
	m.do(&meta.ReplicaAdd{Shard: shard, Instance: instance, TargetRole: meta.RoleVoter})
	m.do(&meta.ReplicaRole{Shard: shard, Replica: m.replicaOn(shard, instance), Role: meta.RoleVoter})
}

// unvote makes an instance's replica of a shard one that does not vote.
func (m *testMember) unvote(shard, instance uint64) {
	m.t.Helper()
	m.remove(shard, instance)
	m.do(&meta.ReplicaAdd{Shard: shard, Instance: instance, TargetRole: meta.RoleNonVoting})
	m.do(&meta.ReplicaRole{Shard: shard, Replica: m.replicaOn(shard, instance), Role: meta.RoleNonVoting})
}

// remove removes an instance's replica of a shard.
func (m *testMember) remove(shard, instance uint64) {
	m.t.Helper()
	m.do(&meta.ReplicaTarget{Shard: shard, Replica: m.replicaOn(shard, instance)})
	m.do(&meta.ReplicaRole{Shard: shard, Replica: m.replicaOn(shard, instance)})
}

// replicaOn is the id of an instance's replica of a shard.
func (m *testMember) replicaOn(shard, instance uint64) uint64 {
	x, ok := m.Meta.State().Shard(shard)
	if !ok {
		x = m.Meta.State().MetaShard()
	}
	r, _ := x.On(instance)
	return r.Replica
}

// come starts a process of an instance, and has the governor bring it Online.
func (m *testMember) come(id uint64) {
	m.t.Helper()
	m.do(&meta.InstanceUpdate{Instance: id, Target: meta.Online, Reason: meta.ReasonWakeup, Start: true,
		Address: fmt.Sprintf("a%d:2", id), RaftAddress: address(id), Version: meta.Version{Minor: 1}})
	m.do(&meta.InstanceCurrent{Instance: id, State: m.of(id).Target})
}

// goes has the cluster mark an instance offline, in its target and then in what it is.
func (m *testMember) goes(id uint64) {
	m.t.Helper()
	m.do(&meta.InstanceUpdate{Instance: id, Target: meta.Offline, Reason: meta.ReasonShutdown})
	m.do(&meta.InstanceCurrent{Instance: id, State: m.of(id).Target})
}

// of is an instance as the map has it.
func (m *testMember) of(id uint64) meta.Instance {
	i, _ := m.Meta.State().Instance(id)
	return i
}

func noRefusals() []string { return nil }

// process is a process of another instance, which sends heartbeats.
func (m *testMember) process(instance, incarnation uint64) *cluster.Service {
	s := cluster.New(cluster.Config{Transport: m.net.link(address(instance)), State: m.Meta.State, Now: m.clock.Now,
		Refusals: noRefusals, Local: &testLocal{instance: instance, state: m.Meta.State}, Logger: m.Logger})
	s.SetInstance(instance)
	s.SetIncarnation(incarnation)
	return s
}
