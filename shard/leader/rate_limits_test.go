package leader

import (
	"fmt"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/ratelimit"
)

// limitMachine is a shard's machine with a session, and its leader's leases.
type limitMachine struct {
	testing.TB
	*shard.Machine
	*RateLimits
	head                shard.Header
	session, epoch, seq uint64
	refreshes           uint64
	lease               uint64 // of the trees that are made
}

func newLimitMachine(t testing.TB) *limitMachine {
	x := &limitMachine{TB: t, Machine: shard.New(2), RateLimits: NewRateLimits(), head: shard.Header{Format: shard.FormatVersion, Epoch: 1 << 16, LogTime: 1000}}
	x.apply(shard.CmdTakeOver, nil)
	x.apply(shard.CmdBuckets, shard.AppendBuckets(nil, shard.BucketsBody{Total: 16, Count: 16}))
	x.apply(shard.CmdNodePut, shard.AppendNodePut(nil, shard.NodePutBody{Node: 1, Revision: 1, Config: protocol.DefaultNodeConfig()}))
	key := make([]byte, protocol.KeyLen)
	start := protocol.SessionStart{Node: 1, CreateID: key, Key: key, Timeout: 60_000, Nonce: 1}
	e := x.apply(shard.CmdSessionStart, protocol.AppendBody(nil, &start))
	x.session, x.epoch = e.Session, e.Epoch
	return x
}

// apply applies a command, and returns the reply.
func (x *limitMachine) apply(kind shard.CommandKind, body []byte) (reply shard.Event) {
	x.Helper()
	x.head.Seq++
	entry := shard.AppendCommand(shard.AppendHeader(nil, x.head), shard.Command{Kind: kind, Node: 1, Epoch: x.epoch, Body: body})
	var out shard.Events
	x.Machine.Apply(x.AppliedIndex()+1, entry, &out)
	for _, e := range out.List {
		if e.Kind == shard.EventReply {
			reply = e
		}
	}
	if reply.Status != protocol.StatusOK {
		x.Fatalf("command %d: %v %s", kind, reply.Status, reply.Text)
	}
	return reply
}

func (x *limitMachine) next() protocol.Head {
	x.seq++
	return protocol.Head{Session: x.session, Seq: x.seq, Low: x.seq}
}

// use makes a tree, takes part and refreshes.
func (x *limitMachine) use(name string) {
	x.Helper()
	create := protocol.LimitCreate{Head: x.next(), Path: []byte(name), Config: protocol.LimitConfig{Rate: 1_000_000, Lease: x.lease}}
	x.apply(shard.CmdLimitCreate, protocol.AppendBody(nil, &create))
	join := protocol.LimitJoin{Head: x.next(), Path: []byte(name)}
	x.apply(shard.CmdLimitJoin, protocol.AppendBody(nil, &join))
	x.refresh(name)
}

func (x *limitMachine) refresh(name string) {
	x.Helper()
	x.refreshes++
	q := ratelimit.Refresh{Session: x.session, Epoch: x.epoch, Seq: x.refreshes, Leaves: []ratelimit.LeafRefresh{{Leaf: name, Waiting: 1}}}
	var r ratelimit.Reply
	if err := x.Refresh(x.Machine, x.head.LogTime, 1, []byte(name), &q, &r); err != nil {
		x.Fatal(err)
	}
}

// remove deletes a tree. It is there until its lease has ended.
func (x *limitMachine) remove(name string) {
	x.Helper()
	del := protocol.LimitDelete{Head: x.next(), Path: []byte(name)}
	x.apply(shard.CmdLimitDelete, protocol.AppendBody(nil, &del))
}

func (x *limitMachine) tick() {
	x.Tick(x.Machine, x.head.LogTime, func(uint64, string, uint64, uint64) {})
}

