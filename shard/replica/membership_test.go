package replica

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lni/dragonboat/v4"

	"github.com/signalbox-dev/signalbox/protocol"
	inTests "github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/shard"
)

// membership reads who belongs to the shard, from the leader's host.
func (c *cluster) membership() (leader int, m Membership) {
	c.t.Helper()
	inTests.Seen(c.t, "who belongs to the shard", func() (err error, ok bool) {
		leader = c.leader()
		m, err = c.hosts[leader].Members(timeout(c.t), 1)
		if err != nil && protocol.StatusOf(err) != protocol.StatusUnavailable {
			c.t.Fatal(err)
		}
		return err, err == nil
	})
	return leader, m
}

// alter makes one change of the members through whichever replica leads, and tries again when it is
// told to look again.
func (c *cluster) alter(what string, fn func(ctx context.Context, h *Host, m Membership) error) {
	c.t.Helper()
	for end := time.Now().Add(patience); ; {
		l, m := c.membership()
		err := fn(timeout(c.t), c.hosts[l], m)
		if err == nil {
			return
		}
		st := protocol.StatusOf(err)
		if st != protocol.StatusUnavailable && st != protocol.StatusAborted || time.Now().After(end) {
			c.t.Fatalf("%s: %v", what, err)
		}
	}
}

func (c *cluster) add(i int, replica uint64) {
	c.t.Helper()
	c.alter("add", func(ctx context.Context, h *Host, m Membership) error {
		return h.AddNonVoting(ctx, 1, replica, c.disks[i].addr, m.ConfigChange)
	})
	c.ids[i], c.joinHint[i] = replica, true
}

func (c *cluster) promote(replica uint64) {
	c.t.Helper()
	c.alter("promote", func(ctx context.Context, h *Host, m Membership) error {
		return h.Promote(ctx, 1, replica, m.ConfigChange)
	})
}

func (c *cluster) remove(replica uint64) {
	c.t.Helper()
	c.alter("remove", func(ctx context.Context, h *Host, m Membership) error {
		return h.Remove(ctx, 1, replica, m.ConfigChange)
	})
}

// join adds a replica, starts it, waits until it has caught up, and promotes it.
func (c *cluster) join(i int, replica uint64) {
	c.t.Helper()
	c.add(i, replica)
	c.run(i)
	c.caughtUp(i)
	c.promote(replica)
	c.awaitRole(i, RoleVoter)
}

func (c *cluster) caughtUp(i int) {
	c.t.Helper()
	if err := caughtUp(c.hosts[i], timeout(c.t), 1); err != nil {
		c.t.Fatalf("replica %d does not catch up: %v", c.ids[i], err)
	}
}

func (c *cluster) report(i int) GroupReport {
	for _, r := range c.hosts[i].Report() {
		if r.Replica == c.ids[i] {
			return r
		}
	}
	return GroupReport{}
}

func (c *cluster) awaitRole(i int, role Role) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("replica %d to be %v", c.ids[i], role),
		func() bool { return c.report(i).Role == role })
}

// transfer makes the replica on a host the leader.
func (c *cluster) transfer(to int) {
	c.t.Helper()
	for end := time.Now().Add(patience); ; {
		l := c.leader()
		err := c.hosts[l].Transfer(timeout(c.t), 1, c.ids[to], 0)
		if err == nil {
			return
		}
		st := protocol.StatusOf(err)
		if st != protocol.StatusUnavailable && st != protocol.StatusAborted || time.Now().After(end) {
			c.t.Fatalf("transfer: %v", err)
		}
	}
}

// stopReplica does with a removed replica what a server does: it may have seen its removal, and may
// never see it.
func (c *cluster) stopReplica(i int) {
	c.t.Helper()
	if err := c.hosts[i].StopShard(1); err != nil {
		c.t.Log(err)
	}
	for range 2 {
		if err := c.hosts[i].RemoveData(timeout(c.t), 1, c.ids[i]); err != nil {
			c.t.Fatal(err)
		}
	}
	c.ids[i] = 0
}

func status(t *testing.T, what string, err error, want protocol.Status) {
	t.Helper()
	if protocol.StatusOf(err) != want {
		t.Errorf("%s: %v, want status %v", what, err, want)
	}
}

