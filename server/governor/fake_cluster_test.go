package governor

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeCluster is a world behind a lock, whose words take time and get lost. It is used inside
// synctest bubbles, where time is not real.
type fakeCluster struct {
	mu      sync.Mutex
	state   *fakeState
	changed chan struct{}
	leader  int // the replica that leads the meta shard; -1 is none
	start   time.Time
	random  *rand.Rand
	faults  bool // from now on words and answers may be lost
	cut     bool // the meta shard answers nobody
}

func newFakeCluster(shards ...uint64) *fakeCluster {
	c := &fakeCluster{
		state:   &fakeState{meta: meta.New(), shards: map[uint64]*plainShard{}},
		changed: make(chan struct{}), start: time.Now(), random: rand.New(rand.NewPCG(1, 2)),
	}
	for _, id := range shards {
		c.state.shards[id] = newPlainShard(0)
	}
	return c
}

var errLost = errors.New("no answer")

// deliver runs f, unless the word is lost; then its answer may be.
func (c *fakeCluster) deliver(ctx context.Context, f func() error) error {
	c.mu.Lock()
	delay := time.Duration(c.random.IntN(20)) * time.Millisecond
	lost := c.faults && c.random.IntN(3) == 0
	replyLost := c.faults && c.random.IntN(3) == 0
	late := c.faults && c.random.IntN(8) == 0
	c.mu.Unlock()
	if late { // it is given up, and comes all the same
		go func() {
			time.Sleep(5 * time.Second)
			c.mu.Lock()
			defer c.mu.Unlock()
			_ = f()
		}()
		lost = true
	}
	select {
	case <-time.After(delay):
	case <-ctx.Done():
		return ctx.Err()
	}
	if lost {
		return errLost
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := f(); err != nil {
		return err
	}
	if replyLost {
		return errLost
	}
	return nil
}

// replica is the meta shard as one instance sees it.
type replica struct {
	*fakeCluster
	id int
}

func (r replica) Propose(ctx context.Context, cmd []byte) (result []byte, err error) {
	entry := append([]byte(nil), cmd...)
	err = r.deliver(ctx, func() error {
		if r.cut {
			return errLost
		}
		r.state.index++
		result = r.state.meta.Apply(r.state.index, entry)
		r.signal()
		return nil
	})
	return result, err
}

func (c *fakeCluster) signal() {
	close(c.changed)
	c.changed = make(chan struct{})
}

func (r replica) State() *meta.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.state.meta.State
	return &s
}

func (r replica) Leading() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leader == r.id
}

func (r replica) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

func (c *fakeCluster) elect(id int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leader = id
	c.signal()
}

// with runs f under the lock.
func (c *fakeCluster) with(f func(w *fakeState)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.now = c.Now()
	f(c.state)
}

func (c *fakeCluster) Now() time.Duration { return time.Since(c.start) }
func (c *fakeCluster) Wall() time.Time    { return time.Now() }

// fakeShards are the data shards.
type fakeShards struct{ *fakeCluster }

func (s fakeShards) Propose(ctx context.Context, id uint64, c shard.Command) error {
	number := func() uint64 {
		v, n := binary.Uvarint(c.Body)
		c.Body = c.Body[n:]
		return v
	}
	step := Step{Shard: id}
	switch c.Kind {
	case shard.CmdBuckets:
		step.Kind, step.Tier, c.Body = ActivateBuckets, c.Body[0], c.Body[1:]
		step.Total, step.First, step.Count = uint32(number()), uint32(number()), uint32(number())
	case shard.CmdNodePut:
		step.Kind, step.Node, step.Revision = PutNode, number(), number()
		step.Config = protocol.NodeConfig{Fields: uint32(number()), SelfCheckPeriod: number(), GracePeriod: number()}
	case shard.CmdNodeDrop:
		step.Kind, step.Node = DropNode, number()
	}
	return s.deliver(ctx, func() error {
		_, err := s.state.execute(&step)
		return err
	})
}

func (s fakeShards) Registers(ctx context.Context, id, _ uint64) (at Registers, err error) {
	err = s.deliver(ctx, func() error {
		answer, err := s.state.execute(&Step{Kind: ReadLeaderEpoch, Shard: id})
		at.Epoch = answer.Epoch
		return err
	})
	return at, err
}

func (s fakeShards) CopyBuckets(context.Context, uint64, uint64, shard.BucketsBody) (done bool, err error) {
	return false, errLost
}

// run runs a governor on replica id until stop, which waits for its end.
func (c *fakeCluster) run(t *testing.T, id int) (g *Governor, stop func()) {
	t.Helper()
	g = New(Config{Meta: replica{c, id}, Shards: fakeShards{c}, Clock: c, Logger: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.Run(ctx)
	}()
	return g, func() {
		cancel()
		<-done
	}
}
