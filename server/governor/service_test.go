package governor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// inCluster runs f with a bootstrapped cluster of two shards and a governor on the replica that
// leads.
func inCluster(t *testing.T, f func(t *testing.T, ctx context.Context, c *fakeCluster, g *Governor)) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(1, 2)
		g, stop := c.run(t, 0)
		defer stop()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		must(t, g.Bootstrap(ctx, BootstrapConfig{Name: "one", Address: "one:7070", Shards: []uint64{1, 2}, Buckets: 8}))
		f(t, ctx, c, g)
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wants(t *testing.T, err error, status protocol.Status) {
	t.Helper()
	if !errors.Is(err, status) {
		t.Errorf("%v, want %s", err, status)
	}
}

func create(path string) *protocol.NodeCreate { return &protocol.NodeCreate{Path: path} }

func lowerGrace(path string, ms uint64) *protocol.NodeAlter {
	return &protocol.NodeAlter{Path: path, Config: protocol.NodeConfig{Fields: protocol.FieldGracePeriod, GracePeriod: ms}}
}

func TestNodeLifecycle(t *testing.T) {
	inCluster(t, func(t *testing.T, ctx context.Context, c *fakeCluster, g *Governor) {
		req := create("/services/billing")
		req.Config = protocol.NodeConfig{Fields: protocol.FieldGracePeriod, GracePeriod: 5000}
		made, err := g.CreateNode(ctx, req)
		must(t, err)
		found, err := g.DescribeNode(req.Path)
		must(t, err)
		if made != found || found.CreatedAt == 0 ||
			found.Config.GracePeriod != 5000 || found.Config.SelfCheckPeriod != protocol.DefaultSelfCheckPeriod {
			t.Errorf("created %+v, described %+v", made, found)
		}
		c.with(func(w *fakeState) {
			for id, x := range w.shards {
				if x.nodes[made.ID].grace != 5*time.Second {
					t.Errorf("shard %d does not know the node when its creation comes back", id)
				}
			}
		})
		_, err = g.DescribeNode("/services")
		must(t, err)
		_, err = g.CreateNode(ctx, req)
		wants(t, err, protocol.StatusAlreadyExists)

		altered, err := g.AlterNode(ctx, &protocol.NodeAlter{Path: req.Path, Config: protocol.NodeConfig{
			Fields: protocol.FieldGracePeriod | protocol.FieldMaxSessions, MaxSessions: 7, // the grace period goes back to the default
		}})
		must(t, err)
		found, err = g.DescribeNode(req.Path)
		must(t, err)
		if altered != found || found.ID != made.ID || found.Revision != 2 ||
			found.Config.GracePeriod != protocol.DefaultGracePeriod || found.Config.MaxSessions != 7 {
			t.Errorf("altered %+v, described %+v", altered, found)
		}
		if n, _ := g.State().Node(made.ID); n.SetFields != protocol.FieldMaxSessions {
			t.Errorf("given are %#x", n.SetFields)
		}

		wants(t, deleteNode(ctx, g, "/services"), protocol.StatusPreconditionFailed)
		must(t, deleteNode(ctx, g, req.Path))
		c.with(func(w *fakeState) {
			for id, x := range w.shards {
				if !x.dropped[made.ID] {
					t.Errorf("shard %d still has the node when its drop comes back", id)
				}
			}
		})
		_, err = g.DescribeNode(req.Path)
		wants(t, err, protocol.StatusNotFound)
		wants(t, deleteNode(ctx, g, req.Path), protocol.StatusNotFound)
		_, err = g.AlterNode(ctx, lowerGrace(req.Path, 5000))
		wants(t, err, protocol.StatusNotFound)
		again, err := g.CreateNode(ctx, create(req.Path))
		must(t, err)
		if again.ID == made.ID || again.Revision != 1 {
			t.Errorf("the node that was made again is %+v", again)
		}
	})
}