// TestRateLimitsComeAndGo: of trees that come and go a leader knows those that are there, and at
// most as many more before it looks. A tick touches those trees alone that have something to do.
func TestRateLimitsComeAndGo(t *testing.T) {
	x := newLimitMachine(t)
	for i := range 1000 {
		name := fmt.Sprint("tree-", i)
		x.use(name)
		x.remove(name)
		x.head.LogTime += 100 // 30 are there until their leases have ended
		if most := 2*40 + sweepFirst; x.Len() > most {
			t.Fatalf("after %d trees that came and went there are leases of %d, at most %d may be", i+1, x.Len(), most)
		}
	}
	if n := x.due.Len(); n > x.Len() {
		t.Errorf("%d trees of %d are due", n, x.Len())
	}
	x.head.LogTime += 100_000
	x.head.Seq++
	x.Machine.Apply(x.AppliedIndex()+1, shard.AppendHeader(nil, x.head), new(shard.Events)) // the shard's own timers
	x.tick()
	if n := x.Len(); n > 0 {
		t.Errorf("when all leases have ended, those of %d trees are there", n)
	}
}

// TestRateLimitsAreDue: each tree has its tick when it asks for it, however many there are.
func TestRateLimitsAreDue(t *testing.T) {
	x := newLimitMachine(t)
	for i := range uint64(20) {
		x.lease = protocol.DefaultLimitLease + i*10
		x.use(fmt.Sprint("tree-", i))
	}
	x.head.Epoch += 1 << 16
	x.apply(shard.CmdTakeOver, nil)
	began := x.head.LogTime
	for i := range 20 {
		x.refresh(fmt.Sprint("tree-", i))
	}
	learning := func() (n int) {
		x.All(x.Machine, x.head.LogTime, func(_, now uint64, l *ratelimit.Leases) bool {
			if l.Learning(now) > 0 {
				n++
			}
			return true
		})
		return n
	}
	for i := range 20 { // each learns for the length of a lease
		in, ok := x.Next(x.head.LogTime)
		if want := began + protocol.DefaultLimitLease + uint64(i)*10; !ok || x.head.LogTime+in != want {
			t.Fatalf("tick %d is due at %d (%t), want %d", i, x.head.LogTime+in, ok, want)
		}
		x.head.LogTime += in
		x.tick()
		if n := learning(); n != 19-i {
			t.Fatalf("after tick %d there are %d trees that learn", i, n)
		}
	}
}

