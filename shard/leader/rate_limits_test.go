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
}

func newLimitMachine(t testing.TB) *limitMachine {
	x := &limitMachine{TB: t, Machine: shard.New(2), RateLimits: NewRateLimits(), head: shard.Header{Format: shard.FormatVersion, Epoch: 1 << 16, LogTime: 1000}}
	x.apply(shard.CmdTakeOver, nil)
	x.apply(shard.CmdBuckets, shard.AppendBuckets(nil, shard.BucketsBody{Total: 16, Count: 16}))
	x.apply(shard.CmdNodePut, shard.AppendNodePut(nil, shard.NodePutBody{Node: 1, Revision: 1, Config: protocol.DefaultNodeConfig()}))
	key := make([]byte, protocol.KeyLen)
	start := protocol.SessionStart{Node: 1, CreateID: key, Key: key, Timeout: 60_000, Nonce: 1}
	e := x.apply(shard.CmdSessionStart, start.AppendBody(nil))
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
	create := protocol.LimitCreate{Head: x.next(), Path: []byte(name), Config: protocol.LimitConfig{Rate: 1_000_000}}
	x.apply(shard.CmdLimitCreate, create.AppendBody(nil))
	join := protocol.LimitJoin{Head: x.next(), Path: []byte(name)}
	x.apply(shard.CmdLimitJoin, join.AppendBody(nil))
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
	x.apply(shard.CmdLimitDelete, del.AppendBody(nil))
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
	began := x.head.LogTime
	for i := range 20 {
		x.use(fmt.Sprint("tree-", i))
		x.head.LogTime += 10
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
