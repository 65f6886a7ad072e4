package replica

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	inTests "github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica/engine"
)

// cluster is some hosts with one shard.
type cluster struct {
	t        *testing.T
	net      *MemoryNet
	members  map[uint64]string // founders
	disks    []*MemoryDisk
	hosts    []*Host  // nil while one is down
	ids      []uint64 // replica on the host, 0 for none
	shards   []*Shard
	recs     []*recorder
	joinHint []bool // what the host is told of the replica at its start: that it joined
	change   func(*ShardConfig)
	rtt      time.Duration
	removed  chan uint64 // replicas that saw their removal

	mu   sync.Mutex
	last []byte // the last batch any of them proposed

	writer      *caller // of make
	writerEpoch uint64
	writers     uint64
}

// answered waits until a request has an outcome, the replica does not lead any more, or stop is
// closed: under the recorder's lock, with a broadcast. False: stop was closed.
func (r *recorder) answered(o Origin, stop <-chan struct{}) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.results[o]) == 0 && r.leading {
		if isClosed(stop) {
			return false
		}
		r.c.Wait()
	}
	return !isClosed(stop)
}

// newCluster is three founders.
func newCluster(t *testing.T, change func(*ShardConfig)) *cluster {
	return newClusterOf(t, 3, 3, change)
}

// newClusterOf is hosts of which some have the founders of the shard; the others are without a
// replica.
func newClusterOf(t *testing.T, hosts, founders int, change func(*ShardConfig)) *cluster {
	return newClusterAt(t, 20*time.Millisecond, hosts, founders, change)
}

// newClusterAt is newClusterOf with another round trip time: of a longer one, elections on a busy
// machine are rarer.
func newClusterAt(t *testing.T, rtt time.Duration, hosts, founders int, change func(*ShardConfig)) *cluster {
	c := &cluster{
		t: t, net: NewMemoryNet(), members: make(map[uint64]string), rtt: rtt,
		change: change, removed: make(chan uint64, 16),
		hosts: make([]*Host, hosts), ids: make([]uint64, hosts), shards: make([]*Shard, hosts),
		recs: make([]*recorder, hosts), joinHint: make([]bool, hosts),
	}
	for i := range hosts {
		c.disks = append(c.disks, NewMemoryDisk())
		if i < founders {
			c.ids[i] = uint64(i + 1)
			c.members[c.ids[i]] = c.disks[i].addr
		}
	}
	for i := range hosts {
		c.start(i)
	}
	return c
}

// start opens the host and starts the replica that it has.
func (c *cluster) start(i int) {
	c.t.Helper()
	c.hosts[i] = openHost(c.t, HostConfig{
		Disk: c.disks[i], Transport: c.net, RTT: c.rtt,
		Removed: func(_, replica uint64) { c.removed <- replica },
	})
	if c.ids[i] != 0 {
		c.run(i)
	}
}