func TestInvalidNodeIsNotProposed(t *testing.T) {
	inCluster(t, func(t *testing.T, ctx context.Context, c *fakeCluster, g *Governor) {
		before := g.State().AppliedIndex()
		_, err := g.CreateNode(ctx, create("/a b"))
		wants(t, err, protocol.StatusBadRequest)
		_, err = g.CreateNode(ctx, &protocol.NodeCreate{Path: "/a", Config: lowerGrace("", 1).Config})
		wants(t, err, protocol.StatusBadRequest)
		_, err = g.AlterNode(ctx, lowerGrace(meta.DefaultPath, 1<<40))
		wants(t, err, protocol.StatusBadRequest)
		_, err = g.AlterNode(ctx, lowerGrace("", 5000))
		wants(t, err, protocol.StatusBadRequest)
		wants(t, deleteNode(ctx, g, "/"), protocol.StatusBadRequest)
		_, err = g.DescribeNode("a")
		wants(t, err, protocol.StatusBadRequest)
		if g.State().AppliedIndex() != before {
			t.Error("something was proposed")
		}
	})
}

// TestEachChangeHappensOnce has many callers at once, on two instances, while words and answers get
// lost, come late, and governors crash.
func TestEachChangeHappensOnce(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { eachChangeHappensOnce(t, seed) })
	}
}

func eachChangeHappensOnce(t *testing.T, seed uint64) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(1, 2, 3)
		c.random = rand.New(rand.NewPCG(seed, 0))
		a, stopA := c.run(t, 0)
		b, stopB := c.run(t, 1)
		defer stopB()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		must(t, a.Bootstrap(ctx, BootstrapConfig{Shards: []uint64{1, 2, 3}, Buckets: 8}))
		c.mu.Lock()
		c.faults = true
		c.mu.Unlock()
		crashing, stopCrashing := context.WithCancel(ctx)
		var crashes sync.WaitGroup
		crashes.Go(func() {
			for crashing.Err() == nil {
				time.Sleep(700 * time.Millisecond)
				stopA()
				_, stopA = c.run(t, 0)
				time.Sleep(900 * time.Millisecond)
				c.elect(1)
				time.Sleep(2 * time.Second)
				c.elect(-1)
				time.Sleep(100 * time.Millisecond)
				c.elect(0)
			}
		})

		var calls sync.WaitGroup
		const n = 10
		count := func(what string, want int, call func(i int) error, other protocol.Status) {
			var mu sync.Mutex
			ok := 0
			var all sync.WaitGroup
			for i := range n {
				all.Go(func() {
					err := call(i)
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						ok++
					} else {
						wants(t, err, other)
					}
				})
			}
			all.Wait()
			if ok != want {
				t.Errorf("%s: %d came back as done, want %d", what, ok, want)
			}
		}
		calls.Go(func() {
			count("creates of different paths", n, func(i int) error {
				_, err := b.CreateNode(ctx, create(fmt.Sprintf("/many/%d/x", i)))
				return err
			}, protocol.StatusOK)
		})
		calls.Go(func() {
			count("creates of one path", 1, func(int) error {
				_, err := b.CreateNode(ctx, create("/one"))
				return err
			}, protocol.StatusAlreadyExists)
			count("alters", n, func(i int) error {
				config := protocol.NodeConfig{Fields: 1 << (i + 1), GracePeriod: 4000, MaxSessions: 8, MaxSemaphores: 9, MaxBytes: 10,
					MaxWaiters: 11, MaxWatchers: 12, MaxPriority: 7}
				if config.Fields == protocol.FieldCountersMode {
					config.CountersMode = protocol.CountersDetailed
				}
				_, err := b.AlterNode(ctx, &protocol.NodeAlter{Path: "/one", Config: config})
				return err
			}, protocol.StatusOK)
			info, err := b.DescribeNode("/one")
			if want := (protocol.NodeConfig{
				Fields: protocol.AllFields, SelfCheckPeriod: protocol.DefaultSelfCheckPeriod, GracePeriod: 4000,
				ReadConsistency: protocol.Relaxed, AttachConsistency: protocol.Strict, CountersMode: protocol.CountersDetailed,
				MaxSessions: 8, MaxSemaphores: 9, MaxBytes: 10, MaxWaiters: 11, MaxWatchers: 12, MaxPriority: 7,
			}); err != nil || info.Config != want || info.Revision != n+1 {
				t.Errorf("after all alters: %+v, %v", info, err)
			}
			count("drops", 1, func(int) error {
				return deleteNode(ctx, b, "/one")
			}, protocol.StatusNotFound)
		})
		calls.Wait()
		stopCrashing()
		crashes.Wait()
		c.mu.Lock()
		c.faults = false
		c.mu.Unlock()
		// Everything decided comes to rest, on every shard.
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		c.with(func(w *fakeState) {
			for n := range w.meta.Pending() {
				t.Errorf("node %s is %s with floor %d", n.Path, n.Phase, n.GraceFloor)
			}
			for id, x := range w.shards {
				if len(x.nodes) != w.meta.NumNodes() || len(x.dropped) != 1 {
					t.Errorf("shard %d: %s; want %d nodes", id, x, w.meta.NumNodes())
				}
			}
		})
		stopA()
	})
}

