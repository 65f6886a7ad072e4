package governor

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// liveCluster is a cluster behind a lock in which time passes by itself and words take some. It is
// used inside synctest bubbles.
type liveCluster struct {
	mu      sync.Mutex
	cluster *cluster
	start   time.Time
	changed chan struct{}
	leader  int // the governor that leads
	random  *rand.Rand
	faults  bool
}

func newLiveCluster(t *testing.T, seed uint64, buckets, factor, perSet uint32) *liveCluster {
	c := &liveCluster{
		cluster: newCluster(buckets, factor, perSet),
		start:   time.Now().Add(-time.Hour),
		changed: make(chan struct{}),
		random:  rand.New(rand.NewPCG(seed, 1)),
	}
	c.cluster.violation = func(text string) { t.Error(text) }
	c.cluster.nextDelivery = func() delivery {
		if c.faults && c.random.IntN(6) == 0 {
			return delivery(c.random.IntN(3)) // delayed ones would need a hand
		}
		return delivered
	}
	return c
}

// with runs f under the lock, at this moment.
func (c *liveCluster) with(f func(w *cluster)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cluster.now = time.Since(c.start)
	f(c.cluster)
}

// withDelay is with, after a word's way.
func (c *liveCluster) withDelay(ctx context.Context, f func(w *cluster)) error {
	var delay time.Duration
	c.with(func(*cluster) { delay = time.Duration(c.random.IntN(20)) * time.Millisecond })
	select {
	case <-time.After(delay):
		c.with(f)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *liveCluster) signal() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// run is the time that passes, and what instances say of themselves and each other.
func (c *liveCluster) run(ctx context.Context) {
	for ctx.Err() == nil {
		c.with(func(w *cluster) {
			w.receiveHeartbeats()
			w.detectFailures()
			w.checkBuckets()
			c.signal()
		})
		time.Sleep(500 * time.Millisecond)
	}
}

func (c *liveCluster) Now() (now time.Duration) {
	c.with(func(w *cluster) { now = w.now })
	return now
}

func (c *liveCluster) Wall() time.Time { return time.Now() }

// Unreached is Instances'.
func (c *liveCluster) Unreached() map[uint64]Unreached { return nil }

func (c *liveCluster) Health() (h map[uint64]Heartbeat) {
	c.with(func(w *cluster) { h = w.Health() })
	return h
}

func (c *liveCluster) Changed() (changed <-chan struct{}) {
	c.with(func(*cluster) { changed = c.changed })
	return changed
}

type liveMeta struct {
	*liveCluster
	id int
}

func (m liveMeta) Propose(ctx context.Context, cmd []byte) (result []byte, err error) {
	if lost := m.withDelay(ctx, func(w *cluster) {
		result, err = w.Propose(ctx, cmd)
		m.signal()
	}); lost != nil {
		return nil, lost
	}
	return result, err
}

func (m liveMeta) State() (s *meta.State) {
	m.with(func(w *cluster) { s = w.State() })
	return s
}

func (m liveMeta) Leading() (leading bool) {
	m.with(func(*cluster) { leading = m.leader == m.id })
	return leading
}

type liveShards struct{ *liveCluster }

func (s liveShards) Propose(ctx context.Context, x uint64, cmd shard.Command) (err error) {
	if lost := s.withDelay(ctx, func(w *cluster) { err = clusterShards{w}.Propose(ctx, x, cmd) }); lost != nil {
		return lost
	}
	return err
}

func (s liveShards) Registers(ctx context.Context, x, node uint64) (at Registers, err error) {
	if lost := s.withDelay(ctx, func(w *cluster) { at, err = clusterShards{w}.Registers(ctx, x, node) }); lost != nil {
		return at, lost
	}
	return at, err
}

func (s liveShards) CopyBuckets(ctx context.Context, source, target uint64, run shard.BucketsBody) (done bool, err error) {
	if lost := s.withDelay(ctx, func(w *cluster) { done, err = clusterShards{w}.CopyBuckets(ctx, source, target, run) }); lost != nil {
		return false, lost
	}
	return done, err
}

type liveGroups struct{ *liveCluster }

func (g liveGroups) Members(ctx context.Context, x uint64) (m Membership, err error) {
	if lost := g.withDelay(ctx, func(w *cluster) { m, err = clusterGroups{w}.Members(ctx, x) }); lost != nil {
		return m, lost
	}
	return m, err
}

func (g liveGroups) change(ctx context.Context, f func(w clusterGroups) error) (err error) {
	if lost := g.withDelay(ctx, func(w *cluster) { err = f(clusterGroups{w}) }); lost != nil {
		return lost
	}
	return err
}

func (g liveGroups) AddNonVoting(ctx context.Context, x, replica uint64, address string, change uint64) error {
	return g.change(ctx, func(w clusterGroups) error { return w.AddNonVoting(ctx, x, replica, address, change) })
}

func (g liveGroups) Promote(ctx context.Context, x, replica, change uint64) error {
	return g.change(ctx, func(w clusterGroups) error { return w.Promote(ctx, x, replica, change) })
}

func (g liveGroups) Remove(ctx context.Context, x, replica, change uint64) error {
	return g.change(ctx, func(w clusterGroups) error { return w.Remove(ctx, x, replica, change) })
}

func (g liveGroups) Transfer(ctx context.Context, x, replica, after uint64) error {
	return g.change(ctx, func(w clusterGroups) error { return w.Transfer(ctx, x, replica, after) })
}

// inLiveCluster runs f beside two governors, of which number 0 leads, and beside the time that
// passes.
func inLiveCluster(t *testing.T, seed uint64, factor uint32, f func(t *testing.T, ctx context.Context, c *liveCluster, g *Governor)) {
	synctest.Test(t, func(t *testing.T) {
		c := newLiveCluster(t, seed, 64, factor, 2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		running.Go(func() { c.run(ctx) })
		var governors [2]*Governor
		for id := range governors {
			g := New(Config{
				Meta: liveMeta{c, id}, Shards: liveShards{c}, Groups: liveGroups{c}, Instances: c,
				Clock: c, Logger: slog.New(slog.DiscardHandler),
			})
			governors[id] = g
			running.Go(func() { g.Run(ctx) })
		}
		f(t, ctx, c, governors[0])
	})
}

// awaitConvergence waits until nothing is left to do, and says how long that took.
func (c *liveCluster) awaitConvergence(t *testing.T, instances int) time.Duration {
	t.Helper()
	began := time.Now()
	why := "" // not yet
	for range 1200 {
		time.Sleep(100 * time.Millisecond)
		c.with(func(w *cluster) {
			if why = w.notConverged(); why == "" && len(w.machine.Instances()) < instances {
				why = "not everybody has joined"
			}
			for id, p := range w.procs {
				if why == "" && p.up && !p.announced {
					why = fmt.Sprintf("instance %d has not said yet that it is there", id)
				}
			}
			if why == "" && len(Plan(w.view(NewProgress()))) > 0 {
				why = "there are steps left"
			}
		})
		if why == "" {
			return time.Since(began)
		}
	}
	t.Fatalf("after %s: %s", time.Since(began), why)
	return 0
}

// TestClusterGrowsAndShrinks has six instances join, one by one die and come back, and half of them
// expelled, while clients write, words and answers are lost, and another governor takes over every
// few seconds.
func TestClusterGrowsAndShrinks(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			inLiveCluster(t, seed, 3, func(t *testing.T, ctx context.Context, c *liveCluster, g *Governor) {
				c.with(func(*cluster) { c.faults = true })
				var disturbing sync.WaitGroup
				disturbed, quiet := context.WithCancel(ctx)
				disturbing.Go(func() {
					for disturbed.Err() == nil {
						time.Sleep(70 * time.Millisecond)
						c.with(func(w *cluster) {
							w.write(0, c.random.Uint32N(64))
							if c.random.IntN(50) == 0 {
								c.leader = 1 - c.leader
								c.signal()
							}
						})
					}
				})
				for n := 2; n <= 6; n++ {
					name := fmt.Sprintf("i%d", n)
					_, err := g.Join(ctx, meta.Join{
						UUID: name, Name: name, Address: name, RaftAddress: name, Version: meta.Version{Major: 1},
					})
					if err != nil {
						t.Fatal(err)
					}
					c.with(func(w *cluster) { w.procs[uint64(n)] = &process{up: true} })
				}
				c.awaitConvergence(t, 6)
				for id := uint64(1); id <= 6; id++ {
					c.with(func(w *cluster) { w.kill(id) })
					time.Sleep(8 * time.Second)
					c.with(func(w *cluster) { w.start(id) })
					c.awaitConvergence(t, 6)
				}
				for id := uint64(4); id <= 6; id++ {
					if _, err := g.Expel(ctx, id, true); err != nil {
						t.Fatal(err)
					}
				}
				c.awaitConvergence(t, 6)
				quiet()
				disturbing.Wait()
				c.with(func(w *cluster) {
					for _, i := range w.machine.Instances() {
						if i.Expelled() != (i.ID > 3) {
							t.Errorf("instance %d is %s", i.ID, i.Current)
						}
					}
				})
			})
		})
	}
}