// A shard grows from one replica to three, is led by each of them, and shrinks to the one that came
// last.
func TestMembersComeAndGo(t *testing.T) {
	t.Parallel()
	c := newClusterOf(t, 3, 1, nil)
	c.populate()
	c.make("one")
	h, ctx := c.hosts[0], timeout(t)

	_, m := c.membership()
	status(t, "remove the last voter", h.Remove(ctx, 1, 1, m.ConfigChange), protocol.StatusPreconditionFailed)
	status(t, "promote a stranger", h.Promote(ctx, 1, 2, m.ConfigChange), protocol.StatusNotFound)
	status(t, "a second replica at one address", h.AddNonVoting(ctx, 1, 2, c.disks[0].addr, m.ConfigChange),
		protocol.StatusPreconditionFailed)
	status(t, "an old change", h.AddNonVoting(ctx, 1, 2, c.disks[1].addr, m.ConfigChange-1), protocol.StatusAborted)
	status(t, "a shard that is not here", h.Remove(ctx, 9, 1, 1), protocol.StatusUnavailable)

	c.add(1, 2)
	status(t, "what is so already", h.AddNonVoting(ctx, 1, 2, c.disks[1].addr, m.ConfigChange), protocol.StatusOK)
	status(t, "two changes on one membership", h.AddNonVoting(ctx, 1, 3, c.disks[2].addr, m.ConfigChange),
		protocol.StatusAborted)
	c.run(1)
	c.caughtUp(1)
	c.awaitRole(1, RoleNonVoting)
	if !exists(t, c.shards[1], "one") {
		t.Error("a replica that has caught up misses what was there")
	}
	c.promote(2)
	c.promote(2)
	c.awaitRole(1, RoleVoter)
	status(t, "add a voter", h.AddNonVoting(ctx, 1, 2, c.disks[1].addr, m.ConfigChange),
		protocol.StatusPreconditionFailed)
	c.join(2, 3)
	c.make("three")
	c.converge()
	if _, m = c.membership(); len(m.Voters) != 3 || len(m.NonVotings) != 0 || len(m.Removed) != 0 {
		t.Fatalf("members are %+v", m)
	}
	for i := range c.hosts {
		if r := c.report(i); r.Role != RoleVoter || r.ConfigChange != m.ConfigChange ||
			r.Applied == 0 || r.Term == 0 {
			t.Errorf("report of host %d: %+v", i, r)
		}
	}

	for _, to := range []int{1, 2, 0} {
		c.transfer(to)
		if l := c.make(fmt.Sprint("led by ", to)); l != to {
			t.Logf("an election made %d the leader after it was given to %d", l, to)
		}
	}

	// The leader removes itself; then its host gets another replica of the shard.
	l := c.leader()
	gone := c.ids[l]
	c.remove(gone)
	c.stopReplica(l)
	if _, err := c.hosts[l].StartShard(ShardConfig{ID: 1, Replica: gone, Join: true, Sink: newRecorder(t)}); err == nil {
		t.Error("a removed replica starts")
	}
	c.make("two")
	lead := c.leader()
	_, m = c.membership()
	status(t, "add a removed replica", c.hosts[lead].AddNonVoting(ctx, 1, gone, c.disks[l].addr, m.ConfigChange),
		protocol.StatusPreconditionFailed)
	status(t, "remove again", c.hosts[lead].Remove(ctx, 1, gone, m.ConfigChange), protocol.StatusOK)
	c.join(l, 4)
	c.make("three again")
	c.converge()

	for i := range c.hosts {
		if i == l {
			continue
		}
		c.transfer(l)
		c.remove(c.ids[i])
		c.stopReplica(i)
		c.make(fmt.Sprint("without ", i))
	}
	for _, name := range []string{"one", "three", "two", "three again", "without 1"} {
		if !exists(t, c.shards[l], name) && name != fmt.Sprint("without ", l) {
			t.Errorf("semaphore %q is gone", name)
		}
	}
	// Alone again, and started again.
	c.stop(l)
	c.start(l)
	c.make("alone")
}

