package core

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// FuzzServer feeds bytes of a server to an engine with a session, a lease, a waiting acquire, a
// one-shot watch, a watch, a stream and a call under way. Whatever they are, nothing panics, every
// caller is woken once in the end, and frames that come one by one do what they do together.
func FuzzServer(f *testing.F) {
	frame := protocol.AppendFrame
	owner := protocol.Owner{OrderID: 1, Session: 2, Count: 1}
	snapshot := &protocol.Snapshot{First: true, Last: true, Index: 3, Semaphores: []protocol.SnapshotItem{
		{Name: []byte("w"), Limit: 3, Version: 1, Data: []byte("d"), Owners: []protocol.Owner{owner}},
	}}
	delta := &protocol.Delta{Node: 7, Name: []byte("w"), Index: 4, Changes: []protocol.SemaphoreChange{
		{Kind: protocol.ChangeOwnerRemoved, Owner: owner}, {Kind: protocol.ChangeDeleted},
		{Kind: protocol.ChangeCreated, Limit: 1}, {Kind: protocol.ChangeOwnerAdded, Owner: protocol.Owner{OrderID: 9}}, {Kind: 99},
	}}
	x := newFuzzed(f)
	id := x.s.ID
	answered := func(kind protocol.Kind, status uint64, m protocol.Message) []byte {
		return frame(nil, kind|protocol.KindReply, x.asked[kind], status, m)
	}
	for _, seed := range [][]byte{
		{},
		[]byte("HTTP/1.1 400 Bad Request\r\n\r\n"),
		{0xff, 0xff, 0xff, 0xff},
		append([]byte{0, 0, 0x40, 0}, bytes.Repeat([]byte{0x91}, 0x4000)...),
		answered(protocol.KindDescribe, 0, &protocol.DescribeReply{Name: []byte("x"), Owners: []protocol.Owner{{}}}),
		answered(protocol.KindDescribe, 300, nil),
		answered(protocol.KindDescribe, 2, &protocol.Failure{Message: "no"}),
		answered(protocol.KindUpdate, 10, &protocol.Failure{Master: 1, Term: 1 << 63, Shard: 1, MapVersion: 1 << 63}),
		answered(protocol.KindAcquire, 0, &protocol.AcquireReply{State: protocol.Acquired, OrderID: 6}),
		answered(protocol.KindAcquire, 0, &protocol.AcquireReply{State: 99}),
		answered(protocol.KindWatch, 9, &protocol.Failure{Message: "no"}),
		append(answered(protocol.KindWatch, 0, &protocol.Empty{}),
			append(frame(nil, protocol.KindSnapshot, x.asked[protocol.KindWatch], 1, snapshot), frame(nil, protocol.KindDelta, 0, 1, delta)...)...),
		append(frame(nil, protocol.KindDelta, 0, 1, delta),
			frame(nil, protocol.KindStreamCut, x.asked[protocol.KindWatch], 1, &protocol.StreamCut{Status: 2})...),
		frame(nil, protocol.KindPong, 1, 1, nil),
		frame(nil, protocol.KindPong, 1<<63, 1, nil),
		frame(nil, protocol.KindGoodbye, 0, 0, &protocol.Goodbye{Status: 9}),
		frame(nil, protocol.KindMapChanged, 0, 0, &protocol.MapChanged{Version: 99, Shard: 1, Master: 2, Term: 1 << 63}),
		frame(nil, protocol.KindSessionEnded, 0, 2, &protocol.SessionEnded{Session: id, Reason: 77}),
		frame(nil, protocol.KindTakenOver, 0, 2, &protocol.TakenOver{Session: id}),
		frame(nil, protocol.KindTakenOver, 0, 2, &protocol.TakenOver{Session: id, Epoch: 9}),
		frame(nil, protocol.KindDetached, 0, 2, &protocol.Detached{Session: id, Epoch: 1 << 63}),
		frame(nil, protocol.KindAcquireResult, 0, 2, &protocol.AcquireResult{Session: id, Seq: 2, State: protocol.Acquired}),
		frame(nil, protocol.KindLeaseLost, 0, 2, &protocol.LeaseLost{Session: id, Name: []byte("held"), OrderID: 5}),
		frame(nil, protocol.KindLeaseLost, 0, 2, &protocol.LeaseLost{Session: id, Name: []byte("held"), OrderID: 5, Cause: 99}),
		frame(nil, protocol.KindLeasePreempted, 0, 2, &protocol.LeasePreempted{Session: id, Name: []byte("held"), OrderID: 5, Preemption: 9, Until: 7}),
		frame(nil, protocol.KindLeasePreempted, 0, 2, &protocol.LeasePreempted{Session: id, Name: []byte("held"), OrderID: 5, Preemption: 1 << 63,
			Now: 1, Until: 1<<64 - 1}),
		answered(protocol.KindAcquire, 0, &protocol.AcquireReply{State: protocol.Acquired, OrderID: 6,
			Grant: &protocol.Grant{Now: 5, Until: 4, Preemption: 3}}),
		answered(protocol.KindAcquire, 0, &protocol.AcquireReply{State: protocol.Acquired, OrderID: 6,
			Grant: &protocol.Grant{Now: 1, Until: 1<<64 - 1}}),
		frame(nil, protocol.KindWatchFired, 0, 2, &protocol.WatchFired{WatchID: 1}),
		frame(nil, protocol.KindAcquire, 1, 0, nil),
		frame(nil, 0x7f, 1, 0, nil),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		frames := wholeFrames(data)
		together, apart := newFuzzed(t), newFuzzed(t)
		together.receive(frames)
		for i := range frames {
			apart.receive(frames[i : i+1])
		}
		whole, pieces := together.outcome(), apart.outcome()
		if whole != pieces {
			t.Fatalf("together: %s\none by one: %s", whole, pieces)
		}
		together.finish(t)
		apart.finish(t)
	})
}

