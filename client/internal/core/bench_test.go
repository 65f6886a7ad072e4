package core

import (
	"strconv"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// nobody is a waiter that is not woken.
type nobody struct{}

func (nobody) Done() {}

// bench is an engine with a session that is attached on its one connection, and the answers of a
// server that decides at once.
type bench struct {
	e       *Engine
	c       *Conn
	s       *Session
	now     time.Duration
	ready   Ready
	out     []byte
	answers []byte
	frames  []protocol.Header

	acquired protocol.AcquireReply
	released protocol.ReleaseReply
}

func newBench(t testing.TB) *bench {
	b := &bench{e: New([]string{"x"}, 1), s: &Session{Path: "/n", Timeout: time.Hour}, now: time.Second}
	b.acquired.State = protocol.Acquired
	b.e.Open(b.now)
	b.e.StartSession(b.now, b.s, &Start{Request: Request{Waiter: nobody{}}})
	b.e.Take(&b.ready)
	b.c = b.ready.Dial[0]
	b.ready.Reset()
	b.c.TakeOut(nil)
	b.e.Connected(b.now, b.c, "x", &protocol.HelloReply{
		Version: protocol.Version, Instance: 1, Window: 4096, MaxFrame: protocol.MaxFrameLen,
	})
	b.answers = protocol.AppendFrame(nil, protocol.KindMap|protocol.KindReply, 2, 0, &protocol.MapReply{
		Version: 1, Shards: []protocol.MapShard{{ID: 1, Master: 1}},
		Tiers: []protocol.MapTier{{Buckets: 4096, Runs: []protocol.MapRun{{Count: 4096, Shard: 1}}}},
	})
	b.answers = protocol.AppendFrame(b.answers, protocol.KindSessionStart|protocol.KindReply, 3, 0, &protocol.SessionReply{
		Session: 1, Epoch: 1, Shard: 1, Timeout: 3_600_000, Grace: 10_000, Node: 7,
	})
	b.receive(t)
	if b.s.attachment == nil {
		t.Fatal("the session is not attached")
	}
	return b
}

// serve answers what stands in the connection's buffer.
func (b *bench) serve(t testing.TB) {
	b.out = b.c.TakeOut(b.out[:0])
	for rest := b.out; len(rest) > 0; {
		frame, n, _ := protocol.SplitFrame(rest, protocol.MaxFrameLen)
		rest = rest[n:]
		h, err := protocol.ParseFrame(frame)
		if err != nil {
			t.Fatal(err)
		}
		var reply protocol.Message = &b.released
		if h.Kind == protocol.KindAcquire {
			b.acquired.OrderID++
			reply = &b.acquired
		}
		b.answers = protocol.AppendFrame(b.answers, h.Kind|protocol.KindReply, h.ID, 0, reply)
	}
}

// split makes frames of the answers, as package wire does.
func (b *bench) split(t testing.TB) {
	b.frames = b.frames[:0]
	for rest := b.answers; len(rest) > 0; {
		frame, n, err := protocol.SplitFrame(rest, protocol.MaxFrameLen)
		if err != nil || n == 0 {
			t.Fatal("no whole frame")
		}
		rest = rest[n:]
		h, err := protocol.ParseFrame(frame)
		if err != nil {
			t.Fatal(err)
		}
		b.frames = append(b.frames, h)
	}
}

// receive steps the engine with the answers.
func (b *bench) receive(t testing.TB) {
	b.split(t)
	b.e.Received(b.now, b.c, b.frames)
	b.e.Take(&b.ready)
	b.ready.Reset()
	b.answers = b.answers[:0]
}

// BenchmarkStep is what happens under the lock for an acquire and its answer, and for the release
// and its answer: the steps alone, of so many callers in turn.
func BenchmarkStep(b *testing.B) {
	for _, callers := range []int{1, 1024} {
		b.Run(strconv.Itoa(callers), func(b *testing.B) {
			x := newBench(b)
			acquires, releases := make([]Acquire, callers), make([]Release, callers)
			leases, names := make([]Lease, callers), make([]string, callers)
			for i := range acquires {
				acquires[i].Waiter, acquires[i].Lease = nobody{}, &leases[i]
				releases[i].Waiter = nobody{}
				names[i] = "a name of usual length " + strconv.Itoa(i)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for n := 0; n < b.N; n += callers {
				for i := range acquires {
					a := &acquires[i]
					a.Msg = protocol.Acquire{
						Name: append(a.Msg.Name[:0], names[i]...), Count: protocol.Forever, Timeout: protocol.Forever, Ephemeral: true,
					}
					x.e.Acquire(x.now, x.s, names[i], a)
					x.e.Take(&x.ready)
					x.ready.Reset()
				}
				b.StopTimer()
				x.serve(b)
				x.split(b)
				b.StartTimer()
				x.e.Received(x.now, x.c, x.frames)
				x.e.Take(&x.ready)
				x.ready.Reset()
				b.StopTimer()
				x.answers = x.answers[:0]
				for i := range releases {
					x.e.Release(x.now, &leases[i], &releases[i])
				}
				x.serve(b)
				x.receive(b)
				b.StartTimer()
			}
		})
	}
}

// BenchmarkDelta is a change of a watched semaphore, from its frame to its event: an owner that
// leaves, and one that comes.
func BenchmarkDelta(b *testing.B) {
	w := &Watch{Node: 7, Name: "jobs"}
	x := newWatchBench(b, 1, w)
	x.page(1, &protocol.Snapshot{Index: 1, First: true, Last: true})
	m := &protocol.Delta{Node: 7, Name: []byte("jobs"), Index: 2, Changes: []protocol.SemaphoreChange{
		{Kind: protocol.ChangeCreated, Limit: 1}, {Kind: protocol.ChangeOwnerAdded, Owner: protocol.Owner{OrderID: 1, Data: []byte("x")}},
	}}
	x.delta(1, m)
	var frames []protocol.Header
	for i := range uint64(2) {
		m.Index, m.Changes = 3, []protocol.SemaphoreChange{
			{Kind: protocol.ChangeOwnerRemoved, Owner: protocol.Owner{OrderID: 1 + i}},
			{Kind: protocol.ChangeOwnerAdded, Owner: protocol.Owner{OrderID: 2 - i, Data: []byte("x")}},
		}
		h, err := protocol.ParseFrame(protocol.AppendFrame(nil, protocol.KindDelta, 0, 1, m)[4:])
		if err != nil {
			b.Fatal(err)
		}
		frames = append(frames, h)
	}
	var ev WatchEvent
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		x.e.Received(x.now, x.c, frames[i&1:i&1+1])
		x.e.Take(&x.ready)
		x.ready.Reset()
		for ok := true; ok; {
			var err error
			if ok, err = w.Next(&ev); err != nil {
				b.Fatal(err)
			}
		}
	}
}