// A replica is started again after everything that can happen to it while it is down.
func TestRolesOverRestarts(t *testing.T) {
	t.Parallel()
	for n, x := range []struct {
		name     string
		snapshot bool // what it misses comes as a snapshot
		before   func(c *cluster)
		down     func(c *cluster)
		want     Role
	}{
		{name: "added, never started", down: func(*cluster) {}, want: RoleNonVoting},
		{name: "added and promoted, never started", down: func(c *cluster) { c.promote(4) }, want: RoleVoter},
		{name: "non-voting", before: func(c *cluster) { c.run(3); c.caughtUp(3) },
			down: func(*cluster) {}, want: RoleNonVoting},
		{name: "promoted while down", before: func(c *cluster) { c.run(3); c.caughtUp(3) },
			down: func(c *cluster) { c.promote(4) }, want: RoleVoter},
		{
			name: "promoted while down, by snapshot", snapshot: true,
			before: func(c *cluster) { c.run(3); c.caughtUp(3) },
			down:   func(c *cluster) { c.promote(4) }, want: RoleVoter,
		},
		{
			name:   "promoted before",
			before: func(c *cluster) { c.run(3); c.caughtUp(3); c.promote(4); c.awaitRole(3, RoleVoter) },
			down:   func(*cluster) {}, want: RoleVoter,
		},
		{
			name: "promoted before, own snapshot", before: func(c *cluster) {
				c.run(3)
				c.caughtUp(3)
				c.promote(4)
				c.awaitRole(3, RoleVoter)
				c.snapshot(3)
			}, down: func(*cluster) {}, want: RoleVoter,
		},
		{
			name: "non-voting, own snapshot, promoted while down", before: func(c *cluster) {
				c.run(3)
				c.caughtUp(3)
				c.snapshot(3)
			}, down: func(c *cluster) { c.promote(4) }, want: RoleVoter,
		},
	} {
		for _, hint := range []bool{true, false} {
			if hint != (n%2 == 0) && !form.Is(form.Long) {
				continue
			}
			t.Run(fmt.Sprintf("%s/%v", x.name, hint), func(t *testing.T) {
				t.Parallel()
				c := newClusterOf(t, 4, 3, func(cfg *ShardConfig) {
					if x.snapshot {
						cfg.SnapshotEntries, cfg.CompactionOverhead = 20, 2
					}
				})
				c.populate()
				c.add(3, 4)
				if x.before != nil {
					x.before(c)
				}
				c.disks[3].PowerLoss()
				c.stop(3)
				c.disks[3].PowerBack()
				x.down(c)
				if x.snapshot {
					for i := range 100 {
						c.make(fmt.Sprint(i))
					}
				}
				c.joinHint[3] = hint || x.before == nil // without a former life it must be told
				c.start(3)
				c.caughtUp(3)
				c.awaitRole(3, x.want)
				// A founder is a founder, whatever it is told.
				c.stop(0)
				c.joinHint[0] = hint
				c.start(0)
				c.make("after")
				c.converge()
				if x.want == RoleVoter {
					c.transfer(3)
				} else if err := c.hosts[c.leader()].Transfer(timeout(t), 1, 4, 0); protocol.StatusOf(err) == protocol.StatusOK {
					t.Error("a replica that does not vote leads")
				}
				c.make("led")
				c.converge()
			})
		}
	}
}

func (c *cluster) snapshot(i int) {
	c.t.Helper()
	n := 0
	inTests.True(c.t, "a snapshot", func() bool {
		_, err := c.hosts[i].SnapshotNow(timeout(c.t), 1)
		if err == nil {
			return true
		}
		if !errors.Is(err, ErrNoSnapshot) {
			c.t.Fatal(err)
		}
		c.make(fmt.Sprint("for a snapshot ", n))
		n++
		c.caughtUp(i)
		return false
	})
}

// A replica that applies its own removal, as a leader that removes itself must, is taken off its
// host and reported.
func TestOwnRemovalIsSeen(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	c.populate()
	c.make("before")
	l, m := c.membership()
	id := c.ids[l]
	inTests.Seen(t, "the removal", func() (error, bool) {
		err := c.hosts[l].Remove(timeout(t), 1, id, m.ConfigChange)
		if err == nil {
			return nil, true
		}
		if st := protocol.StatusOf(err); st != protocol.StatusUnavailable && st != protocol.StatusAborted {
			t.Fatal(err)
		}
		var lost error
		if m, lost = c.hosts[l].Members(timeout(t), 1); lost != nil {
			t.Skip("another leader has removed the replica, which does not hear of it") // an election nobody asked for
		}
		return err, false
	})
	select {
	case got := <-c.removed:
		if got != id {
			t.Errorf("replica %d saw its removal, not %d", got, id)
		}
	case <-time.After(patience):
		t.Fatal("the replica does not see its removal")
	}
	if r := c.report(l); !r.Removed || r.Running {
		t.Errorf("report is %+v", r)
	}
	if err := c.hosts[l].StopShard(1); err == nil {
		t.Error("the replica still runs")
	}
	c.stopReplica(l)
	if r := c.report(l); r.Removed {
		t.Errorf("report after its data were removed is %+v", r)
	}
	c.make("after")
	c.converge()
}

// A voter that was down while it was removed starts, and does no harm.
func TestRemovedWhileDown(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	c.populate()
	c.make("before")
	l := c.leader()
	down := (l + 1) % 3
	c.stop(down)
	c.remove(c.ids[down])
	c.make("between")
	c.start(down)
	c.make("after")
	term := c.report(c.leader()).Term
	// It gets nothing any more, so it may never learn; but it calls for elections, which the others
	// refuse.
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	err := caughtUp(c.hosts[down], ctx, 1)
	select {
	case <-c.removed:
	default:
		if err == nil {
			t.Error("a removed replica is caught up")
		}
		if err := c.hosts[down].StopShard(1); err != nil {
			t.Error(err)
		}
	}
	if got := c.report(c.leader()).Term; got != term {
		t.Logf("term went from %d to %d", term, got)
	}
	if err := c.hosts[down].RemoveData(timeout(t), 1, c.ids[down]); err != nil {
		t.Error(err)
	}
	c.ids[down] = 0
	c.make("last")
	c.converge()
}