// inClusterOfThree runs f with the instances a, b and c, which have the numbers 1 to 3, in one
// replicaset.
func inClusterOfThree(t *testing.T, f func(t *testing.T, ctx context.Context, c *liveCluster, g *Governor)) {
	inLiveCluster(t, 1, 3, func(t *testing.T, ctx context.Context, c *liveCluster, g *Governor) {
		for n, name := range []string{"b", "c"} {
			_, err := g.Join(ctx, meta.Join{UUID: name, Name: name, RaftAddress: name, Version: meta.Version{Major: 1}})
			must(t, err)
			c.with(func(w *cluster) { w.procs[uint64(n+2)] = &process{up: true} })
		}
		c.awaitConvergence(t, 3)
		f(t, ctx, c, g)
	})
}

// TestExpelKeepsMajority: an instance whose expel would leave too few voters is refused, with force
// too, until the one that is down has left.
func TestExpelKeepsMajority(t *testing.T) {
	inClusterOfThree(t, func(t *testing.T, ctx context.Context, c *liveCluster, g *Governor) {
		c.with(func(w *cluster) { w.kill(3) })
		must(t, g.Await(ctx, func(s *meta.State) bool {
			i, _ := s.Instance(3)
			return i.Current.Variant == meta.Offline
		}))
		_, err := g.Expel(ctx, 2, true)
		wants(t, err, protocol.StatusPreconditionFailed)
		if !strings.Contains(fmt.Sprint(err), "of the voters that stay (a, c), c would not take part; start c again, or expel c first") {
			t.Errorf("refused with %v", err)
		}
		for _, id := range []uint64{3, 2} {
			_, err := g.Expel(ctx, id, true)
			must(t, err)
			must(t, g.Await(ctx, func(s *meta.State) bool {
				i, _ := s.Instance(id)
				return i.Expelled()
			}))
		}
	})
}