func (c *cluster) run(i int) {
	c.t.Helper()
	r := newRecorder(c.t)
	cfg := ShardConfig{ID: 1, Replica: c.ids[i], Sink: r, proposeVia: c.watch,
		ProposeTimeout: 500 * time.Millisecond, Join: c.joinHint[i]}
	if !cfg.Join {
		cfg.Members = c.members
	}
	if c.change != nil {
		c.change(&cfg)
	}
	s, err := c.hosts[i].StartShard(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	c.shards[i], c.recs[i] = s, r
}

func (c *cluster) watch(next func([]byte) (engine.Proposal, error), entry []byte) (engine.Proposal, error) {
	if !isTakeOver(entry) {
		c.mu.Lock()
		c.last = slices.Clone(entry)
		c.mu.Unlock()
	}
	return next(entry)
}

func (c *cluster) stop(i int) {
	c.t.Helper()
	closeHost(c.t, c.hosts[i])
	c.hosts[i] = nil
}

// leader waits until one of the running replicas, the given ones excepted, leads by its own
// barrier.
func (c *cluster) leader(except ...int) int {
	c.t.Helper()
	leader := -1
	defer func() {
		if leader >= 0 {
			return
		}
		for i, h := range c.hosts {
			if h != nil && c.ids[i] != 0 {
				x := c.shards[i]
				c.t.Logf("replica %d: leading %t, leader %d, term %d, applied %d",
					i+1, x.Leading(), x.LeaderReplica(), x.Term(), x.Stats().AppliedIndex)
			}
		}
	}()
	eventually(c.t, "a leader", func() bool {
		for i, h := range c.hosts {
			if h != nil && c.ids[i] != 0 && !slices.Contains(except, i) && c.shards[i].Leading() && barrier(c.shards[i]) {
				leader = i
			}
		}
		return leader >= 0
	})
	return leader
}

// converge waits until all running replicas have applied what the leader has, and compares them.
func (c *cluster) converge() {
	c.t.Helper()
	l := c.leader()
	index := c.shards[l].Stats().AppliedIndex
	for i, h := range c.hosts {
		if h != nil && c.ids[i] != 0 {
			c.recs[i].await(fmt.Sprintf("replica %d to reach entry %d", i+1, index), func() bool {
				return c.recs[i].index >= index || c.recs[i].restored > 0 && c.shards[i].Stats().AppliedIndex >= index
			})
		}
	}
	for i, h := range c.hosts {
		if h != nil && c.ids[i] != 0 && i != l {
			sameHistory(c.t, c.recs[l], c.recs[i])
		}
	}
}

// make makes a semaphore on whichever replica leads, and tries again when it is told that nothing
// was applied: an election may come at any time on a busy machine. It returns the leader.
func (c *cluster) make(name string) (leader int) {
	c.t.Helper()
	return c.makeExcept(name)
}

func (c *cluster) makeExcept(name string, except ...int) (leader int) {
	c.t.Helper()
	inTests.True(c.t, "a leader that makes "+name, func() bool {
		l := c.leader(except...)
		s := c.shards[l]
		if epoch := s.Stats().Epoch >> 16; c.writer == nil || c.writer.s != s || c.writerEpoch != epoch {
			c.writers++
			c.writer, c.writerEpoch = tryCaller(c.t, s, c.recs[l], 1<<20+c.writers, 1_800_000, testBuckets), epoch
			if c.writer == nil {
				return false
			}
		}
		x := c.writer
		if res, ok := x.try(shard.CmdCreate, x.createBody(name)); ok {
			if res.status != protocol.StatusOK {
				c.t.Fatalf("semaphore %s is not created: %+v", name, res)
			}
			x.low, leader = x.seq+1, l
			return true
		}
		c.writer = nil
		return false
	})
	return leader
}

// askAlone cuts the leader off and then makes a semaphore there, on c.writer, without waiting.
func (c *cluster) askAlone(cut func(leader int, on bool), name string) (leader int, asked Origin) {
	c.t.Helper()
	try := 0
	inTests.True(c.t, "a leader that takes "+name+" when it is cut off", func() (ok bool) {
		leader = c.make(fmt.Sprint("to find who leads for ", name, " ", try))
		try++
		cut(leader, true)
		if asked, ok = c.writer.trySubmit(shard.CmdCreate, c.writer.createBody(name)); !ok {
			cut(leader, false) // an election came before
			c.writer = nil
		}
		return ok
	})
	return leader, asked
}

// populate gives the shard its buckets and a node, wherever its leader is.
func (c *cluster) populate() {
	c.t.Helper()
	for _, x := range setupCommands(0, testBuckets) {
		inTests.Seen(c.t, "a leader that writes", func() (error, bool) {
			err := c.shards[c.leader()].ProposeInternal(timeout(c.t), x)
			if err != nil && protocol.StatusOf(err) != protocol.StatusUnavailable {
				c.t.Fatal(err)
			}
			return err, err == nil
		})
	}
}

func TestThreeReplicas(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	c.populate()
	made := 0
	var former []byte
	var epoch uint64
	for round := range 4 {
		l := c.leader()
		s := c.shards[l]
		if got := s.Stats().Epoch; got <= epoch {
			t.Fatalf("round %d: epoch %x after %x", round, got, epoch)
		} else {
			epoch = got
		}
		if former != nil {
			// The former leader's last batch comes once more, as a forwarded proposal may.
			before := s.Stats()
			proposeRaw(t, s, former)
			after := s.Stats()
			alone := after.AppliedIndex == before.AppliedIndex+1 // a tick that came between moves log time
			if after.Refused != before.Refused+1 || alone && after.LogTime != before.LogTime {
				t.Errorf("a former leader's batch was not refused whole: %+v, then %+v", before, after)
			}
		}
		for range 10 {
			l = c.make(fmt.Sprint(made))
			made++
		}
		if got := c.shards[l].Stats().Epoch; got != epoch {
			epoch = got - 1<<16
			former = nil
			continue // an election nobody asked for; the next round has a leader of its own
		}
		c.mu.Lock()
		former = slices.Clone(c.last)
		c.mu.Unlock()
		for i := range c.hosts {
			if i != l && c.shards[i].Leading() {
				t.Errorf("round %d: replica %d leads too", round, i+1)
			}
		}
		c.converge()

		if round == 2 {
			c.disks[l].PowerLoss()
			c.stop(l)
			c.disks[l].PowerBack()
		} else {
			c.stop(l)
		}
		n := c.leader()
		for i := range made {
			if !exists(t, c.shards[n], fmt.Sprint(i)) {
				t.Fatalf("round %d: acknowledged semaphore %d is gone", round, i)
			}
		}
		c.start(l)
		c.converge()
	}
	for i := range c.shards { // an election may be under way
		eventually(t, fmt.Sprintf("replica %d to know a leader", i+1), func() bool { return c.shards[i].Stats().Leader != 0 })
	}
}

func TestIsolatedLeader(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	c.populate()
	c.make("before")
	old, lost := c.askAlone(func(leader int, on bool) { c.net.Isolate(c.disks[leader].addr, on) }, "lost")
	s, r := c.shards[old], c.recs[old]
	if barrier(s) {
		t.Error("a leader that reaches nobody makes a barrier")
	}
	c.leader(old)
	c.makeExcept("after", old)
	if s.Fresh(time.Millisecond) {
		t.Error("a leader that reaches nobody is fresh")
	}
	r.await("the cut-off leader to step down", func() bool { return !r.leading })
	if st := s.Submit(shard.Command{Kind: shard.CmdCreate}, Origin{Conn: 1, Request: 1 << 40}); st != protocol.StatusUnavailable {
		t.Errorf("a leader that reaches nobody says %v", st)
	}
	c.net.Isolate(c.disks[old].addr, false)

	if res := r.result(lost); !res.failed || res.status != protocol.StatusUnavailable {
		t.Errorf("request of the cut-off leader got %+v", res)
	}
	inTests.True(t, "a barrier into which no election comes", func() bool {
		l, term := c.leader(), s.Term()
		proved := barrier(s)
		if l != old && (c.leader() != l || c.shards[l].Term() != term) {
			return false // an election comes between, or the replica has not heard of its outcome
		}
		if proved && l != old {
			t.Error("read-index alone counted as a barrier")
		}
		return true
	})
	c.converge()
	for i, s := range c.shards {
		if exists(t, s, "lost") || !exists(t, s, "before") || !exists(t, s, "after") {
			t.Errorf("replica %d has the wrong semaphores", i+1)
		}
	}
}

func TestLaggingReplicaIsRestored(t *testing.T) {
	t.Parallel()
	c := newCluster(t, func(cfg *ShardConfig) { cfg.SnapshotEntries, cfg.CompactionOverhead = 20, 2 })
	c.populate()
	behind := (c.leader() + 1) % 3
	c.stop(behind)
	for i := range 100 {
		c.make(fmt.Sprint(i))
	}
	c.start(behind)
	r := c.recs[behind]
	r.await("the lagging replica to be restored", func() bool { return r.restored > 0 })
	c.make("tail")
	c.converge()
	if !exists(t, c.shards[behind], "0") || !exists(t, c.shards[behind], "99") {
		t.Error("a restored replica misses semaphores")
	}
	if c.shards[behind].Digest() == 0 {
		t.Error("no digest")
	}
}

// A read-index that was asked of a leader that is gone is never answered. The next leader does not
// wait for it.
func TestNewLeaderProvesItselfAtOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t, func(cfg *ShardConfig) { cfg.ProposeTimeout, cfg.ReadPeriod = 10*patience, time.Millisecond })
	c.populate()
	old := c.make("before")
	c.net.Isolate(c.disks[old].addr, true)
	eventually(t, "another to lead",
		func() bool { return c.shards[(old+1)%3].Leading() || c.shards[(old+2)%3].Leading() })
	for i, s := range c.shards {
		if i == old || !s.Leading() {
			continue
		}
		done := make(chan bool, 1)
		s.Barrier(func(ok bool) { done <- ok })
		select {
		case <-done: // false if it leads no more
		case <-time.After(patience):
			t.Error("a barrier of the new leader waits for the old one")
		}
	}
}