// TestChangeContinuesWithoutCaller: when the caller's time ends before all shards have answered,
// the change happens all the same.
func TestChangeContinuesWithoutCaller(t *testing.T) {
	inCluster(t, func(t *testing.T, ctx context.Context, c *fakeCluster, g *Governor) {
		c.with(func(w *fakeState) { w.shards[2].down = true })
		short, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		_, err := g.CreateNode(short, create("/slow"))
		wants(t, err, protocol.StatusUnavailable)
		_, err = g.DescribeNode("/slow")
		wants(t, err, protocol.StatusNotFound)

		c.with(func(w *fakeState) { w.shards[2].down = false })
		time.Sleep(2 * MaxBackoff)
		_, err = g.DescribeNode("/slow")
		must(t, err)
	})
}

// TestCreateWaitsForDrop: the path of a node that is being dropped is not free yet; a create waits
// for it.
func TestCreateWaitsForDrop(t *testing.T) {
	inCluster(t, func(t *testing.T, ctx context.Context, c *fakeCluster, g *Governor) {
		old, err := g.CreateNode(ctx, create("/p"))
		must(t, err)
		c.with(func(w *fakeState) { w.shards[1].down = true })
		var calls sync.WaitGroup
		defer calls.Wait()
		calls.Go(func() { must(t, deleteNode(ctx, g, "/p")) })
		time.Sleep(time.Second)
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err = g.CreateNode(short, create("/p/q"))
		if !errors.Is(err, protocol.StatusAborted) && !errors.Is(err, protocol.StatusUnavailable) { // by what the last try came to
			t.Errorf("create below the node: %v", err)
		}
		calls.Go(func() {
			made, err := g.CreateNode(ctx, create("/p"))
			must(t, err)
			if made.ID == old.ID {
				t.Error("the id was used again")
			}
		})
		time.Sleep(time.Second)
		c.with(func(w *fakeState) { w.shards[1].down = false })
	})
}

// TestMetaShardUnavailable: a change is not answered as done, nor as refused.
func TestMetaShardUnavailable(t *testing.T) {
	inCluster(t, func(t *testing.T, ctx context.Context, c *fakeCluster, g *Governor) {
		c.mu.Lock()
		c.cut = true
		c.mu.Unlock()
		short, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		_, err := g.CreateNode(short, create("/a"))
		wants(t, err, protocol.StatusUnavailable)
	})
}

// TestLoweredGraceIsDelayed: after an alter that lowers the grace period, shards keep the old one
// until a leader has led them for as long.
func TestLoweredGraceIsDelayed(t *testing.T) {
	inCluster(t, func(t *testing.T, ctx context.Context, c *fakeCluster, g *Governor) {
		info, err := g.AlterNode(ctx, lowerGrace(meta.DefaultPath, 4000))
		must(t, err)
		if info.Config.GracePeriod != 4000 {
			t.Errorf("described as %d", info.Config.GracePeriod)
		}
		grace := func(shard uint64) (d time.Duration) {
			c.with(func(w *fakeState) { d = w.shards[shard].nodes[info.ID].grace })
			return d
		}
		time.Sleep(6 * time.Second)
		c.with(func(w *fakeState) { w.elect(2, 2) })
		time.Sleep(2 * time.Second)
		if grace(1) != 10*time.Second || grace(2) != 10*time.Second {
			t.Errorf("after 8 s: %s and %s", grace(1), grace(2))
		}
		time.Sleep(4 * time.Second)
		if grace(1) != 4*time.Second || grace(2) != 10*time.Second {
			t.Errorf("after 12 s: %s and %s", grace(1), grace(2))
		}
		time.Sleep(12 * time.Second)
		if n, _ := g.State().Node(info.ID); grace(2) != 4*time.Second || n.GraceFloor != 0 {
			t.Errorf("after 24 s: %s, floor %d", grace(2), n.GraceFloor)
		}
	})
}

