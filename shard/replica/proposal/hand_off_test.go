package proposal

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

const testNode = 7

// leadingQueue is the queue of a group of one that leads. In a bubble of synctest no hold runs out
// while a test goes on.
func leadingQueue() *Queue {
	q := new(Queue)
	q.Init(Limits{OpenBytes: 1 << 20, BatchBytes: 1 << 20, BatchCommands: 1000, InFlight: 4, Single: true})
	q.lead()
	return q
}

// lead begins a leadership in term 1.
func (q *Queue) lead() {
	q.SetRaftLeader(1, 1)
	q.FollowRaft(1)
	t, _, _ := q.NextTakeOver()
	q.EpochApplied(t.Epoch)
	q.TakeOverEnded(t.Epoch)
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
	lock := shard.HandedOff{Node: testNode, Name: []byte("lock"), Owner: 2}
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
		on     shard.HandedOff
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
		{"nothing was handed off", shard.HandedOff{}, list(acquireOf(1, "lock", protocol.Forever)), false},
		{"many", lock, many, false},
	} {
		q := leadingQueue()
		submit := func(c shard.Command) {
			t.Helper()
			if st, _ := q.Submit(c, Origin{Conn: 1}); st != protocol.StatusOK {
				t.Fatal(st)
			}
		}
		submit(other)
		first := q.Next(0)
		if first == nil {
			t.Fatal("nothing to propose")
		}
		q.Applied(first.Epoch, first.Seq, c.on)
		for _, x := range c.submit {
			submit(x)
		}
		if b := q.Next(0); (b == nil) != c.held {
			t.Errorf("%s: held: %v", c.name, b == nil)
		} else if b != nil && len(b.Origins) != len(c.submit) {
			t.Errorf("%s: %d commands are proposed", c.name, len(b.Origins))
		}
		q.Close()
	}
}

// TestHeldAcquiresWaitForTheSameLock: acquires that came while a hand-off was on its way are held
// when it was the same lock's, and go at once when it was not, or nobody was waiting.
func TestHeldAcquiresWaitForTheSameLock(t *testing.T) {
	synctest.Test(t, heldAcquiresWaitForTheSameLock)
}

func heldAcquiresWaitForTheSameLock(t *testing.T) {
	lock := shard.HandedOff{Node: testNode, Name: []byte("lock"), Owner: 2}
	again, another := lock, lock
	again.Owner, another.Name = 3, []byte("locks")
	for _, c := range []struct {
		name string
		on   shard.HandedOff
		held bool
	}{{"the same", again, true}, {"another one", another, false}, {"none", shard.HandedOff{}, false}} {
		q := leadingQueue()
		q.Submit(releaseOf(9, "lock"), Origin{Conn: 1})
		b := q.Next(0)
		q.Applied(b.Epoch, b.Seq, lock)
		q.Submit(releaseOf(2, "lock"), Origin{Conn: 1})
		b = q.Next(0)
		q.Submit(acquireOf(9, "lock", protocol.Forever), Origin{Conn: 1})
		if q.Next(0) != nil {
			t.Fatal("it went beside the batch in flight")
		}
		q.Applied(b.Epoch, b.Seq, c.on)
		if held := q.Next(0) == nil; held != c.held {
			t.Errorf("%s: held: %v", c.name, held)
		}
		q.Close()
	}
}

// TestHeldBehindFailedBatch: an acquire that is held when a full batch before it could not be
// proposed does not wait for ever.
func TestHeldBehindFailedBatch(t *testing.T) { synctest.Test(t, heldBehindFailedBatch) }

func heldBehindFailedBatch(t *testing.T) {
	lock := shard.HandedOff{Node: testNode, Name: []byte("lock"), Owner: 2}
	q := leadingQueue()
	defer q.Close()
	q.limits.BatchCommands = 2
	q.Submit(releaseOf(9, "lock"), Origin{Conn: 1})
	b := q.Next(0)
	q.Applied(b.Epoch, b.Seq, lock)
	q.Submit(releaseOf(2, "lock"), Origin{Conn: 1})
	b = q.Next(0)
	for range q.limits.BatchCommands {
		q.Submit(shard.Command{Kind: shard.CmdCreate, Node: testNode}, Origin{Conn: 1})
	}
	q.Submit(acquireOf(9, "lock", protocol.Forever), Origin{Conn: 1})
	q.Applied(b.Epoch, b.Seq, lock)
	b = q.Next(0)
	if b == nil || len(b.Origins) != q.limits.BatchCommands {
		t.Fatalf("the full batch is not proposed: %+v", b)
	}
	q.Remove(b.Epoch, b.Seq)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.holds() && !q.handOff.runs {
		t.Error("the acquire is held, and no timer runs")
	}
}

// TestHoldIsOver: if the owner takes its time, the proposer is woken, and gets the held acquire.
func TestHoldIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := leadingQueue()
		defer q.Close()
		q.Submit(releaseOf(9, "lock"), Origin{Conn: 1})
		b := q.Next(0)
		q.Applied(b.Epoch, b.Seq, shard.HandedOff{Node: testNode, Name: []byte("lock"), Owner: 2})
		<-q.Wakeup // of the election
		if _, wake := q.Submit(acquireOf(9, "lock", protocol.Forever), Origin{Conn: 1}); wake || q.Next(0) != nil {
			t.Error("it is not held")
		}
		<-q.Wakeup
		if q.Next(0) == nil {
			t.Error("it is held still")
		}
	})
}

// TestHoldBehindAnotherHold: an acquire that is held behind a second hand-off, while the timer of
// the first one still runs and nothing else comes, is proposed when a hold of its own is over.
func TestHoldBehindAnotherHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := leadingQueue()
		defer q.Close()
		handOff := func(from, to uint64) {
			q.Submit(releaseOf(from, "lock"), Origin{Conn: 1})
			b := q.Next(0)
			q.Applied(b.Epoch, b.Seq, shard.HandedOff{Node: testNode, Name: []byte("lock"), Owner: to})
			q.Submit(acquireOf(from, "lock", protocol.Forever), Origin{Conn: 1})
			if q.Next(0) != nil {
				t.Fatal("it is not held")
			}
		}
		handOff(9, 2)
		time.Sleep(maxHold / 2)
		handOff(2, 3) // the first acquire goes with the release, and the second one is held
		began := time.Now()
		for q.Next(0) == nil {
			select {
			case <-q.Wakeup:
			case <-time.After(10 * maxHold):
				t.Fatal("it is held still")
			}
		}
		if held := time.Since(began); held > 2*maxHold {
			t.Errorf("it was held for %s", held)
		}
	})
}