// A leader that is restored from a snapshot cannot tell what became of its batches in flight: the
// snapshot may hold them. It cuts their connections.
func TestRestoreCutsUndetermined(t *testing.T) {
	t.Parallel()
	c := newCluster(t, func(cfg *ShardConfig) { cfg.SnapshotEntries, cfg.CompactionOverhead = 20, 2 })
	c.populate()
	cut := func(leader int, on bool) { // what it proposes arrives, and it never learns
		for i := range c.disks {
			c.net.Cut(c.disks[i].addr, c.disks[leader].addr, on)
		}
	}
	for try := range 20 {
		name := fmt.Sprint("undecided ", try)
		old, undecided := c.askAlone(cut, name)
		r, conn := c.recs[old], c.writer.conn
		r.mu.Lock()
		before := r.restored
		r.mu.Unlock()
		c.leader(old)
		for i := range 100 {
			c.makeExcept(fmt.Sprint(try, " ", i), old)
		}
		cut(old, false)
		r.await("the former leader to be restored", func() bool { return r.restored > before })
		r.await("the connection to be cut, or an answer",
			func() bool { return r.cuts[conn] != "" || len(r.results[undecided]) > 0 })
		c.make(fmt.Sprint("after ", try))
		c.converge()
		r.mu.Lock()
		res := r.results[undecided]
		r.mu.Unlock()
		switch there := exists(t, c.shards[old], name); {
		case len(res) == 0:
			return
		case there || !res[0].failed:
			t.Fatalf("a request that the snapshot may hold got %+v; its semaphore exists: %v", res, there)
		}
		// It ceased to lead before it proposed what it was asked.
	}
	t.Fatal("nothing was proposed by a leader that learns nothing")
}