func TestBootstrapAtEveryStart(t *testing.T) {
	inCluster(t, func(t *testing.T, ctx context.Context, c *fakeCluster, g *Governor) {
		first := g.State()
		must(t, g.Bootstrap(ctx, BootstrapConfig{Name: "one", Address: "one:7070", Shards: []uint64{1, 2}, Buckets: 8}))
		if g.State().Revision() != first.Revision() {
			t.Error("the same start changed something")
		}
		must(t, g.Bootstrap(ctx, BootstrapConfig{Name: "one", Address: "one:9090", Shards: []uint64{1, 2}, Buckets: 8}))
		now := g.State()
		if i, _ := now.Instance(1); i.Address != "one:9090" || now.Cluster() != first.Cluster() || now.MapVersion() == first.MapVersion() {
			t.Errorf("instance %+v of %s", i, now.Cluster())
		}
		// A start whose replica has not read its log back yet, and takes the cluster for a new one.
		late := New(Config{Meta: &emptyReplica{replica: replica{c, 0}}, Shards: fakeShards{c}, Clock: c})
		must(t, late.Bootstrap(ctx, BootstrapConfig{Name: "one", Address: "one:9091", Shards: []uint64{1, 2}, Buckets: 8}))
		if i, _ := g.State().Instance(1); i.Address != "one:9091" || g.State().Cluster() != first.Cluster() {
			t.Errorf("after a late replica: %+v of %s", i, g.State().Cluster())
		}
		wants(t, g.Bootstrap(ctx, BootstrapConfig{Instance: 2, Shards: []uint64{1}}), protocol.StatusPreconditionFailed)
	})
}

// TestRotateKeysOnce: a rotation that is repeated, here or where the first one is not known yet,
// replaces no second key: the tickets of the previous one stay good.
func TestRotateKeysOnce(t *testing.T) {
	inCluster(t, func(t *testing.T, ctx context.Context, c *fakeCluster, g *Governor) {
		before, _ := g.State().Keys()
		old := &meta.Machine{State: *g.State()}
		must(t, g.RotateKeys(ctx, before.ID))
		rotated, previous := g.State().Keys()
		if previous != before || rotated.ID != before.ID+1 || rotated.Secret == before.Secret {
			t.Error("keys were not rotated")
		}
		late := New(Config{Meta: &emptyReplica{replica: replica{c, 0}, old: old}, Shards: fakeShards{c}, Clock: c})
		for _, again := range []*Governor{g, late} {
			must(t, again.RotateKeys(ctx, before.ID))
			if current, previous := g.State().Keys(); current != rotated || previous != before {
				t.Fatalf("after a repeated rotation the current key is %d, and the previous one %d", current.ID, previous.ID)
			}
		}
		must(t, g.RotateKeys(ctx, rotated.ID))
		if current, previous := g.State().Keys(); current.ID != rotated.ID+1 || previous != rotated {
			t.Errorf("the next rotation led to keys %d and %d", current.ID, previous.ID)
		}
	})
}

// TestPutTokenAgain: a token that is added again is no error, and nothing else takes its id.
func TestPutTokenAgain(t *testing.T) {
	inCluster(t, func(t *testing.T, ctx context.Context, c *fakeCluster, g *Governor) {
		token := meta.Token{ID: "x", Identity: "alice", Hash: [meta.HashLen]byte{1}}
		must(t, g.PutToken(ctx, token))
		time.Sleep(time.Minute) // it has another time of creation
		must(t, g.PutToken(ctx, token))
		for _, change := range []func(*meta.Token){
			func(o *meta.Token) { o.ID = "y" }, func(o *meta.Token) { o.Identity = "bob" }, func(o *meta.Token) { o.Hash[0] = 2 },
		} {
			other := token
			change(&other)
			wants(t, g.PutToken(ctx, other), protocol.StatusAlreadyExists)
		}
	})
}

// emptyReplica shows an old machine, by default an empty one, until something was proposed.
type emptyReplica struct {
	replica
	old      *meta.Machine
	proposed bool
}

func (f *emptyReplica) Propose(ctx context.Context, cmd []byte) ([]byte, error) {
	f.proposed = true
	return f.replica.Propose(ctx, cmd)
}

func (f *emptyReplica) State() *meta.State {
	if !f.proposed {
		return &cmp.Or(f.old, meta.New()).State
	}
	return f.replica.State()
}

func deleteNode(ctx context.Context, g *Governor, path string) error {
	_, err := g.DeleteNode(ctx, &protocol.NodeDelete{Path: path, Force: true, Reason: "test"})
	return err
}
