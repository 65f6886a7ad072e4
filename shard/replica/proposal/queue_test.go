package proposal

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

func TestHeaderIsPutBeforeCommands(t *testing.T) {
	var pool batchPool
	b := pool.get()
	b.add(shard.Command{Kind: shard.CmdCreate, Node: 3, Body: []byte("body")}, Origin{Conn: 1})
	for _, h := range []shard.Header{
		{Format: shard.FormatVersion},
		{Format: shard.FormatVersion, Epoch: ^uint64(0), Seq: ^uint64(0), LogTime: ^uint64(0), Wall: ^uint64(0)},
	} {
		want := shard.AppendCommand(shard.AppendHeader(nil, h),
			shard.Command{Kind: shard.CmdCreate, Node: 3, Body: []byte("body")})
		if got := b.Encode(h); !bytes.Equal(got, want) {
			t.Errorf("encoded %x, want %x", got, want)
		}
	}
}

// A proposer that slept because the queue was full must hear of the next command, even when
// everything landed before it came.
func TestProposerIsWokenAfterAFullQueue(t *testing.T) {
	q := new(Queue)
	q.Init(Limits{OpenBytes: 1000, BatchBytes: 1000, BatchCommands: 10, InFlight: 1})
	q.lead()
	<-q.Wakeup
	woken := func() bool {
		select {
		case <-q.Wakeup:
			return true
		default:
			return false
		}
	}
	submit := func() {
		t.Helper()
		st, wake := q.Submit(shard.Command{Kind: shard.CmdCreate}, Origin{Conn: 1, Request: 1})
		if st != protocol.StatusOK {
			t.Fatal(st)
		}
		if wake {
			q.Wake()
		}
	}
	if q.Next(0) != nil {
		t.Fatal("something to propose in an empty queue")
	}
	submit()
	if !woken() {
		t.Error("not woken for the first command")
	}
	b := q.Next(0)
	if b == nil || q.Next(0) != nil {
		t.Fatal("one batch should be in flight, and no second")
	}
	if _, more := q.Remove(b.Epoch, b.Seq); more {
		t.Error("nothing is left to propose")
	}
	submit()
	if !woken() {
		t.Error("not woken after the queue was full")
	}
	b = q.Next(0)
	if q.Next(0) != nil {
		t.Fatal("a second batch in flight")
	}
	submit()
	if woken() {
		t.Error("woken although the queue is full")
	}
	if _, more := q.Remove(b.Epoch, b.Seq); !more {
		t.Error("the applied batch does not say that there is more")
	}
}

// in is a queue in each phase, with a command that waits and one in flight where the phase has
// them. The leadership is of term 5, and its epoch 5<<16|1.
func in(p phase) *Queue {
	q := new(Queue)
	q.Init(Limits{OpenBytes: 1 << 20, BatchBytes: 1 << 20, BatchCommands: 1000, InFlight: 1})
	if p == following {
		return q
	}
	q.SetRaftLeader(5, 1)
	q.FollowRaft(1)
	t, _, _ := q.NextTakeOver()
	if p == takingOver {
		return q
	}
	q.EpochApplied(t.Epoch)
	q.TakeOverEnded(t.Epoch)
	q.Submit(shard.Command{Kind: shard.CmdCreate}, Origin{Conn: 1})
	q.Next(0)
	q.Submit(shard.Command{Kind: shard.CmdCreate}, Origin{Conn: 2})
	if p == stopping {
		q.Close()
	}
	return q
}

// TestTable: each input in each phase, as the table of Queue has it. The outcome is the phase
// behind it, and the connections of the batches that failed.
func TestTable(t *testing.T) {
	const own, next, newer, older = 5<<16 | 1, 5<<16 | 2, 6<<16 | 1, 4<<16 | 1
	follow := func(term, leader uint64) func(*Queue) []*Batch {
		return func(q *Queue) []*Batch {
			q.SetRaftLeader(term, leader)
			_, c, _ := q.FollowRaft(1)
			return c.Failed
		}
	}
	applied := func(epoch uint64) func(*Queue) []*Batch {
		return func(q *Queue) []*Batch { return q.EpochApplied(epoch).Failed }
	}
	names := map[phase]string{following: "following", takingOver: "takingOver", leading: "leading", stopping: "stopping"}
	for _, x := range []struct {
		input string
		do    func(*Queue) []*Batch
		want  [4]string // following, takingOver, leading, stopping
	}{
		{"elected in a newer term", follow(6, 1), [4]string{"takingOver", "takingOver", "takingOver 2", "stopping"}},
		{"elected in the known term", follow(5, 1), [4]string{"takingOver", "takingOver", "leading", "stopping"}},
		{"another leads", follow(6, 2), [4]string{"following", "following", "following 2", "stopping"}},
		{"none leads", follow(5, 0), [4]string{"following", "following", "following 2", "stopping"}},
		{"the own epoch", applied(own), [4]string{"following", "leading", "leading", "stopping"}},
		{"an epoch of a newer term", applied(newer), [4]string{"following", "following", "following 1 2", "stopping 1"}},
		{"an epoch of an older term", applied(older), [4]string{"following", "takingOver", "leading", "stopping"}},
		{"undetermined, and taken over again", func(q *Queue) []*Batch {
			q.MarkUndetermined(own, 2)
			if again, now, _ := q.NextTakeOver(); now && again.Epoch == next && again.Again {
				return q.EpochApplied(next).Failed
			}
			return nil
		}, [4]string{"following", "takingOver", "leading 1", "stopping"}},
		{"close", (*Queue).Close, [4]string{"stopping", "stopping", "stopping 2", "stopping"}},
	} {
		for p, want := range x.want {
			q := in(phase(p))
			failed := x.do(q)
			got := names[q.phase]
			for _, b := range failed {
				got += fmt.Sprintf(" %d", b.Origins[0].Conn)
			}
			if got != want {
				t.Errorf("%s: %s: %q, want %q", names[phase(p)], x.input, got, want)
			}
			st, _ := q.Submit(shard.Command{Kind: shard.CmdCreate}, Origin{})
			_, leads := q.Pause()
			if lead := q.phase == leading; (st == protocol.StatusOK) != lead || leads != lead || q.Leading() != lead {
				t.Errorf("%s: %s: a submit is %v, a pause %v", names[phase(p)], x.input, st, leads)
			}
		}
	}
}

// TestFormerTakeOver: a take-over of a former term that ends late does not end that of this one.
func TestFormerTakeOver(t *testing.T) {
	q := in(takingOver)
	q.SetRaftLeader(6, 1)
	q.FollowRaft(1)
	if x, now, _ := q.NextTakeOver(); !now || x.Epoch != 6<<16|1 {
		t.Errorf("the take-over of term 6 is %+v, now: %v", x, now)
	}
	if q.TakeOverEnded(5<<16 | 1); q.NothingInFlight() {
		t.Error("the take-over of term 6 is taken for over")
	}
}

func BenchmarkSubmit(b *testing.B) {
	q := new(Queue)
	q.Init(Limits{OpenBytes: 1 << 40, BatchBytes: 1 << 20, BatchCommands: 8192, InFlight: 4})
	q.lead()
	c := releaseOf(1, "bench/some/semaphore/name")
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		q.Submit(c, Origin{Conn: 1})
		if n++; n%1000 == 0 {
			for x := q.Next(0); x != nil; x = q.Next(0) {
				x, _ := q.Remove(x.Epoch, x.Seq)
				q.Recycle(x)
			}
		}
	}
}
