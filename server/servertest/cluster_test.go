package servertest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// TestCluster: three instances are one cluster; a lock held through the death of an instance is
// still held, and the instance comes back.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := servertest.StartCluster(t, 3, servertest.Shards(2))
	cl, err := client.Dial(t.Context(), c.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	s, err := cl.Session(t.Context(), "/default", client.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	lease, err := s.Acquire(t.Context(), "jobs", client.Exclusive())
	if err != nil {
		t.Fatal(err)
	}
	for _, shard := range c.Shards()[:1] {
		i := c.Leader(shard)
		c.Kill(i)
		if next := c.Leader(shard); next < 0 || next == i {
			t.Fatalf("instance %d leads, after %d was killed", next, i)
		}
		other, err := s.Acquire(t.Context(), "other", client.Exclusive())
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.Restart(i)
		c.WaitReady()
	}
	if !lease.Held() {
		t.Fatal("the lease is lost")
	}
}

// oneShard is three instances of one shard, and a session of a client that knows them all.
func oneShard(t *testing.T) (*servertest.Cluster, *client.Session) {
	t.Helper()
	c := servertest.StartCluster(t, 3, servertest.Shards(1))
	cl, err := client.Dial(t.Context(), c.Addrs()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cl.Close() })
	s, err := cl.Session(t.Context(), "/default", client.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return c, s
}

// TestOnlyFollowers: a client that reaches instances that lead nothing, and no other, is told so
// when its time is over, and goes on when the cut is healed.
func TestOnlyFollowers(t *testing.T) {
	t.Parallel()
	c, s := oneShard(t)
	await.True(t, "a cut that no election comes into", func() bool {
		i := c.Leader(c.Shards()[0])
		c.Instance(i).Unreachable()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		l, err := s.Acquire(ctx, "jobs", client.Exclusive())
		cancel()
		led := c.Leader(c.Shards()[0]) == i
		c.Instance(i).Reachable()
		if err == nil && !led { // a slow machine made another one lead meanwhile
			if err = l.Release(t.Context()); err == nil {
				return false
			}
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("an acquire that reaches no leader ended with %v", err)
		}
		t.Log(err)
		return true
	})
	if _, err := s.Acquire(t.Context(), "jobs", client.Exclusive()); err != nil {
		t.Fatal(err)
	}
}

// TestCutOffReplica: what is watched at a replica that is cut off from the others is watched at
// another one soon, a node that it has not heard of is watched there at once, and not denied here.
func TestCutOffReplica(t *testing.T) {
	t.Parallel()
	c, _ := oneShard(t)
	ctx, end := context.WithTimeout(t.Context(), 3*time.Minute)
	defer end()
	leader := c.Leader(c.Shards()[0])
	dial := func() *client.Client {
		cl, err := client.Dial(ctx, c.Addrs()[leader])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cl.Close() })
		return cl
	}
	cl := dial()
	create := func(path string) *client.Session {
		selfCheck, grace := 500*time.Millisecond, 1500*time.Millisecond
		if _, err := admin.Nodes(cl).Create(ctx, path, admin.NodeConfig{SelfCheckPeriod: &selfCheck, GracePeriod: &grace}); err != nil {
			t.Fatal(err)
		}
		s, err := cl.Session(ctx, path, client.Timeout(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Create(ctx, "x", 1, []byte("first")); err != nil {
			t.Fatal(err)
		}
		return s
	}
	// Each client takes a replica at random: one at least takes that which is cut off.
	const clients = 24
	watch := func(path string) (next func(want string)) {
		values := make(chan string, 10*clients)
		for range clients {
			n, err := dial().Node(ctx, path)
			if err != nil {
				t.Fatal(err)
			}
			n.WatchFunc(ctx, "x", func(ev client.Event, err error) {
				switch {
				case err != nil:
					values <- err.Error()
				case ev.DataChanged:
					values <- string(ev.Data)
				}
			})
		}
		return func(want string) {
			t.Helper()
			for i := range clients {
				if got := <-values; got != want {
					t.Fatalf("%s: watch %d got %q, want %q", path, i, got, want)
				}
			}
		}
	}

	s := create("/old")
	old := watch("/old")
	old("first")
	alone := (leader + 1) % c.Size()
	c.Isolate(alone)
	if _, err := s.Update(ctx, "x", []byte("second")); err != nil {
		t.Fatal(err)
	}
	old("second")
	create("/new")
	watch("/new")("first")

	// An instance that is cut off does not say that there is no such node.
	there, err := client.Dial(ctx, c.Addrs()[alone])
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := admin.Nodes(there).Describe(short, "/new"); !errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, client.ErrNotFound) {
		t.Errorf("an instance that is cut off describes a new node: %v", err)
	}
	c.HealAll()
	if _, err := admin.Nodes(there).Describe(ctx, "/new"); err != nil {
		t.Error(err)
	}
	if _, err := admin.Nodes(there).Describe(ctx, "/none"); !errors.Is(err, client.ErrNotFound) {
		t.Error(err)
	}
}

// TestClusterFaults: with each cut there is a leader that serves, elsewhere if need be; with the
// cuts healed, or an instance stopped, the cluster is as it should be.
func TestClusterFaults(t *testing.T) {
	t.Parallel()
	c, s := oneShard(t)
	works := func(when string) {
		t.Helper()
		l, err := s.Acquire(t.Context(), "jobs", client.Exclusive())
		if err == nil {
			err = l.Release(t.Context())
		}
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
	}
	shard := c.Shards()[0]
	leader := func() (i, next, last int) {
		i = c.Leader(shard)
		return i, (i + 1) % c.Size(), (i + 2) % c.Size()
	}

	alone, _, _ := leader()
	c.Isolate(alone)
	works("the leader is isolated")
	await.True(t, "the instance that is cut off to lead no more", func() bool { return c.Leader(shard) != alone })
	c.HealAll()
	c.WaitReady()

	_, next, last := leader()
	c.Cut(next, last)
	works("two followers do not reach each other")
	c.Heal(next, last)
	c.WaitReady()

	i, next, _ := leader()
	c.CutOneWay(i, next)
	works("a follower hears nothing of the leader")
	c.Heal(i, next)
	c.WaitReady()

	governor := c.Governor()
	c.Stop(governor)
	c.WaitReady()
	works("the governor has stopped")
	c.Restart(governor)
	c.WaitReady()
	works("all are back")
}
