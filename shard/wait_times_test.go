package shard

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// timesOf is what the machine measured in a node.
func timesOf(m *Machine, node uint64) (t Times) {
	m.Metrics().Times(func(id uint64, x *Times) bool {
		if id == node {
			t = *x
		}
		return true
	})
	return t
}

// at moves log time and wall clock, and begins a batch.
func (x *benchMachine) at(now uint64) {
	x.now = now
	x.begin()
}

// queuedIn is a machine with a lock of one unit: session 0 has held it since 1000, and sessions 1
// and 2 have waited since then.
func queuedIn(t *testing.T, slow uint64) (*benchMachine, []byte) {
	t.Helper()
	x, name := newBenchMachine(4), []byte("lock")
	c := scriptConfig()
	c.Fields, c.SlowWait = protocol.AllFields, slow
	x.at(1000)
	x.entry = AppendCommand(x.entry,
		Command{Kind: CmdNodePut, Body: AppendNodePut(nil, NodePutBody{Node: 1, Revision: 2, Config: c})})
	x.create(0, name, 1)
	for s := range 3 {
		x.acquire(s, name, false)
	}
	x.commit()
	if err := x.m.Check(); err != nil {
		t.Fatal(err)
	}
	return x, name
}

// TestTimes: waits and holds are measured in log time, and an acquire that is granted at once waits
// for 0.
func TestTimes(t *testing.T) {
	x, name := queuedIn(t, 0)
	x.at(1007)
	x.release(0, name)
	x.commit()
	x.at(2007)
	x.release(1, name)
	x.commit()
	x.at(2007)
	x.acquire(3, name, false)
	x.commit()
	x.at(2010) // a waiter that leaves
	x.release(3, name)
	x.commit()
	got := timesOf(x.m, 1)
	var want Times
	for _, ms := range []uint64{0, 7, 1007, 3} {
		want.Waits.add(ms)
	}
	for _, ms := range []uint64{7, 1000} {
		want.Holds.add(ms)
	}
	want.Ended = [waitOutcomes]uint64{WaitGranted: 2, WaitAborted: 1}
	if got != want {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if len(x.out.SlowWaits) != 0 {
		t.Error("a slow wait is reported in a node without slow-wait")
	}
}

// TestTimesOfEnds: how waits end and leases are lost.
func TestTimesOfEnds(t *testing.T) {
	x, name := queuedIn(t, 0)
	x.at(1500)
	m := protocol.Acquire{Head: x.head(3), Name: name, Count: 1, Timeout: 100}
	x.body = m.AppendBody(x.body[:0])
	x.command(CmdAcquire)
	x.commit()
	x.at(1601) // its time is over
	x.commit()
	x.at(1700)
	kill := protocol.SessionKill{Session: x.sessions[0], Node: 1, Reason: "test"}
	x.entry = AppendCommand(x.entry, Command{Kind: CmdSessionKill, Node: 1, Body: protocol.AppendBody(nil, &kill)})
	x.commit()
	x.at(1800)
	force := protocol.ForceRelease{Node: 1, Name: name, First: 1, Last: 1 << 40, Reason: "test"}
	x.entry = AppendCommand(x.entry, Command{Kind: CmdForceRelease, Node: 1, Body: protocol.AppendBody(nil, &force)})
	x.commit()
	x.at(1900)
	drop := protocol.Delete{Head: x.head(1), Name: name, Force: true}
	x.body = protocol.AppendBody(nil, &drop)
	x.command(CmdDelete)
	x.commit()
	got := timesOf(x.m, 1)
	if want := [waitOutcomes]uint64{WaitGranted: 2, WaitTimedOut: 1}; got.Ended != want {
		t.Errorf("waits ended as %v, want %v", got.Ended, want)
	}
	if want := [lossCauses]uint64{LostKilled: 1, LostForceReleased: 1, LostDeleted: 1}; x.m.lost != want {
		t.Errorf("leases were lost as %v, want %v", x.m.lost, want)
	}
}

// TestLeasesOfDroppedNode: the lease of a node that is dropped is lost, and counted when nothing of
// the node is left.
func TestLeasesOfDroppedNode(t *testing.T) {
	x, _ := queuedIn(t, 0)
	x.entry = AppendCommand(x.entry, Command{Kind: CmdNodeDrop, Body: AppendNodeDrop(nil, NodeDropBody{Node: 1})})
	x.commit()
	if n := x.m.Metrics().Sizes().Nodes; n != 0 {
		t.Fatalf("%d nodes are left", n)
	}
	if got, want := x.m.Metrics().LeasesLost(), [lossCauses]uint64{LostNodeDropped: 1}; got != want {
		t.Errorf("leases were lost as %v, want %v", got, want)
	}
}

// TestTimesOfExpiry: the leases of a session that expired are lost, and those of one that stopped
// are not.
func TestTimesOfExpiry(t *testing.T) {
	x, name := queuedIn(t, 0)
	x.at(1100)
	x.entry = AppendCommand(x.entry,
		Command{Kind: CmdDetach, Body: AppendDetach(nil, DetachBody{Sessions: []DetachItem{{Session: x.sessions[0], Epoch: 1, LastContact: 1100}}})})
	x.commit()
	x.at(20_000)
	x.commit()
	x.at(20_100)
	stop := protocol.SessionStop{Session: x.sessions[1], Epoch: 1}
	x.body = protocol.AppendBody(nil, &stop)
	x.command(CmdSessionStop)
	x.commit()
	got := timesOf(x.m, 1)
	if want := [lossCauses]uint64{LostExpired: 1}; x.m.lost != want ||
		got.Holds.Counts == [len(timeBounds) + 1]uint64{} {
		t.Errorf("leases of %s were lost as %v, want %v", name, x.m.lost, want)
	}
}

// TestTimesAfterRestore: what was there before a restore has its times by the wall clock.
func TestTimesAfterRestore(t *testing.T) {
	x, name := queuedIn(t, 500)
	m, err := Restore(bytes.NewReader(snapshotOf(t, x.m)))
	if err != nil {
		t.Fatal(err)
	}
	x.m = m
	if got := timesOf(x.m, 1); got != (Times{}) {
		t.Errorf("times are part of a snapshot: %+v", got)
	}
	x.at(3000)
	x.release(0, name)
	x.commit()
	got := timesOf(x.m, 1)
	if got.Waits.Sum != 2000 || got.Holds.Sum != 2000 || len(x.out.SlowWaits) != 1 ||
		x.out.SlowWaits[0].Waited != 2000 {
		t.Errorf("%+v, %+v", got, x.out.SlowWaits)
	}
}

// TestSlowWait: a wait that was longer than slow-wait says who held meanwhile.
func TestSlowWait(t *testing.T) {
	x, name := queuedIn(t, 500)
	x.at(1400)
	x.release(0, name)
	x.commit()
	if len(x.out.SlowWaits) != 0 {
		t.Errorf("a wait of 400 ms is slow: %+v", x.out.SlowWaits)
	}
	x.at(2400)
	x.release(1, name)
	x.commit()
	if len(x.out.SlowWaits) != 1 {
		t.Fatalf("%d slow waits, want 1", len(x.out.SlowWaits))
	}
	w := x.out.SlowWaits[0]
	text := fmt.Sprintf("%s waited %d ms, outcome %d, for", w.Name, w.Waited, w.Outcome)
	for _, o := range w.Owners {
		text += fmt.Sprintf(" #%d %s %d", o.OrderID, o.Description, o.Held)
	}
	if text != "lock waited 1400 ms, outcome 0, for #1 worker 400 #2 worker 1000" ||
		w.Session != x.sessions[2] || w.OrderID != 3 || w.MoreOwners != 0 {
		t.Errorf("%s; %+v", text, w)
	}
	if len(x.m.formerOwners) != 0 {
		t.Error("former owners of an empty queue are kept")
	}
}

// TestSlowWaitOfLane: a wait where there are lanes names its level and key.
func TestSlowWaitOfLane(t *testing.T) {
	x, name := newBenchMachine(3), []byte("pool")
	c := scriptConfig()
	c.Fields, c.SlowWait = protocol.AllFields, 10
	x.at(1000)
	x.entry = AppendCommand(x.entry,
		Command{Kind: CmdNodePut, Body: AppendNodePut(nil, NodePutBody{Node: 1, Revision: 2, Config: c})})
	create := protocol.Create{Head: x.head(0), Name: name, Limit: 1,
		Options: &protocol.SemaphoreOptions{Policy: protocol.PolicyFair}}
	x.body = protocol.AppendBody(x.body[:0], &create)
	x.command(CmdCreate)
	x.acquire(0, name, false)
	x.acquire(1, name, false)
	a := protocol.Acquire{Head: x.head(2), Name: name, Count: 1, Timeout: protocol.Forever,
		Options: &protocol.AcquireOptions{Priority: 10, Key: []byte("team-a")}}
	x.body = a.AppendBody(x.body[:0])
	x.command(CmdAcquire)
	x.commit()
	x.at(2000)
	x.release(0, name)
	x.release(1, name)
	x.release(2, name)
	x.commit()
	text := ""
	for _, w := range x.out.SlowWaits {
		text += fmt.Sprintf("level+1 %d key %q; ", w.Priority, w.Key)
	}
	if text != `level+1 10 key "team-a"; level+1 6 key ""; ` {
		t.Errorf("%s", text)
	}
}

// TestSlowWaitIsBounded: a queue of many that times out at once, behind many owners, is reported in
// part.
func TestSlowWaitIsBounded(t *testing.T) {
	const sessions = 200
	x, name := newBenchMachine(sessions), []byte("pool")
	c := scriptConfig()
	c.Fields, c.SlowWait = protocol.AllFields, 10
	x.at(1000)
	x.entry = AppendCommand(x.entry,
		Command{Kind: CmdNodePut, Body: AppendNodePut(nil, NodePutBody{Node: 1, Revision: 2, Config: c})})
	x.create(0, name, 50)
	for s := range sessions {
		x.acquire(s, name, false)
	}
	x.commit()
	x.at(2000)
	drop := protocol.Delete{Head: x.head(0), Name: name, Force: true}
	x.body = protocol.AppendBody(nil, &drop)
	x.command(CmdDelete)
	x.commit()
	if len(x.out.SlowWaits) != maxSlowWaits || x.out.MoreSlowWaits != sessions-50-maxSlowWaits {
		t.Errorf("%d slow waits and %d more", len(x.out.SlowWaits), x.out.MoreSlowWaits)
	}
	for _, w := range x.out.SlowWaits {
		if len(w.Owners) != maxSlowOwners || w.MoreOwners != 50-maxSlowOwners || w.Outcome != WaitAborted {
			t.Errorf("%d owners and %d more, outcome %d", len(w.Owners), w.MoreOwners, w.Outcome)
		}
	}
}

// TestContended: semaphores that somebody waits for are found, and no others.
func TestContended(t *testing.T) {
	x := newBenchMachine(3)
	x.at(1000)
	for i := range 30 {
		name := fmt.Appendf(nil, "lock-%02d", i)
		x.create(0, name, 1)
		x.acquire(0, name, false)
		if i%3 == 0 {
			x.acquire(1, name, false)
		}
		if i%6 == 0 {
			x.acquire(2, name, false)
		}
	}
	x.commit()
	x.at(1500)
	for i := 0; i < 30; i += 6 {
		x.release(1, fmt.Appendf(nil, "lock-%02d", i))
		x.release(2, fmt.Appendf(nil, "lock-%02d", i))
	}
	x.commit()
	if err := x.m.Check(); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, l := range x.m.Load().LongestQueues(30, func(uint64) bool { return true }) {
		if l.Waiters != 1 || l.Owners != 1 || l.OldestWait != 500 {
			t.Errorf("%+v", l)
		}
		names = append(names, string(l.Name))
	}
	slices.Sort(names)
	if want := []string{"lock-03", "lock-09", "lock-15", "lock-21", "lock-27"}; !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
	if z := x.m.Metrics().Sizes(); z.Contended != 5 {
		t.Errorf("%d are contended", z.Contended)
	}
}

// TestOldestWait: a node's oldest wait is that of the queue whose first waiter came first, and
// queues of buckets that are not served here do not count.
func TestOldestWait(t *testing.T) {
	x := newBenchMachine(2)
	wants := func(what string, node, want uint64, wantOK bool) {
		t.Helper()
		if got, ok := x.m.Load().OldestWait(node, x.now+500); got != want || ok != wantOK {
			t.Errorf("%s: %d ms, %t", what, got, ok)
		}
	}
	wants("nobody waits", 1, 0, false)
	wants("a node that there is not", 2, 0, false)
	var buckets []uint32
	for i := range 2 {
		name := fmt.Appendf(nil, "lock-%d", i)
		x.at(1000 + 1000*uint64(i))
		x.create(0, name, 1)
		x.acquire(0, name, false)
		x.acquire(1, name, false)
		x.commit()
		buckets = append(buckets, protocol.Bucket(1, name, 64))
	}
	if buckets[0] == buckets[1] {
		t.Fatal("the locks share a bucket")
	}
	for _, v := range []struct {
		what   string
		want   uint64
		wantOK bool
	}{{"two wait", 1500, true}, {"the older wait is in a bucket that moves", 500, true}} {
		wants(v.what, 1, v.want, v.wantOK)
		x.at(2000)
		x.entry = AppendCommand(x.entry, Command{Kind: CmdFreeze,
			Body: AppendBuckets(nil, BucketsBody{Total: 64, First: buckets[0], Count: 1, Epoch: 2})})
		x.commit()
		buckets = buckets[1:]
	}
	wants("both buckets move", 1, 0, false)
}

// BenchmarkTimes is what an acquire and its release cost in measured times.
func BenchmarkTimes(b *testing.B) {
	var n node
	for b.Loop() {
		t := n.measure()
		t.Waits.add(0)
		t.Holds.add(7)
	}
}

// TestWaitsByLevel: where the policy is priority, waits are measured by level too, and a semaphore's
// load has the level of its first waiter and the states of its slots.
func TestWaitsByLevel(t *testing.T) {
	x, name := newBenchMachine(3), []byte("pool")
	x.at(1000)
	create := protocol.Create{Head: x.head(0), Name: name, Limit: 2,
		Options: &protocol.SemaphoreOptions{Policy: protocol.PolicyPriority, Numbered: true}}
	x.body = protocol.AppendBody(x.body[:0], &create)
	x.command(CmdCreate)
	x.create(0, []byte("plain"), 1)
	x.acquire(0, []byte("plain"), false)
	x.acquire(0, name, false)
	x.acquire(1, name, false)
	a := protocol.Acquire{Head: x.head(2), Name: name, Count: 1, Timeout: protocol.Forever,
		Options: &protocol.AcquireOptions{Priority: 10}}
	x.body = a.AppendBody(x.body[:0])
	x.command(CmdAcquire)
	drain := protocol.Alter{Head: x.head(0), Name: name, Drain: []string{"1"}}
	x.body = protocol.AppendBody(x.body[:0], &drain)
	x.command(CmdAlter)
	x.commit()
	l, _ := x.m.Load().Semaphore(1, name)
	if want := (SlotCounts{protocol.SlotHeld: 1, protocol.SlotDraining: 1}); l.Slots != want || l.Priority != 10 {
		t.Errorf("slots %v, want %v; level+1 %d", l.Slots, want, l.Priority)
	}
	x.at(1700)
	x.release(1, name)
	x.release(0, name)
	x.commit()
	l, _ = x.m.Load().Semaphore(1, name)
	if want := (SlotCounts{protocol.SlotHeld: 1, protocol.SlotDrained: 1}); l.Slots != want || l.Priority != 0 {
		t.Errorf("slots %v, want %v; level+1 %d", l.Slots, want, l.Priority)
	}
	var want LevelWaits
	want[5].add(0)
	want[5].add(0)
	want[9].add(700)
	x.m.Metrics().LevelWaits(func(node uint64, got *LevelWaits) bool {
		if node != 1 || *got != want {
			t.Errorf("waits by level of node %d: %v, want %v", node, *got, want)
		}
		want = LevelWaits{}
		return true
	})
	if want != (LevelWaits{}) {
		t.Error("no waits by level")
	}
	if l, _ := x.m.Load().Semaphore(1, []byte("plain")); l.Slots != (SlotCounts{}) || l.Priority != 0 {
		t.Errorf("a plain semaphore has %+v", l)
	}
}