// TestExpelWithoutMajority: a majority that is lost already does not come back by an expel.
func TestExpelWithoutMajority(t *testing.T) {
	inClusterOfThree(t, func(t *testing.T, ctx context.Context, c *liveCluster, g *Governor) {
		c.with(func(w *cluster) { w.kill(2); w.kill(3) })
		time.Sleep(time.Minute)
		_, err := g.Expel(ctx, 3, true)
		wants(t, err, protocol.StatusPreconditionFailed)
		if !strings.Contains(fmt.Sprint(err), "1 of 3 voters up; start b, c again; if a disk is lost for good, see") {
			t.Errorf("refused with %v", err)
		}
	})
}

// TestLastDrain: the last instance that can lead is not drained, and the refusal names those that
// are.
func TestLastDrain(t *testing.T) {
	inClusterOfThree(t, func(t *testing.T, ctx context.Context, c *liveCluster, g *Governor) {
		for id := uint64(2); id <= 3; id++ {
			_, err := g.Drain(ctx, id, false)
			must(t, err)
			c.awaitConvergence(t, 3)
		}
		_, err := g.Drain(ctx, 1, false)
		wants(t, err, protocol.StatusPreconditionFailed)
		if !strings.Contains(fmt.Sprint(err), "and all others that could are drained: b, c; take back one drain first: signalbox cluster undrain b") {
			t.Errorf("refused with %v", err)
		}
	})
}

