package shard

import (
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

func (r *tableTest) remoteEnded(who string) string {
	r.t.Helper()
	r.command(CmdRemoteEnded, RemoteEndedBody{Sessions: []RemoteEnd{{Session: r.ids[who]}}})
	// Its acquire's end is not looked at here.
	return "ok"
}

// TestSessionTimes holds the boundaries of a session's life.
func TestSessionTimes(t *testing.T) {
	check := func(t *testing.T, got, want string) {
		t.Helper()
		if got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	}
	t.Run("60,000 ms", func(t *testing.T) {
		r := newTableTest(t)
		r.start("s", 60_000)
		r.detach("s", r.at)
		check(t, r.advance(60_000), "")
		check(t, r.advance(1), "s ended 2")
	})
	t.Run("it is there at its deadline and gone behind it", func(t *testing.T) {
		r := newTableTest(t)
		check(t, r.detach("a", r.at), "ok")
		check(t, r.advance(10_000), "")
		check(t, r.create("a", 1), "version 1; +created")
		check(t, r.advance(1), "a ended 2")
		check(t, r.attach("a", 2, 0), "SESSION_EXPIRED")
	})
	t.Run("heard of long ago", func(t *testing.T) {
		r := newTableTest(t)
		r.advance(20_000)
		check(t, r.detach("a", r.at-10_001), "ok")
		check(t, r.create("a", 1), "a ended 2; SESSION_EXPIRED")
	})
	t.Run("timeout 0", func(t *testing.T) {
		r := newTableTest(t)
		r.start("z", 0)
		check(t, r.detach("z", r.at), "z ended 2; ok")
	})
	t.Run("attach cancels the deadline", func(t *testing.T) {
		r := newTableTest(t)
		r.detach("a", r.at)
		r.advance(10_000)
		check(t, r.attach("a", 2, 500), "ok")
		check(t, r.advance(1_000_000), "")
	})
	t.Run("take-over: timeout and grace for attached sessions", func(t *testing.T) {
		r := newTableTest(t)
		r.detach("b", r.at)
		check(t, r.advance(10_000), "") // b is at its deadline, and gets no more
		check(t, r.applyOne(op{kind: CmdTakeOver}, 2<<16), "ok")
		check(t, r.attach("c", 1, 10_000), "ok")
		check(t, r.advance(1), "b ended 2")
		check(t, r.advance(19_999), "")
		check(t, r.advance(1), "a ended 2")
	})
	t.Run("take-overs: timeout and grace once", func(t *testing.T) {
		r := newTableTest(t)
		for term := range uint64(20) {
			check(t, r.applyOne(op{kind: CmdTakeOver}, (term+2)<<16), "ok")
			check(t, r.advance(1_000), "")
		}
		check(t, r.advance(1), "c ended 2; a ended 2; b ended 2")
	})
	t.Run("planned take-over: the timeout", func(t *testing.T) {
		r := newTableTest(t)
		check(t, r.applyOne(op{kind: CmdTransfer, raw: TransferBegins}, 0), "ok")
		check(t, r.applyOne(op{kind: CmdTakeOver}, 2<<16), "ok")
		check(t, r.attach("c", 1, 10_000), "ok")
		check(t, r.advance(5_000), "")
		check(t, r.applyOne(op{kind: CmdTakeOver}, 3<<16), "ok") // not a planned one
		check(t, r.advance(5_000), "")
		check(t, r.advance(1), "a ended 2; b ended 2")
		check(t, r.advance(14_999), "")
		check(t, r.advance(1), "c ended 2")
	})
	t.Run("planned take-over that did not come", func(t *testing.T) {
		r := newTableTest(t)
		check(t, r.applyOne(op{kind: CmdTransfer, raw: TransferBegins}, 0), "ok")
		check(t, r.applyOne(op{kind: CmdTakeOver}, 1<<16|1), "ok") // a repeated take-over is none
		check(t, r.applyOne(op{kind: CmdTransfer, raw: TransferCancelled}, 0), "ok")
		check(t, r.applyOne(op{kind: CmdTakeOver}, 2<<16), "ok")
		check(t, r.advance(20_000), "")
		check(t, r.advance(1), "c ended 2; a ended 2; b ended 2")
	})
	t.Run("planned take-over, timeout 0", func(t *testing.T) {
		r := newTableTest(t)
		r.start("z", 0)
		check(t, r.applyOne(op{kind: CmdTransfer, raw: TransferBegins}, 0), "ok")
		check(t, r.applyOne(op{kind: CmdTakeOver}, 2<<16), "ok")
		check(t, r.attach("z", 2, 0), "ok")
		check(t, r.advance(10_000), "")
	})
	t.Run("take-over: the overdue stay gone", func(t *testing.T) {
		r := newTableTest(t)
		r.advance(20_000)
		r.detach("a", 0) // its deadline is behind it, and its end is not logged yet
		check(t, r.attach("a", 2, 1), "a ended 2; SESSION_EXPIRED")
		r.detach("b", 0)
		check(t, r.applyOne(op{kind: CmdTakeOver}, 2<<16), "b ended 2; ok")
	})
	t.Run("take-overs: the first decides, with the grace period of its time", func(t *testing.T) {
		r := newTableTest(t)
		config := protocol.DefaultNodeConfig()
		config.GracePeriod = 30_000
		r.command(CmdNodePut, NodePutBody{Node: 1, Revision: 2, Config: config})
		config.GracePeriod = 1500
		r.command(CmdNodePut, NodePutBody{Node: 1, Revision: 3, Config: config})
		r.advance(30_000) // the old grace period's last moment
		r.applyOne(op{kind: CmdTakeOver}, 2<<16)
		r.advance(1) // and from now on the new one
		r.applyOne(op{kind: CmdTakeOver}, 3<<16)
		check(t, r.advance(39_999), "")
		check(t, r.advance(1), "c ended 2; a ended 2; b ended 2") // by id, which begins with the home bucket
	})
	t.Run("repeated take-over detaches nobody", func(t *testing.T) {
		r := newTableTest(t)
		r.applyOne(op{kind: CmdTakeOver}, 1<<16|1)
		check(t, r.advance(1_000_000), "")
	})
	t.Run("old epoch", func(t *testing.T) {
		r := newTableTest(t)
		r.at += 1_000_000
		check(t, r.applyOne(op{kind: CmdTakeOver}, 2<<16), "ok") // a new leader's first stamp is none
		check(t, r.applyOne(op{kind: CmdNodePut, msg: NodePutBody{Node: 2, Revision: 1}}, 1<<16), "refused")
		r.at -= 1_000_000
		check(t, r.advance(1), "")
	})
	t.Run("stop", func(t *testing.T) {
		r := newTableTest(t)
		r.create("a", 1)
		r.acquire("a", 1, 0, "")
		r.acquire("b", 1, always, "")
		r.acquire("c", 1, always, "")
		check(t, r.stop("b"), "ok; b#1 SESSION_EXPIRED; b ended 1")
		check(t, r.stop("a"), "ok; c#1 acquired 3; a ended 1; +removed; +owner")
		check(t, r.stop("a"), "SESSION_EXPIRED")
	})
	t.Run("create id", func(t *testing.T) {
		r := newTableTest(t)
		id := append(make([]byte, 15), 200)
		start := &protocol.SessionStart{Node: 1, CreateID: id, Key: modelKey(1), Timeout: 1000, Nonce: 1}
		check(t, r.command(CmdSessionStart, start), "ok")
		first := r.m.events[0].Session
		check(t, r.command(CmdSessionStart, start), "ok")
		if again := r.m.events[0].Session; again != first {
			t.Fatalf("session %d, then %d", first, again)
		}
		r.ids["s"] = first
		r.stop("s")
		for _, name := range []string{"a", "b", "c"} {
			r.stop(name)
		}
		check(t, r.command(CmdSessionStart, start), "SESSION_EXPIRED")
		r.advance(Retention)
		check(t, r.command(CmdSessionStart, start), "SESSION_EXPIRED")
		r.advance(1)
		check(t, r.command(CmdSessionStart, start), "ok")
	})
	t.Run("remote session's record", func(t *testing.T) {
		r := newTableTest(t)
		for _, name := range []string{"b", "c"} {
			r.stop(name)
		}
		r.create("a", 1)
		r.acquire("a", 1, 0, "")
		check(t, r.acquire("g", 1, 3_600_000, ""), "queued 2")
		check(t, r.advance(3_600_001), "g#1 not acquired")
		r.advance(Retention)
		check(t, r.resend("g", 1, 1), "not acquired") // remembered from when it became idle, and used again now
		r.advance(Retention)
		check(t, r.resend("g", 1, 1), "not acquired")
		r.advance(Retention + 1)
		check(t, r.resend("g", 1, 1), "queued 3") // forgotten
	})
	t.Run("gone id", func(t *testing.T) {
		r := newTableTest(t)
		r.remoteEnded("h") // never seen here: a request may be on its way
		check(t, r.acquireEphemeral("h", 1, 0), "SESSION_EXPIRED")
		r.advance(Retention)
		check(t, r.acquireEphemeral("h", 1, 0), "SESSION_EXPIRED")
		r.advance(1)
		check(t, r.acquireEphemeral("h", 1, 0), "acquired 1; +created; +owner")
	})
	t.Run("work of one apply", func(t *testing.T) {
		if w := New(1).work; w != (workLimits{deadlines: 1000, sweeps: 1000, releases: 10_000}) {
			t.Fatalf("%+v", w)
		}
		if l := New(1).limits; l != (Limits{1 << 20, 1 << 20, 1 << 14}) {
			t.Fatalf("%+v", l)
		}
	})
}

// TestSessionEndsDuringTimeouts: a session ends, the work of the Apply is used up with the first of
// its waiters, and the timer of the second fires in the same Apply. What is left of the session has
// no entries then, and is restored all the same.
func TestSessionEndsDuringTimeouts(t *testing.T) {
	r := newTableTest(t)
	r.machine.work.releases, r.replica.work.releases = 1, 1
	wait := func(who, name string, timeout uint64) {
		r.seqs[who]++
		r.applyOne(op{kind: CmdAcquire, node: 1, epoch: 1, msg: &protocol.Acquire{
			Head: protocol.Head{Session: r.ids[who], Seq: r.seqs[who], Low: 1}, Name: []byte(name),
			Count: always, Timeout: timeout, Ephemeral: true,
		}}, 0)
	}
	for _, name := range []string{"one", "two"} {
		wait("a", name, 0)
		wait("b", name, 10_000)
	}
	if got := r.detach("b", r.at); got != "ok" {
		t.Fatal(got)
	}
	var out Events
	r.at += 10_001
	r.machine.Apply(r.index+1, encode(r.header(r.at), nil), &out)
	if _, ok := r.machine.Sessions().Home(r.ids["b"]); ok || len(r.machine.ending) != 1 ||
		r.machine.ending[0].entries.n != 0 {
		t.Fatalf("session is there: %v; ending: %v", ok, r.machine.ending)
	}
	m := mustRestore(t, r.machine)
	m.Apply(r.index+2, encode(r.header(r.at), nil), &out)
	if err := m.Check(); err != nil || len(m.ending) != 0 {
		t.Fatal(err, len(m.ending))
	}
}

// TestOverdueHeadRequests: the owner's session ends, the work of the Apply is used up before the
// overdue head of the queue is ended, and that very waiter asks in the same batch. The one behind
// it is granted.
func TestOverdueHeadRequests(t *testing.T) {
	r := newTableTest(t)
	r.create("c", 1)
	r.acquire("a", 1, 0, "")
	r.acquire("b", 1, 20_000, "")
	r.acquire("c", 1, always, "")
	r.detach("a", r.at)
	r.machine.work = workLimits{deadlines: 1, sweeps: 1, releases: 1}
	r.at += 20_001
	var out Events
	again := op{kind: CmdAcquire, node: 1, epoch: 1, msg: &protocol.Acquire{
		Head: protocol.Head{Session: r.ids["b"], Seq: 1, Low: 1}, Name: tableSemaphore, Count: 1, Timeout: 20_000,
	}}
	r.machine.Apply(r.index+1, encode(r.header(r.at), []op{again}), &out)
	var d protocol.DescribeReply
	req := protocol.Describe{Node: 1, Name: tableSemaphore, Flags: protocol.WithOwners}
	if err := r.machine.Semaphores().Describe(&req, &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Owners) != 1 || d.Owners[0].Session != r.ids["c"] || d.NumWaiters != 0 {
		t.Fatalf("owners %v, %d waiters", d.Owners, d.NumWaiters)
	}
	if err := r.machine.Check(); err != nil {
		t.Fatal(err)
	}
}