// wholeFrames are those that package wire makes of the bytes before it ends the connection.
func wholeFrames(data []byte) (list []protocol.Header) {
	for {
		frame, n, err := protocol.SplitFrame(data, protocol.MaxFrameLen)
		if err != nil || n == 0 {
			return list
		}
		h, err := protocol.ParseFrame(frame)
		if err != nil {
			return list
		}
		list, data = append(list, h), data[n:]
	}
}

// counted is a waiter that counts how often it is woken.
type counted struct{ times int }

func (c *counted) Done() { c.times++ }

// fuzzed is an engine to which everything has happened that a server can answer.
type fuzzed struct {
	*bench
	asked    map[protocol.Kind]uint64 // ids of requests that are not answered
	held     Lease
	got      Lease
	waiting  Acquire
	call     Call
	oneShot  OneShot
	describe Call
	watch    Watch
	stream   Stream
	calls    [3]counted
	woken    map[Waiter]int
}

func newFuzzed(t testing.TB) *fuzzed {
	b := newBench(t)
	x := &fuzzed{bench: b, asked: map[protocol.Kind]uint64{}, woken: map[Waiter]int{}}
	message := func(name string) protocol.Acquire {
		return protocol.Acquire{Name: []byte(name), Count: protocol.Forever, Timeout: protocol.Forever, Ephemeral: true}
	}
	first := &Acquire{Request: Request{Waiter: nobody{}}, Lease: &x.held, Msg: message("held")}
	b.acquired.OrderID = 4
	b.e.Acquire(b.now, b.s, "held", first)
	b.serve(t)
	b.receive(t)
	if first.Result.Err != nil || x.held.Token != 5 {
		t.Fatal(first.Result.Err, x.held.Token)
	}
	x.waiting = Acquire{Request: Request{Waiter: &x.calls[0]}, Lease: &x.got, Msg: message("waits")}
	b.e.Acquire(b.now, b.s, "waits", &x.waiting)
	x.call = Call{
		Request: Request{Waiter: &x.calls[1]}, Kind: protocol.KindUpdate, Msg: &protocol.Update{Name: []byte("n")},
		Reply: &protocol.UpdateReply{}, To: Target{Of: AtName, Node: 7, Name: "n"},
	}
	b.e.Call(b.now, &x.call)
	x.oneShot.Waiter = &counted{}
	x.describe = Call{
		Request: Request{Waiter: &x.calls[2]}, Kind: protocol.KindDescribe, Msg: &protocol.Describe{Name: []byte("n")},
		Reply: &protocol.DescribeReply{}, To: Target{Of: AtName, Node: 7, Name: "n"}, Session: b.s, OneShot: &x.oneShot,
	}
	b.e.Call(b.now, &x.describe)
	x.watch = Watch{Waiter: &counted{}, Node: 7, Prefix: true}
	b.e.Watch(b.now, &x.watch)
	x.stream = Stream{
		Waiter: &counted{}, Kind: protocol.KindProcessWatch, Msg: &protocol.ProcessWatch{Node: 7, Name: []byte("p")},
		To:     Target{Of: AtProcess, Node: 7, Name: "p"},
		Decode: func() Decoder { return decodeState },
	}
	b.e.Stream(b.now, &x.stream)
	for rest := b.c.TakeOut(nil); len(rest) > 0; {
		frame, n, _ := protocol.SplitFrame(rest, protocol.MaxFrameLen)
		rest = rest[n:]
		h, err := protocol.ParseFrame(frame)
		if err != nil {
			t.Fatal(err)
		}
		x.asked[h.Kind] = h.ID
	}
	x.take()
	return x
}