// TestOperatorCalls are refused with what would allow them, and do what they say.
func TestOperatorCalls(t *testing.T) {
	inLiveCluster(t, 1, 2, func(t *testing.T, ctx context.Context, c *liveCluster, g *Governor) {
		wants(t, g.SetWeight(ctx, 1, 0), protocol.StatusPreconditionFailed)
		_, err := g.Expel(ctx, 1, true)
		wants(t, err, protocol.StatusPreconditionFailed)
		_, err = g.Drain(ctx, 1, false)
		wants(t, err, protocol.StatusPreconditionFailed)
		wants(t, g.TransferMaster(ctx, 2, 9), protocol.StatusNotFound)
		wants(t, g.SetReplicationFactor(ctx, 0, 0), protocol.StatusBadRequest)
		wants(t, g.SetReplicationFactor(ctx, 3, 2), protocol.StatusNotFound)
		_, err = g.Join(ctx, meta.Join{UUID: "b", Name: "b", RaftAddress: "b", Cluster: "another", Version: meta.Version{Major: 1}})
		wants(t, err, protocol.StatusPreconditionFailed)

		for n, name := range []string{"b", "c", "d"} {
			i, err := g.Join(ctx, meta.Join{UUID: name, Name: name, RaftAddress: name, Version: meta.Version{Major: 1}})
			must(t, err)
			again, err := g.Join(ctx, meta.Join{UUID: name, RaftAddress: name, Version: meta.Version{Major: 1}})
			if err != nil || again.ID != i.ID || i.ID != uint64(n+2) {
				t.Errorf("%s joined as %d, then as %d: %v", name, i.ID, again.ID, err)
			}
			wants(t, g.TransferMaster(ctx, 2, i.ID), protocol.StatusPreconditionFailed)
			c.with(func(w *cluster) { w.procs[i.ID] = &process{up: true} })
			c.awaitConvergence(t, n+2)
		}
		state := g.State()
		a, err := FindInstance(state, "a")
		must(t, err)
		_, err = FindInstance(state, "nobody")
		wants(t, err, protocol.StatusNotFound)
		set, err := FindReplicaset(state, "default_2")
		must(t, err)
		if byUUID, err := FindReplicaset(state, set.UUID); err != nil || byUUID.ID != set.ID {
			t.Errorf("replicaset by uuid: %+v, %v", byUUID, err)
		}

		must(t, g.SetWeight(ctx, set.ID, 3000))
		c.awaitConvergence(t, 4)
		must(t, g.SetReplicationFactor(ctx, 0, 3))
		if tier, _ := g.State().Tier(0); len(tier.RaisedAt) != 1 {
			t.Errorf("the factor was raised by one at times %v", tier.RaisedAt)
		}
		i, err := g.Drain(ctx, a.ID, false)
		must(t, err)
		c.awaitConvergence(t, 4)
		if !i.Drained || leads(g.State(), a.ID) != 0 {
			t.Errorf("%+v leads %d shards after it was drained", i, leads(g.State(), a.ID))
		}
		wants(t, g.TransferMaster(ctx, 2, a.ID), protocol.StatusPreconditionFailed)
		_, err = g.Drain(ctx, a.ID, true)
		must(t, err)
		c.awaitConvergence(t, 4)
		if leads(g.State(), a.ID) != 1 {
			t.Errorf("it leads %d shards when it may again", leads(g.State(), a.ID))
		}
		_, err = g.Expel(ctx, a.ID, false)
		wants(t, err, protocol.StatusPreconditionFailed)
		_, err = g.UpdateInstance(ctx, meta.InstanceUpdate{
			Instance: a.ID, Target: meta.Offline, Expected: a.Revision, Reason: "old news",
		})
		wants(t, err, protocol.StatusAborted)
		if e, err := g.Explain(); err != nil || len(e.Next) > 0 {
			t.Errorf("plan %+v, %v; want nothing next", e, err)
		}
	})
}

func leads(s *meta.State, instance uint64) (n int) {
	for _, x := range s.Shards() {
		if x.Master == instance {
			n++
		}
	}
	return n
}