// TestHistoryUnderFaults makes requests all the time while leaders are cut off, stopped and robbed
// of their power, and compares the answers with what is there. Each writer has a few requests
// under way at most, so that a slow machine is not left with a log that it cannot apply in time.
func TestHistoryUnderFaults(t *testing.T) {
	t.Parallel()
	c := newCluster(t, func(cfg *ShardConfig) {
		cfg.SnapshotEntries, cfg.CompactionOverhead, cfg.ProposeTimeout = 200, 50, 100*time.Millisecond
		cfg.Sink.(*recorder).every = 4
	})
	c.populate()
	var ok, failed, open []string
	name := 0
	for round := range 6 {
		l := c.leader()
		s, r := c.shards[l], c.recs[l]
		type sent struct {
			o    Origin
			name string
		}
		var list []sent
		var wg sync.WaitGroup
		var mu sync.Mutex
		stop := make(chan struct{})
		for w := range 4 {
			x := tryCaller(t, s, r, uint64(1000*(round+1)+w), 1_800_000, testBuckets)
			if x == nil {
				continue // an election nobody asked for
			}
			base := name + w*10_000
			wg.Add(1)
			go func() {
				defer wg.Done()
				for i := range 1000 {
					select {
					case <-stop:
						return
					default:
					}
					x.request++
					n := fmt.Sprint(base + i)
					o := Origin{Conn: x.conn, Request: x.request}
					if s.Submit(shard.Command{Kind: shard.CmdCreate, Node: testNode, Epoch: 1, Body: x.createBody(n)},
						o) == protocol.StatusOK {
						mu.Lock()
						list = append(list, sent{o, n})
						mu.Unlock()
					}
					if i%20 == 19 && !r.answered(o, stop) {
						return
					}
				}
			}()
		}
		name += 40_000
		r.await("some answers", func() bool { return r.order > 50 || !r.leading })
		down := false
		switch round % 3 {
		case 0:
			c.net.Isolate(c.disks[l].addr, true)
			c.leader(l)
			c.net.Isolate(c.disks[l].addr, false)
		case 1:
			c.stop(l)
			down = true
		case 2:
			c.disks[l].PowerLoss()
			c.stop(l)
			c.disks[l].PowerBack()
			down = true
		}
		r.mu.Lock()
		close(stop)
		r.mu.Unlock()
		r.c.Broadcast()
		wg.Wait()
		c.leader()
		if !down {
			// Everything is decided in the end, since the former leader's log goes on.
			r.await("every request to be decided", func() bool {
				for _, x := range list {
					if len(r.results[x.o]) == 0 {
						return false
					}
				}
				return true
			})
		}
		r.mu.Lock()
		for _, x := range list {
			switch res := r.results[x.o]; {
			case len(res) == 0:
				open = append(open, x.name)
				if r.cuts[x.o.Conn] == "" {
					t.Errorf("request %s was never answered, and its connection not cut", x.name)
				}
			case len(res) > 1:
				t.Errorf("request %s got %+v", x.name, res)
			case res[0].failed:
				failed = append(failed, x.name)
			case res[0].status == protocol.StatusOK:
				ok = append(ok, x.name)
			default:
				failed = append(failed, x.name)
			}
		}
		r.mu.Unlock()
		if down {
			c.start(l)
		}
	}
	for i := range 8 {
		c.make(fmt.Sprint("last ", i)) // entries that all replicas apply, none in a snapshot
	}
	c.converge()
	for i, s := range c.shards {
		for _, n := range ok {
			if !exists(t, s, n) {
				t.Fatalf("replica %d: acknowledged semaphore %s is gone", i+1, n)
			}
		}
		for _, n := range failed {
			if exists(t, s, n) {
				t.Fatalf("replica %d: semaphore %s exists although the answer says that it was not applied",
					i+1, n)
			}
		}
	}
	t.Logf("%d acknowledged, %d failed, %d left open", len(ok), len(failed), len(open))
	if len(ok) == 0 || len(failed) == 0 {
		t.Error("nothing happened")
	}
}