// TestRateLimitBucketComesBack: a bucket that was at another shard, and is back within one
// leadership, has leases of another one. What its leader knew of them is gone, what clients hold of
// either is counted once they present it, and nobody else gets a rate until no lease can be
// unknown.
func TestRateLimitBucketComesBack(t *testing.T) {
	const total, lease = 16, protocol.DefaultLimitLease
	here := newLimitMachine(t)
	here.use("api")
	here.head.LogTime += lease + 1
	refresh := func(session uint64, held *ratelimit.Lease) (r ratelimit.Reply) {
		t.Helper()
		here.refreshes++
		f := ratelimit.LeafRefresh{Leaf: "api", Waiting: 1}
		if held != nil {
			f.Held, f.Presented = *held, true
		}
		q := ratelimit.Refresh{Session: session, Epoch: here.epoch, Seq: here.refreshes,
			Leaves: []ratelimit.LeafRefresh{f}}
		if err := here.Refresh(here.Machine, here.head.LogTime, 1, []byte("api"), &q, &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	before := refresh(here.session, nil)
	held := before.Leaves[0].Lease
	if before.Again || held.Rate == 0 {
		t.Fatalf("the first lease is %+v", before)
	}

	bucket := protocol.Bucket(1, []byte("api"), total)
	if bucket == total-1 || bucket == protocol.SessionBucket(here.session) {
		t.Fatalf("bucket %d is not for this test; give the tree another name", bucket)
	}
	there := &limitMachine{TB: t, Machine: shard.New(3), RateLimits: NewRateLimits(), head: here.head}
	there.apply(shard.CmdTakeOver, nil)
	there.apply(shard.CmdBuckets, shard.AppendBuckets(nil, shard.BucketsBody{Total: total, First: total - 1, Count: 1}))
	there.apply(shard.CmdNodePut, shard.AppendNodePut(nil, shard.NodePutBody{Node: 1, Revision: 1, Config: protocol.DefaultNodeConfig()}))
	move := func(from, to *limitMachine, epoch uint64) {
		t.Helper()
		run := shard.BucketsBody{Total: total, First: bucket, Count: 1, Epoch: epoch}
		body := shard.AppendBuckets(nil, run)
		from.apply(shard.CmdFreeze, body)
		for cursor, more := []byte(nil), true; more; more = len(cursor) > 0 {
			chunk, next, err := from.Buckets().Export(bucket, 1, epoch, cursor, 0)
			if err != nil {
				t.Fatal(err)
			}
			to.apply(shard.CmdImport, shard.AppendImport(nil, shard.ImportBody{BucketsBody: run, Chunk: chunk}))
			cursor = next
		}
		to.apply(shard.CmdActivate, body)
		from.apply(shard.CmdDropBuckets, body)
	}
	move(here, there, 2)
	here.tick() // a tree that is away has nothing to do
	move(there, here, 3)

	// A session that comes now may use what somebody holds whom this leadership does not know.
	other := here.session
	key := make([]byte, protocol.KeyLen)
	key[0] = 2
	start := protocol.SessionStart{Node: 1, CreateID: key, Key: key, Timeout: 60_000, Nonce: 1}
	e := here.apply(shard.CmdSessionStart, protocol.AppendBody(nil, &start))
	join := protocol.LimitJoin{Head: protocol.Head{Session: e.Session, Seq: 1, Low: 1}, Path: []byte("api")}
	here.apply(shard.CmdLimitJoin, protocol.AppendBody(nil, &join))
	after := refresh(e.Session, nil)
	want := ratelimit.Leadership{Bucket: 3, Epoch: before.Leadership.Epoch}
	if after.Leadership != want || !after.Again || after.Leaves[0].Lease.Rate > 0 ||
		after.Leaves[0].Why != ratelimit.WhyLearning {
		t.Fatalf("a new session got %+v, want nothing yet, and leadership %v", after, want)
	}
	// Who presents a lease of before goes on with it.
	again := refresh(other, &held)
	if got := again.Leaves[0].Lease; again.Leadership != want || got.Rate != held.Rate || got.Burst != held.Burst {
		t.Errorf("the lease of before goes on as %+v, want %+v", got, held)
	}
	here.head.LogTime += lease + 1
	if late := refresh(e.Session, nil); late.Leaves[0].Why == ratelimit.WhyLearning {
		t.Errorf("after the length of a lease it still learns: %+v", late)
	}
}

// BenchmarkRateLimitTick is a tick for one tree among 10,000.
func BenchmarkRateLimitTick(b *testing.B) {
	x := newLimitMachine(b)
	for i := range 10_000 {
		x.use(fmt.Sprint("tree-", i))
	}
	x.head.LogTime += 4000
	x.tick()
	for b.Loop() {
		in, _ := x.Next(x.head.LogTime)
		x.head.LogTime += max(in, 1)
		x.tick()
	}
}

// TestTicksPutNothingOff: a call is admitted behind the first barrier that begins when its units are there, however
// often the leader looks at the tree before that ends.
func TestTicksPutNothingOff(t *testing.T) {
	x := newLimitMachine(t)
	x.lease = 500
	x.use("api")
	x.head.LogTime += 4000 // it has learned
	var answered []uint64
	admit := func(at uint64) {
		x.Admit(x.Machine, at, at, func(a *ratelimit.Answer) bool {
			answered = append(answered, a.To.Request)
			return a.Granted
		})
	}
	for i := range uint64(3) {
		q := ratelimit.Acquire{Session: x.session, Epoch: x.epoch, Seq: 10 + i, Leaves: []string{"api"}, Amount: 400_000, Wait: true,
			From: ratelimit.Origin{Conn: 1, Request: 1 + i}}
		if err := x.Acquire(x.Machine, x.head.LogTime, 1, []byte("api"), &q); err != nil {
			t.Fatal(err)
		}
		admit(x.head.LogTime)
	}
	barrier := x.head.LogTime + 1000
	for range 15 { // the third call's units are there at some time
		x.head.LogTime += 100
		x.tick()
	}
	admit(barrier)
	if len(answered) != 3 {
		t.Errorf("answered: %v", answered)
	}
}
