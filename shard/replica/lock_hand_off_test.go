package replica

import (
	"testing"
	"testing/synctest"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// leadingQueue is the queue of a group of one that leads, without an engine. In a bubble of
// synctest no hold runs out while a test goes on.
func leadingQueue() (*Shard, *proposalQueue) {
	s := &Shard{}
	q := &s.proposals
	q.init(ShardConfig{MaxOpenBytes: 1 << 20, MaxBatchBytes: 1 << 20, MaxBatchCommands: 1000, InFlight: 4,
		Members: map[uint64]string{1: "x"}})
	q.phase, q.ownEpoch, q.takeOverEpoch = leading, 1, 1
	q.leading.Store(true)
	return s, q
}

func acquireOf(session uint64, name string, timeout uint64) shard.Command {
	m := protocol.Acquire{Head: protocol.Head{Session: session, Seq: 1, Low: 1}, Name: []byte(name), Count: 1, Timeout: timeout}
	return shard.Command{Kind: shard.CmdAcquire, Node: testNode, Epoch: 1, Body: m.AppendBody(nil)}
}

func releaseOf(session uint64, name string) shard.Command {
	m := protocol.Release{Head: protocol.Head{Session: session, Seq: 1, Low: 1}, Name: []byte(name)}
	return shard.Command{Kind: shard.CmdRelease, Node: testNode, Epoch: 1, Body: m.AppendBody(nil)}
}

// TestQueuingAcquiresAreHeld: after a hand-off, acquires that only queue up go with the next
// command of another kind, and everything else goes at once.
func TestQueuingAcquiresAreHeld(t *testing.T) { synctest.Test(t, queuingAcquiresAreHeld) }

func queuingAcquiresAreHeld(t *testing.T) {
	lock := shard.HandedOn{Node: testNode, Name: []byte("lock"), Owner: 2}
	other := shard.Command{Kind: shard.CmdCreate, Node: testNode}
	elsewhere := acquireOf(1, "lock", protocol.Forever)
	elsewhere.Node++
	list := func(c ...shard.Command) []shard.Command { return c }
	many := make([]shard.Command, minSecondBatchCommands)
	for i := range many {
		many[i] = acquireOf(uint64(3+i), "lock", protocol.Forever)
	}
	for _, c := range []struct {
		name   string
		on     shard.HandedOn
		submit []shard.Command
		held   bool
	}{
		{"an acquire", lock, list(acquireOf(1, "lock", protocol.Forever)), true},
		{"two acquires", lock, list(acquireOf(1, "lock", protocol.Forever), acquireOf(3, "lock", minHeldTimeout)), true},
		{"with the release", lock, list(acquireOf(1, "lock", protocol.Forever), releaseOf(2, "lock")), false},
		{"behind the release", lock, list(releaseOf(2, "lock"), acquireOf(1, "lock", protocol.Forever)), false},
		{"one that soon gives up", lock, list(acquireOf(1, "lock", minHeldTimeout-1)), false},
		{"one that does not wait", lock, list(acquireOf(1, "lock", 0)), false},
		{"the owner's", lock, list(acquireOf(2, "lock", protocol.Forever)), false},
		{"of another name", lock, list(acquireOf(1, "locks", protocol.Forever)), false},
		{"on another node", lock, list(elsewhere), false},
		{"of another kind", lock, list(other), false},
		{"behind one of another kind", lock, list(other, acquireOf(1, "lock", protocol.Forever)), false},
		{"nothing was handed on", shard.HandedOn{}, list(acquireOf(1, "lock", protocol.Forever)), false},
		{"many", lock, many, false},
	} {
		s, q := leadingQueue()
		submit := func(c shard.Command) {
			t.Helper()
			if st, _ := s.submit(c, Origin{Conn: 1}); st != protocol.StatusOK {
				t.Fatal(st)
			}
		}
		submit(other)
		first := q.next(0)
		if first == nil {
			t.Fatal("nothing to propose")
		}
		q.applied(first.epoch, first.seq, c.on)
		for _, x := range c.submit {
			submit(x)
		}
		if b := q.next(0); (b == nil) != c.held {
			t.Errorf("%s: held: %v", c.name, b == nil)
		} else if b != nil && len(b.origins) != len(c.submit) {
			t.Errorf("%s: %d commands are proposed", c.name, len(b.origins))
		}
		q.close()
	}
}

// TestHeldAcquiresWaitForTheSameLock: acquires that came while a hand-off was on its way are held
// when it was the same lock's, and go at once when it was not, or nobody was waiting.
func TestHeldAcquiresWaitForTheSameLock(t *testing.T) {
	synctest.Test(t, heldAcquiresWaitForTheSameLock)
}

func heldAcquiresWaitForTheSameLock(t *testing.T) {
	lock := shard.HandedOn{Node: testNode, Name: []byte("lock"), Owner: 2}
	again, another := lock, lock
	again.Owner, another.Name = 3, []byte("locks")
	for _, c := range []struct {
		name string
		on   shard.HandedOn
		held bool
	}{{"the same", again, true}, {"another one", another, false}, {"none", shard.HandedOn{}, false}} {
		s, q := leadingQueue()
		s.submit(releaseOf(9, "lock"), Origin{Conn: 1})
		b := q.next(0)
		q.applied(b.epoch, b.seq, lock)
		s.submit(releaseOf(2, "lock"), Origin{Conn: 1})
		b = q.next(0)
		s.submit(acquireOf(9, "lock", protocol.Forever), Origin{Conn: 1})
		if q.next(0) != nil {
			t.Fatal("it went beside the batch in flight")
		}
		q.applied(b.epoch, b.seq, c.on)
		if held := q.next(0) == nil; held != c.held {
			t.Errorf("%s: held: %v", c.name, held)
		}
		q.close()
	}
}

// TestHeldBehindFailedBatch: an acquire that is held when a full batch before it could not be
// proposed does not wait for ever.
func TestHeldBehindFailedBatch(t *testing.T) { synctest.Test(t, heldBehindFailedBatch) }

func heldBehindFailedBatch(t *testing.T) {
	lock := shard.HandedOn{Node: testNode, Name: []byte("lock"), Owner: 2}
	s, q := leadingQueue()
	defer q.close()
	q.maxCommands = 2
	s.submit(releaseOf(9, "lock"), Origin{Conn: 1})
	b := q.next(0)
	q.applied(b.epoch, b.seq, lock)
	s.submit(releaseOf(2, "lock"), Origin{Conn: 1})
	b = q.next(0)
	for range q.maxCommands {
		s.submit(shard.Command{Kind: shard.CmdCreate, Node: testNode}, Origin{Conn: 1})
	}
	s.submit(acquireOf(9, "lock", protocol.Forever), Origin{Conn: 1})
	q.applied(b.epoch, b.seq, lock)
	b = q.next(0)
	if b == nil || len(b.origins) != q.maxCommands {
		t.Fatalf("the full batch is not proposed: %+v", b)
	}
	q.removeInFlight(b.epoch, b.seq)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.holds() && !q.handOff.runs {
		t.Error("the acquire is held, and no timer runs")
	}
}

// TestHoldEnds: if the owner takes its time, acquires are proposed without its release.
func TestHoldEnds(t *testing.T) {
	h := openHost(t, HostConfig{})
	s, r := startOne(t, h, nil)
	populate(t, s)
	const callers = 4
	list := make([]*caller, callers)
	for i := range list {
		list[i] = newCaller(t, s, r, uint64(i+1), 60_000)
	}
	list[0].mustCreate("lock")
	ask := func(c *caller) Origin {
		c.seq++
		m := protocol.Acquire{Head: protocol.Head{Session: c.session, Seq: c.seq, Low: c.low}, Name: []byte("lock"),
			Count: 1, Timeout: protocol.Forever}
		return c.submit(shard.CmdAcquire, m.AppendBody(nil))
	}
	for i, c := range list[:callers-1] {
		if res := r.result(ask(c)); res.status != protocol.StatusOK || (res.event.State == protocol.Acquired) != (i == 0) {
			t.Fatalf("acquire %d: %+v", i, res)
		}
	}
	for i, c := range list {
		c.seq++
		m := protocol.Release{Head: protocol.Head{Session: c.session, Seq: c.seq, Low: c.low}, Name: []byte("lock")}
		if res := r.result(c.submit(shard.CmdRelease, m.AppendBody(nil))); res.status != protocol.StatusOK {
			t.Fatalf("release: %+v", res)
		}
		// Nobody releases until this is answered.
		if res := r.result(ask(list[(i+callers-1)%callers])); res.status != protocol.StatusOK || res.event.State != protocol.Accepted {
			t.Fatalf("acquire after release %d: %+v", i, res)
		}
	}
}