// take notes who is woken.
func (x *fuzzed) take() {
	x.e.Take(&x.ready)
	for _, r := range x.ready.Done {
		r.Waiter.Done()
	}
	for _, w := range x.ready.Wake {
		x.woken[w]++
	}
	x.ready.Reset()
}

func (x *fuzzed) receive(frames []protocol.Header) {
	if x.c.over {
		return // nothing is read any more
	}
	x.e.Received(x.now, x.c, frames)
	if err := Check(x.e, []*Session{x.s}, nil); err != nil {
		panic(err)
	}
	x.take()
}

// outcome is what the bytes did.
func (x *fuzzed) outcome() string {
	var out bytes.Buffer
	fmt.Fprintf(&out, "connection over: %t %v\nsession: %v %v\nlease: %v\nwoken: %v\n", x.c.over, x.c.Err,
		x.e.State(x.now, x.s), x.s.Err(), x.held.Over(), x.calls)
	for _, r := range []*Request{&x.waiting.Request, &x.call.Request, &x.describe.Request} {
		fmt.Fprintln(&out, r.Result.Err, r.Result.Answered, r.Result.Unknown)
	}
	fmt.Fprintln(&out, x.got.Token, x.woken[x.oneShot.Waiter], x.oneShot.DataChanged, x.oneShot.OwnersChanged)
	for {
		var ev WatchEvent
		ok, err := x.watch.Next(&ev)
		if !ok {
			fmt.Fprintln(&out, err)
			break
		}
		fmt.Fprintln(&out, watchEventText(&ev))
	}
	for {
		ev, ok, err := x.stream.Next()
		if !ok {
			fmt.Fprintln(&out, err)
			break
		}
		fmt.Fprintln(&out, ev)
	}
	x.take()
	return out.String()
}

// finish lets time pass without a server, and ends the engine: everybody is woken by then, once.
func (x *fuzzed) finish(t *testing.T) {
	for range 20 {
		at, ok := x.e.Next()
		if !ok {
			break
		}
		x.now = max(x.now, at)
		x.e.Tick(x.now)
		x.take()
	}
	over := errors.New("over")
	x.e.Close(x.now+time.Second, over)
	x.take()
	for i := range x.calls {
		if x.calls[i].times != 1 {
			t.Fatalf("caller %d was woken %d times", i, x.calls[i].times)
		}
	}
	if n := x.woken[x.oneShot.Waiter]; n > 1 || n == 0 && x.describe.Result.Err == nil {
		t.Fatalf("the one-shot watch was over %d times; its call: %v", n, x.describe.Result.Err)
	}
	if x.held.Over() == nil {
		t.Fatal("the lease outlives the engine")
	}
}

// FuzzMap reads any map that a server may send: each bucket has the owner that its run names.
func FuzzMap(f *testing.F) {
	f.Add(protocol.AppendBody(nil, &protocol.MapReply{Version: 1,
		Tiers: []protocol.MapTier{{Buckets: 4, Runs: []protocol.MapRun{{Count: 4, Shard: 1}}}}}))
	f.Add(protocol.AppendBody(nil, &protocol.MapReply{Version: 1, Shards: []protocol.MapShard{{ID: 1}, {ID: 2}},
		Tiers: []protocol.MapTier{{Buckets: 4, Runs: []protocol.MapRun{{Count: 1, Shard: 1}, {Count: 2, Shard: 2}, {Count: 1, Shard: 1}}}},
	}))
	f.Add(protocol.AppendBody(nil, &protocol.MapReply{Version: 1, Tiers: []protocol.MapTier{{Buckets: 1 << 31,
		Runs: []protocol.MapRun{{Count: 1 << 31, Shard: 1}, {Count: 1 << 31}}}}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		var m protocol.MapReply
		if protocol.CheckBody(data) != nil || protocol.DecodeBody(&m, data) != nil {
			return
		}
		table, err := newTable(&m)
		if err != nil {
			return
		}
		last := map[uint8]protocol.MapTier{} // a server may name one twice
		for _, x := range m.Tiers {
			last[x.ID] = x
		}
		for id, x := range last {
			own, bucket := table.tier(id), uint32(0)
			for _, run := range x.Runs {
				for range run.Count {
					if w := own.owner(bucket); w != table.shard(run.Shard) {
						t.Fatalf("bucket %d of tier %d has another owner than its run", bucket, id)
					}
					bucket++
				}
			}
			if bucket != own.buckets || own.owner(bucket) != nil {
				t.Fatalf("tier %d has holes", id)
			}
			for _, w := range own.shards() {
				if b, ok := own.someBucket(w); !ok || own.owner(uint32(b)) != w {
					t.Fatalf("bucket %d of shard %d in tier %d is another's", b, w.shard, id)
				}
			}
		}
	})
}