// TestFailoverIsQuick: the map names the new leader soon after an election, and a shutdown is over
// well before its limit.
func TestFailoverIsQuick(t *testing.T) {
	inLiveCluster(t, 3, 3, func(t *testing.T, ctx context.Context, c *liveCluster, g *Governor) {
		for _, name := range []string{"b", "c"} {
			i, err := g.Join(ctx, meta.Join{UUID: name, Name: name, RaftAddress: name, Version: meta.Version{Major: 1}})
			must(t, err)
			c.with(func(w *cluster) { w.procs[i.ID] = &process{up: true} })
		}
		c.awaitConvergence(t, 3)
		victim := g.State().Shards()[0].Master
		began := time.Now()
		_, err := g.UpdateInstance(ctx, meta.InstanceUpdate{Instance: victim, Target: meta.Offline, Reason: meta.ReasonShutdown})
		must(t, err)
		await.True(t, "an instance that is offline", func() bool {
			i, _ := g.State().Instance(victim)
			return i.Current.Variant == meta.Offline
		})
		if took := time.Since(began); took > DrainTimeout {
			t.Errorf("a shutdown took %s", took)
		}
		if n := leads(g.State(), victim); n != 0 {
			t.Errorf("it leads %d shards when it is offline", n)
		}
	})
}

// TestHungMoveIsAborted: buckets whose copy does not come over are served by their source again
// after ten seconds, and moved when it goes on.
func TestHungMoveIsAborted(t *testing.T) {
	inLiveCluster(t, 2, 1, func(t *testing.T, ctx context.Context, c *liveCluster, g *Governor) {
		c.awaitConvergence(t, 1)
		c.with(func(w *cluster) { w.hangs = func(uint64) bool { return true } })
		_, err := g.Join(ctx, meta.Join{UUID: "b", Name: "b", RaftAddress: "b", Version: meta.Version{Major: 1}})
		must(t, err)
		c.with(func(w *cluster) { w.procs[2] = &process{up: true} })
		frozen := func() (n int) {
			c.with(func(w *cluster) {
				for _, d := range w.data {
					for _, y := range d.copies {
						if y.state == 'f' {
							n++
						}
					}
				}
			})
			return n
		}
		wait := func(what string, until func() bool) time.Duration {
			t.Helper()
			for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
				if took := time.Since(began); until() {
					return took
				} else if took > time.Minute {
					t.Fatalf("%s: not in a minute", what)
				}
			}
		}
		wait("frozen", func() bool { return frozen() > 0 })
		first := g.State().Moves() // as soon as they are given up, the next may begin
		if took := wait("served again", func() bool {
			return !slices.ContainsFunc(g.State().Moves(), func(m meta.Move) bool {
				return slices.ContainsFunc(first, func(f meta.Move) bool { return f.Ref() == m.Ref() })
			})
		}); took < FreezeLimit-2*time.Second || took > FreezeLimit+2*time.Second {
			t.Errorf("given up after %s", took)
		}
		c.with(func(w *cluster) { w.hangs = nil })
		c.awaitConvergence(t, 2)
	})
}

// TestFailuresWarnOnce: the first failures of a step are expected, and one that goes on is warned
// of once, until a try succeeds.
func TestFailuresWarnOnce(t *testing.T) {
	var said bytes.Buffer
	l := loop{
		Governor: New(Config{Logger: slog.New(slog.NewTextHandler(&said, nil))}),
		inFlight: make(map[stepKey]bool), locked: make(map[stepKey]bool), inFlightByShard: make(map[uint64]int),
	}
	l.reset()
	step, other := Step{Kind: TransferLeader, Shard: 2, Instance: 1}, Step{Kind: TransferLeader, Shard: 3, Instance: 1}
	try := func(s Step, err error) (warned bool) {
		said.Reset()
		l.finish(stepResult{step: s, err: err})
		return strings.Contains(said.String(), "level=WARN") && strings.Contains(said.String(), "governor step failed")
	}
	for round := range 2 {
		for n := 1; n <= 10; n++ {
			if try(step, errLost) != (n == warnAfter) {
				t.Errorf("round %d: failure %d in a row logs %q", round, n, said.String())
			}
			if n < warnAfter && try(other, errLost) {
				t.Errorf("failure %d of another step logs %q", n, said.String())
			}
		}
		if try(step, nil) || try(other, nil) {
			t.Errorf("a success logs %q", said.String())
		}
	}
}
