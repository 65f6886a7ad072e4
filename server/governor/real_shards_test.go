package governor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// machineShards are the state machines of data shards, each with a leader that proposes one command
// at a time.
type machineShards struct {
	mu       sync.Mutex
	start    time.Time
	machines map[uint64]*shard.Machine
	index    uint64
	hangs    bool // exports fail
}

const leaderEpoch = 1 << 16

func newMachineShards(ids ...uint64) *machineShards {
	s := &machineShards{start: time.Now(), machines: map[uint64]*shard.Machine{}}
	for _, id := range ids {
		s.machines[id] = shard.New(id)
		_ = s.Propose(context.Background(), id, shard.Command{Kind: shard.CmdTakeOver})
	}
	return s
}

func (s *machineShards) Propose(_ context.Context, id uint64, c shard.Command) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.machine(id)
	out := s.apply(id, c)
	for _, e := range out.List {
		switch {
		case e.Kind == shard.EventReply && e.Status == protocol.StatusOK:
			return nil
		case e.Kind == shard.EventReply:
			return &protocol.Error{Status: e.Status, Refusal: e.Refusal, Message: e.Text}
		}
	}
	return fmt.Errorf("shard %d answers %+v", id, out.List)
}

// machine returns a shard's machine, a new one for a shard that is not known yet.
func (s *machineShards) machine(id uint64) *shard.Machine {
	if s.machines[id] == nil {
		s.machines[id] = shard.New(id)
		s.apply(id, shard.Command{Kind: shard.CmdTakeOver})
	}
	return s.machines[id]
}

func (s *machineShards) apply(id uint64, c shard.Command) (out shard.Events) {
	s.index++
	h := shard.Header{Format: shard.FormatVersion, Epoch: leaderEpoch, Seq: s.index, LogTime: uint64(time.Since(s.start).Milliseconds())}
	s.machines[id].Apply(s.index, shard.AppendCommand(shard.AppendHeader(nil, h), c), &out)
	return out
}

func (s *machineShards) Registers(_ context.Context, id, node uint64) (Registers, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machine(id)
	contents, _ := m.Nodes().Contents(node)
	return Registers{m.Epoch(), m.HighestToken(), contents}, nil
}

func (s *machineShards) CopyBuckets(ctx context.Context, source, target uint64, run shard.BucketsBody) (done bool, err error) {
	s.mu.Lock()
	if s.hangs {
		s.mu.Unlock()
		return false, errLost
	}
	cursor, done, ok := s.machine(target).Buckets().Imported(run.First, run.Count, run.Epoch)
	chunk, next, err := s.machine(source).Buckets().Export(run.First, run.Count, run.Epoch, cursor, 1<<10)
	s.mu.Unlock()
	if done || !ok || err != nil {
		return done && ok, err
	}
	body := shard.AppendImport(nil, shard.ImportBody{BucketsBody: run, Chunk: chunk})
	err = s.Propose(ctx, target, shard.Command{Kind: shard.CmdImport, Body: body})
	return len(next) == 0 && err == nil, err
}

// each runs f on every machine.
func (s *machineShards) each(f func(id uint64, m *shard.Machine)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, m := range s.machines {
		f(id, m)
	}
}

// TestRealShards has the governor talk to the machines that data shards really are.
func TestRealShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ids := []uint64{1, 2, 3}
		c, shards := newFakeCluster(), newMachineShards(ids...)
		g := New(Config{Meta: replica{c, 0}, Shards: shards, Clock: c})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		running.Go(func() { g.Run(ctx) })
		must(t, g.Bootstrap(ctx, BootstrapConfig{Shards: ids, Buckets: 64}))
		for b := range uint32(64) {
			owner, epoch := g.State().Route(0, b)
			shards.each(func(id uint64, m *shard.Machine) {
				got, active := m.Bucket(b)
				if active != (id == owner) || (active && got != epoch) {
					t.Errorf("bucket %d at shard %d: epoch %d, active %t; the map says shard %d, epoch %d",
						b, id, got, active, owner, epoch)
				}
			})
		}
		info, err := g.CreateNode(ctx, create("/a/b"))
		must(t, err)
		knows := func(config protocol.NodeConfig) {
			t.Helper()
			shards.each(func(id uint64, m *shard.Machine) {
				if got, ok := m.Nodes().Config(info.ID); !ok || got != config {
					t.Errorf("shard %d has %+v, %t; want %+v", id, got, ok, config)
				}
			})
		}
		knows(info.Config)
		info, err = g.AlterNode(ctx, lowerGrace(info.Path, 4000))
		must(t, err)
		sticky := info.Config
		sticky.GracePeriod = protocol.DefaultGracePeriod
		knows(sticky)
		time.Sleep(time.Minute)
		knows(info.Config)
		_, err = g.DeleteNode(ctx, &protocol.NodeDelete{Path: info.Path})
		must(t, err)
		shards.each(func(id uint64, m *shard.Machine) {
			if _, ok := m.Nodes().Config(info.ID); ok {
				t.Errorf("shard %d still has the node", id)
			}
		})
		if _, ok := g.State().NodeAt(meta.DefaultPath); !ok {
			t.Error("there is no default node")
		}
	})
}

// TestRealShardMoves has buckets move between the machines that data shards really are: to a second
// instance, after a first try was given up, and back when that instance is expelled.
func TestRealShardMoves(t *testing.T) {
	c, shards := newCluster(64, 1, 2), newMachineShards()
	g := New(Config{Meta: c, Shards: shards, Groups: clusterGroups{c}, Instances: c, Clock: c})
	p := NewProgress()
	aborted := 0
	converge := func() {
		t.Helper()
		for quiet := 0; quiet < 30; quiet++ { // longer than shards rest after a move that was given up
			c.heartbeat()
			shards.hangs = shards.hangs && aborted == 0
			c.detectFailures()
			for _, step := range Plan(c.view(p)) {
				answer, err := g.execute(t.Context(), &step)
				switch {
				case err == nil:
					p.Done(&step, c.now, c.now, answer)
				case errors.Is(err, protocol.StatusAborted), errors.Is(err, errLost): // it met another step of the same plan, or hangs
				default:
					t.Fatalf("%s: %v", step, err)
				}
				if step.Kind == AbortMove {
					aborted++
				}
				quiet = 0
			}
		}
		owners := map[uint64]int{}
		for b := range uint32(64) {
			owner, epoch := c.machine.Route(0, b)
			owners[owner]++
			shards.each(func(id uint64, m *shard.Machine) {
				got, active := m.Bucket(b)
				if active != (id == owner) || (active && got != epoch) {
					t.Errorf("bucket %d at shard %d: epoch %d, active %t; the map says shard %d, epoch %d",
						b, id, got, active, owner, epoch)
				}
			})
		}
		for id, n := range owners {
			if n != 64/len(c.machine.Shards()) {
				t.Errorf("shard %d has %d buckets of 64, there are %d shards", id, n, len(c.machine.Shards()))
			}
		}
	}
	converge()
	shards.hangs = true
	c.join("b", "", "", "")
	converge()
	if aborted == 0 {
		t.Error("no move was given up")
	}
	c.apply(&meta.InstanceUpdate{Instance: 2, Target: meta.Expelled, Force: true})
	converge()
	if i, _ := c.machine.Instance(2); !i.Expelled() {
		t.Errorf("instance 2 is %s", i.Current)
	}
}
