package replica

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	inTests "github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/shard"
)

// writers make requests all the time, each on the replica that leads as far as it knows, and
// remember what they asked for.
type writers struct {
	c    *cluster
	stop chan struct{}
	wg   sync.WaitGroup

	mu   sync.Mutex
	sent []sentRequest
}

type sentRequest struct {
	r    *recorder
	o    Origin
	name string
}

func (c *cluster) startWriters(n int) *writers {
	w := &writers{c: c, stop: make(chan struct{})}
	shards, recs := append([]*Shard(nil), c.shards...), append([]*recorder(nil), c.recs...)
	for k := range n {
		w.wg.Go(func() {
			var x *caller
			for i := 0; !isClosed(w.stop); i++ {
				if x == nil {
					eventually(c.t, "a leader, or the end", func() bool {
						at := slices.IndexFunc(shards, func(s *Shard) bool { return s != nil && s.Leading() })
						if at >= 0 {
							i++ // each try has a connection of its own
							x = tryCaller(c.t, shards[at], recs[at], uint64(100+k)<<40+uint64(i), 1_800_000, testBuckets)
						}
						return x != nil || isClosed(w.stop)
					})
					continue
				}
				name := fmt.Sprintf("w%d-%d", k, i)
				x.request++
				o := Origin{Conn: x.conn, Request: x.request}
				if x.s.Submit(shard.Command{Kind: shard.CmdCreate, Node: testNode,
					Epoch: 1, Body: x.createBody(name)}, o) != protocol.StatusOK {
					x = nil
					continue
				}
				w.mu.Lock()
				w.sent = append(w.sent, sentRequest{x.r, o, name})
				w.mu.Unlock()
				if i%20 == 0 {
					x.r.result(o) // the load of a few clients, not of a loop
					x.low = x.seq + 1
				}
			}
		})
	}
	return w
}

// check ends the writers and compares the answers with what is there, on all replicas.
func (w *writers) check() (ok, failed int) {
	w.c.t.Helper()
	return w.checkWithout(true)
}

// checkWithout leaves out the comparison of the replicas' digests after each entry, if asked to.
func (w *writers) checkWithout(history bool) (ok, failed int) {
	c := w.c
	c.t.Helper()
	close(w.stop)
	w.wg.Wait()
	c.make("the end")
	for _, x := range w.sent {
		x.r.result(x.o)
	}
	if history {
		c.converge()
	} else {
		for i, h := range c.hosts {
			if h != nil && c.ids[i] != 0 {
				c.caughtUp(i)
			}
		}
	}
	for _, x := range w.sent {
		res := x.r.result(x.o)
		good := !res.failed && res.status == protocol.StatusOK
		if good {
			ok++
		} else {
			failed++
		}
		for i, h := range c.hosts {
			if h != nil && c.ids[i] != 0 && exists(c.t, c.shards[i], x.name) != good {
				c.t.Fatalf("replica %d: request %s got %+v, and its semaphore exists: %v",
					c.ids[i], x.name, res, !good)
			}
		}
	}
	return ok, failed
}

func TestTransferUnderLoad(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	c.populate()
	w := c.startWriters(4)
	var times []time.Duration
	for i := range 12 {
		l := c.leader()
		to := (l + 1 + i%2) % 3
		start := time.Now()
		err := c.hosts[l].Transfer(timeout(t), 1, c.ids[to], 0)
		if err != nil {
			// An election that nothing here caused comes in between on a busy machine; nothing else
			// is excused.
			if st := protocol.StatusOf(err); st != protocol.StatusUnavailable && st != protocol.StatusAborted {
				t.Fatal(err)
			}
			t.Log(err)
			continue
		}
		times = append(times, time.Since(start).Round(time.Millisecond))
		if st := c.shards[l].Stats(); st.Leader != c.ids[to] {
			t.Logf("leader is %d after a transfer to %d", st.Leader, c.ids[to])
		}
		r := c.recs[to]
		r.await("some answers of the new leader",
			func() bool { return r.leading && len(r.results) > 20 || !r.leading })
	}
	if len(times) == 0 {
		t.Error("no transfer came about")
	}
	ok, failed := w.check()
	t.Logf("transfers took %v; %d acknowledged, %d failed", times, ok, failed)
}