// Data of a member that runs are not removed.
func TestDataOfAMemberStay(t *testing.T) {
	t.Parallel()
	h := openHost(t, HostConfig{})
	s, r := startOne(t, h, nil)
	populate(t, s)
	status(t, "remove the data of a running replica", h.RemoveData(timeout(t), 1, 1),
		protocol.StatusPreconditionFailed)
	newCaller(t, s, r, 1, 60_000).mustCreate("a")
}

// A replica that does not vote serves reads of its own: it is fresh by its own read-index, and only
// while it gets answers.
func TestReplicasAreFresh(t *testing.T) {
	t.Parallel()
	c := newClusterOf(t, 4, 3, func(cfg *ShardConfig) { cfg.ReadPeriod = 20 * time.Millisecond })
	c.populate()
	c.add(3, 4)
	c.run(3)
	c.make("a")
	l := c.leader()
	for i := range c.hosts {
		eventually(t, fmt.Sprintf("replica %d to be fresh", i+1),
			func() bool { return c.shards[i].Fresh(10 * time.Second) })
		c.caughtUp(i)
		if !exists(t, c.shards[i], "a") {
			t.Errorf("replica %d has caught up without the semaphore", i+1)
		}
		c.shards[i].Exclusive(func(m *shard.Machine) {
			if m.AppliedIndex() == 0 {
				t.Errorf("replica %d has applied nothing", i+1)
			}
		})
		if r := c.report(i); r.Leading != (i == l) && c.leader() == l {
			t.Errorf("report of replica %d: %+v", i+1, r)
		}
	}
	c.net.Isolate(c.disks[3].addr, true)
	eventually(t, "a cut-off replica to be stale", func() bool { return !c.shards[3].Fresh(200 * time.Millisecond) })
	name := "b"
	c.make(name)
	if exists(t, c.shards[3], name) {
		t.Error("a cut-off replica gets the log")
	}
	c.net.Isolate(c.disks[3].addr, false)
	eventually(t, "the replica to be fresh again",
		func() bool { return c.shards[3].Fresh(100*time.Millisecond) && exists(t, c.shards[3], name) })
}

// Of the changes that build on one membership, asked for at once on different hosts, one is made.
func TestOneChangeAtATime(t *testing.T) {
	t.Parallel()
	c := newClusterOf(t, 5, 3, nil)
	c.populate()
	for round := range uint64(3) {
		_, m := c.membership()
		var errs [3]error
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() {
				errs[i] = c.hosts[i].AddNonVoting(timeout(t), 1, 10+10*round+uint64(i),
					c.disks[3].addr, m.ConfigChange)
			})
		}
		wg.Wait()
		_, after := c.membership()
		if len(after.NonVotings) != 1 {
			t.Fatalf("round %d: %v; members are %+v", round, errs, after)
		}
		for i, err := range errs {
			_, in := after.NonVotings[10+10*round+uint64(i)]
			switch st := protocol.StatusOf(err); {
			case in != (err == nil) && !errors.Is(err, ErrUnknown):
				t.Errorf("round %d: host %d got %v; members are %+v", round, i, err, after)
			case err != nil && st != protocol.StatusAborted && st != protocol.StatusPreconditionFailed &&
				st != protocol.StatusUnavailable:
				t.Errorf("round %d: host %d got %v", round, i, err)
			}
		}
		for id := range after.NonVotings {
			c.remove(id)
		}
	}
}

// A change that is proposed by a leader that is cut off at that moment has an unknown outcome;
// asked for again, it is made once.
func TestUnknownChange(t *testing.T) {
	t.Parallel()
	c := newClusterOf(t, 4, 3, nil)
	c.populate()
	l, m := c.membership()
	h := c.hosts[l]
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	look := func(*Membership) (bool, error) { return false, nil }
	err := h.change(ctx, 1, m.ConfigChange, look, func(nh *dragonboat.NodeHost, timeout time.Duration) (*dragonboat.RequestState, error) {
		c.net.Isolate(c.disks[l].addr, true)
		return nh.RequestAddNonVoting(1, 4, c.disks[3].addr, m.ConfigChange, timeout)
	})
	if protocol.StatusOf(err) != protocol.StatusUnavailable {
		t.Errorf("change by a leader that is cut off: %v", err)
	}
	if !errors.Is(err, ErrUnknown) {
		t.Logf("an election nobody asked for came first: %v", err)
	}
	c.net.Isolate(c.disks[l].addr, false)
	c.add(3, 4)
	c.run(3)
	c.caughtUp(3)
	if _, m := c.membership(); len(m.NonVotings) != 1 || m.NonVotings[4] != c.disks[3].addr {
		t.Errorf("members are %+v", m)
	}
	c.make("after")
	c.converge()
}
