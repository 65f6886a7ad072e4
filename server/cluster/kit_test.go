package cluster

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/server/peer"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// threeMap is a map with instances 1 to 3 at a:1, b:1, c:1, all with a replica of shard 2 that
// votes; its master is instance 1.
func threeMap(t *testing.T) *meta.State {
	t.Helper()
	m := meta.New()
	index := uint64(0)
	do := func(c meta.Command) {
		t.Helper()
		index++
		res, err := meta.DecodeResult(m.Apply(index, meta.AppendCommand(nil, meta.OpID{}, c)))
		if err != nil || res.Status != protocol.StatusOK {
			t.Fatalf("%T: %+v, %v", c, res, err)
		}
	}
	v := meta.Version{Major: 0, Minor: 1}
	do(&meta.Bootstrap{
		Cluster: "id", ClusterName: "name", Instance: 1, UUID: "u1", Name: "a", Address: "a:2", RaftAddress: "a:1",
		Version: v, Tier: "default", Buckets: 16,
		ReplicationFactor: 3, CanVote: true, Shards: []uint64{2}, NodeConfig: protocol.DefaultNodeConfig(),
	})
	for i, n := range []string{"b", "c"} {
		do(&meta.Join{UUID: "u" + n, Name: n, Address: n + ":2", RaftAddress: n + ":1", Tier: "default", Version: v})
		do(&meta.ReplicaAdd{Shard: 2, Instance: uint64(i + 2), TargetRole: meta.RoleNonVoting})
	}
	return &m.State
}

// fakeTransport answers calls by address, and notes the addresses.
type fakeTransport struct {
	mu      sync.Mutex
	answers map[string]func(ctx context.Context, method uint8, body []byte) ([]byte, error)
	asked   []string
	sent    []string
	handles map[uint8]func(ctx context.Context, from string, body []byte) ([]byte, error)
	hears   map[uint8]func(from string, payload []byte)

	unreached map[string]error
}

func (l *fakeTransport) Call(ctx context.Context, address string, method uint8, body []byte) ([]byte, error) {
	l.mu.Lock()
	l.asked = append(l.asked, address)
	f := l.answers[address]
	l.mu.Unlock()
	if f == nil {
		return nil, protocol.Errorf(protocol.StatusUnavailable, "nobody answers at %s", address)
	}
	return f(ctx, method, body)
}

func (l *fakeTransport) Reach(context.Context, string) error { return nil }

func (l *fakeTransport) Unreached(address string) (u peer.Unreached) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u.Err = l.unreached[address]
	return u
}

func (l *fakeTransport) Send(address string, _ uint8, _ []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent = append(l.sent, address)
}

func (l *fakeTransport) HandleCall(method uint8, f func(context.Context, string, []byte) ([]byte, error)) {
	if l.handles == nil {
		l.handles = map[uint8]func(context.Context, string, []byte) ([]byte, error){}
	}
	l.handles[method] = f
}

func (l *fakeTransport) HandleMessage(kind uint8, f func(string, []byte)) {
	if l.hears == nil {
		l.hears = map[uint8]func(string, []byte){}
	}
	l.hears[kind] = f
}

// fakeLocal has replicas that report what they are told to, and leads nothing unless err is nil.
type fakeLocal struct {
	err    error
	report map[uint64]governor.ShardReport
	asked  int
	stuck  bool
}

func (l *fakeLocal) do(ctx context.Context) error {
	l.asked++
	if l.stuck {
		<-ctx.Done()
		return ctx.Err()
	}
	return l.err
}

func (l *fakeLocal) Propose(ctx context.Context, _ uint64, _ shard.Command) error { return l.do(ctx) }
func (l *fakeLocal) Registers(ctx context.Context, _, _ uint64) (governor.Registers, error) {
	return governor.Registers{Epoch: 7, Token: 8}, l.do(ctx)
}

func (l *fakeLocal) Export(ctx context.Context, _ uint64, _ shard.BucketsBody, _ []byte) (chunk, next []byte, err error) {
	return []byte("chunk"), []byte("next"), l.do(ctx)
}
func (l *fakeLocal) CopyBuckets(ctx context.Context, source, target uint64, run shard.BucketsBody) (done bool, err error) {
	return source == 3 && target == 2 && run == (shard.BucketsBody{Tier: 1, Total: 8, First: 1, Count: 2, Epoch: 3}), l.do(ctx)
}
func (l *fakeLocal) Members(ctx context.Context, _ uint64) (governor.Membership, error) {
	return governor.Membership{ConfigChange: 9, Voters: map[uint64]string{1: "a:1"},
		NonVotings: map[uint64]string{2: "b:1"}, Removed: []uint64{3}}, l.do(ctx)
}
func (l *fakeLocal) AddNonVoting(ctx context.Context, _, _ uint64, _ string, _ uint64) error {
	return l.do(ctx)
}
func (l *fakeLocal) Promote(ctx context.Context, _, _, _ uint64) error  { return l.do(ctx) }
func (l *fakeLocal) Remove(ctx context.Context, _, _, _ uint64) error   { return l.do(ctx) }
func (l *fakeLocal) Transfer(ctx context.Context, _, _, _ uint64) error { return l.do(ctx) }
func (l *fakeLocal) Report() map[uint64]governor.ShardReport            { return l.report }
func (l *fakeLocal) LeaderMessage(uint64, uint64, []byte)               {}

var errNotHere = protocol.Errorf(protocol.StatusWrongShard, "not led here")

// reach is an anywhere of instance 1.
func reach(t *testing.T, l *fakeTransport, local *fakeLocal) *shardClient {
	s := threeMap(t)
	return &shardClient{
		self: func() uint64 { return 1 }, local: local, caller: l, state: func() *meta.State { return s },
		health: newHealthTable(func() time.Duration { return time.Second }), unreached: l.Unreached,
	}
}

// memoryStore keeps an identity, and fails when it is told to.
type memoryStore struct {
	b   []byte
	err error
}

func (m *memoryStore) Load() ([]byte, error) { return m.b, m.err }
func (m *memoryStore) Save(b []byte) error {
	if m.err == nil {
		m.b = b
	}
	return m.err
}

var errDisk = errors.New("no space left on device")