// A target that cannot answer gets nothing: requests wait, and go on under the same leader.
func TestTransferToUnresponsiveTarget(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	c.populate()
	// sameLeader repeats what is done at a leader, until no election comes between.
	made := 0
	sameLeader := func(do func(try, leader int) (check func())) {
		for range 20 {
			made++
			l := c.make(fmt.Sprint("before ", made))
			epoch := c.writerEpoch
			check := do(made, l)
			if now := c.leader(); now == l && c.shards[l].Stats().Epoch>>16 == epoch {
				check()
				return
			}
		}
		t.Fatal("no leader stays")
	}
	sameLeader(func(try, l int) func() {
		to := (l + 1) % 3
		c.net.Isolate(c.disks[to].addr, true)
		done := make(chan error, 1)
		go func() { done <- c.hosts[l].Transfer(context.Background(), 1, c.ids[to], 0) }()
		var pending []Origin
		refused := 0
		for i := range 10 {
			o, ok := c.writer.trySubmit(shard.CmdCreate, c.writer.createBody(fmt.Sprintf("during %d %d", try, i)))
			if !ok {
				refused++
				continue
			}
			pending = append(pending, o)
		}
		err := <-done
		failed := 0
		for _, o := range pending {
			if c.recs[l].result(o).failed {
				failed++
			}
		}
		c.writer = nil
		still := c.leader(to)
		c.net.Isolate(c.disks[to].addr, false)
		return func() {
			status(t, "transfer to a target that is cut off", err, protocol.StatusAborted)
			if still != l || refused > 0 {
				t.Errorf("%d requests were refused, and replica %d leads instead of %d", refused, still+1, l+1)
			}
			t.Logf("%d of %d requests failed", failed, len(pending))
		}
	})
	c.make("after")
	c.converge()

	sameLeader(func(_, l int) func() {
		stranger := c.hosts[l].Transfer(timeout(t), 1, 9, 0)
		f := (l + 1) % 3
		follower := c.hosts[f].Transfer(timeout(t), 1, c.ids[(f+1)%3], 0)
		return func() {
			status(t, "transfer to a stranger", stranger, protocol.StatusPreconditionFailed)
			if follower == nil {
				t.Error("a follower reports a transfer")
			}
		}
	})
}

// A leader whose messages arrive nowhere, or that gets none, is replaced, and what it was asked
// meanwhile gets the right answer.
func TestOneWayIsolation(t *testing.T) {
	t.Parallel()
	for _, out := range []bool{true, false} {
		t.Run(fmt.Sprintf("out=%v", out), func(t *testing.T) {
			c := newCluster(t, func(cfg *ShardConfig) { cfg.ProposeTimeout = 200 * time.Millisecond })
			c.populate()
			c.make("before")
			w := c.startWriters(2)
			var old int
			for leads := false; !leads; leads = c.shards[old].Leading() {
				old = c.leader()
				r := c.recs[old]
				r.await("answers", func() bool { return r.order > 20 || !r.leading })
			}
			cut := func(on bool) {
				for i := range c.disks {
					if i == old {
						continue
					}
					if out {
						c.net.Cut(c.disks[old].addr, c.disks[i].addr, on)
					} else {
						c.net.Cut(c.disks[i].addr, c.disks[old].addr, on)
					}
				}
			}
			cut(true)
			c.leader(old)
			c.makeExcept("between", old)
			eventually(t, "the old leader to notice", func() bool { return !c.shards[old].Leading() })
			cut(false)
			ok, failed := w.check()
			t.Logf("%d acknowledged, %d failed", ok, failed)
			for i, s := range c.shards {
				if !exists(t, s, "before") || !exists(t, s, "between") {
					t.Errorf("replica %d misses semaphores", i+1)
				}
			}
		})
	}
}

// Without a majority nothing is acknowledged, nor changed; when it returns, everything goes on.
func TestQuorumLossAndReturn(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	c.populate()
	c.make("before")
	_, m := c.membership()
	isolateOthers := func(leader int, on bool) {
		for i := range c.disks {
			if i != leader {
				c.net.Isolate(c.disks[i].addr, on)
			}
		}
	}
	l, o := c.askAlone(isolateOthers, "alone") // faster than others stop
	s, r := c.shards[l], c.recs[l]
	for i := range c.hosts {
		if i != l {
			c.stop(i)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if err := c.hosts[l].Remove(ctx, 1, c.ids[(l+1)%3], m.ConfigChange); protocol.StatusOf(err) != protocol.StatusUnavailable {
		t.Errorf("a change of members without a majority: %v", err)
	}
	r.await("the leader to step down", func() bool { return !r.leading })
	if barrier(s) || s.Fresh(time.Millisecond) {
		t.Error("a replica without a majority proves something")
	}
	isolateOthers(l, false)
	for i := range c.hosts {
		if i != l {
			c.start(i)
		}
	}
	c.make("after")
	res := r.result(o)
	c.converge()
	for i, s := range c.shards {
		if !exists(t, s, "before") || !exists(t, s, "after") || exists(t, s, "alone") == res.failed {
			t.Errorf("replica %d has the wrong semaphores; the request without a majority got %+v", i+1, res)
		}
	}
	if _, m := c.membership(); len(m.Voters) != 3 {
		t.Logf("members are %+v", m)
	}
}

// TestTransferToItself: a leader that is to be made the leader says that it is, but only when that
// was no earlier leadership than the one that is to end. A replica that was cut off believes for a
// while that it leads, and would end the leadership of its successor by saying so.
func TestTransferToItself(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	inTests.True(t, "a leader that stays one", func() bool {
		l := c.leader()
		_, term := c.hosts[l].groups.leaderOf(1, c.ids[l])
		var errs [4]error
		for i, after := range [4]uint64{0, term - 1, term, term + 1} {
			errs[i] = c.hosts[l].Transfer(timeout(t), 1, c.ids[l], after)
		}
		if leader, now := c.hosts[l].groups.leaderOf(1, c.ids[l]); leader != c.ids[l] ||
			now != term || !c.shards[l].Leading() {
			return false // an election that nothing here caused
		}
		status(t, "to itself, whichever replica led", errs[0], protocol.StatusOK)
		status(t, "to itself, from a leadership before", errs[1], protocol.StatusOK)
		status(t, "to itself, from its own leadership", errs[2], protocol.StatusUnavailable)
		status(t, "to itself, from one that it has not heard of", errs[3], protocol.StatusUnavailable)
		return true
	})
}

// TestTransferKeepsLogTime: a planned change of leader leaves a session that is heard of its
// timeout, an unplanned one adds the grace period, and neither moves the deadline of a session that
// nobody has attached since.
func TestTransferKeepsLogTime(t *testing.T) {
	t.Parallel()
	const timeoutMS = 60_000
	c := newCluster(t,
		func(cfg *ShardConfig) { cfg.Heard = func(uint64) time.Duration { return SystemClock().Now() } })
	c.populate()
	conn := uint64(500)
	// attached starts a session at the leader, and says in which term, and a log time before that
	// term's end.
	attached := func() (l int, session, term, before uint64) {
		inTests.True(t, "a session that is attached at the leader", func() (is bool) {
			l = c.leader()
			conn++
			if x := tryCaller(t, c.shards[l], c.recs[l], conn, timeoutMS, testBuckets); x != nil {
				session = x.session
				c.shards[l].View(func(m *shard.Machine) {
					v, _ := m.Sessions().Home(session)
					is, term, before = v.Attached, m.Epoch()>>16, m.LogTime()
				})
			}
			return is
		})
		return l, session, term, before
	}
	// left is the session's deadline at the leader, 0 if there were other changes than the one
	// after that term; now is the log time.
	left := func(session, term uint64) (deadline, now uint64) {
		c.shards[c.leader()].View(func(m *shard.Machine) {
			if v, ok := m.Sessions().Home(session); ok && !v.Attached && m.Epoch()>>16 == term+1 {
				deadline, now = v.Deadline, m.LogTime()
			}
		})
		return deadline, now
	}

	var planned, was uint64
	inTests.True(t, "a planned change that comes alone", func() bool {
		l, session, term, before := attached()
		if err := c.hosts[l].Transfer(timeout(t), 1, c.ids[(l+1)%3], 0); err != nil {
			t.Log(err)
			return false
		}
		deadline, now := left(session, term)
		if deadline != 0 && (deadline < before+timeoutMS || deadline > now+timeoutMS) {
			t.Fatalf("after a planned change the session has %d ms more than its timeout of %d",
				int64(deadline-now-timeoutMS), timeoutMS)
		}
		planned, was = session, deadline
		return was != 0
	})
	inTests.True(t, "an unplanned change that comes alone", func() bool {
		l, session, term, before := attached()
		c.stop(l)
		deadline, _ := left(session, term)
		if grace := uint64(protocol.DefaultGracePeriod); deadline != 0 && deadline < before+timeoutMS+grace {
			t.Fatalf("after an unplanned change the session has until %d, want its timeout and the grace period after %d", deadline, before)
		}
		c.start(l)
		return deadline != 0
	})
	c.shards[c.leader()].View(func(m *shard.Machine) {
		if v, _ := m.Sessions().Home(planned); v.Deadline != was {
			t.Errorf("a session that nobody attached had until %d, and has until %d after further changes",
				was, v.Deadline)
		}
	})
}
