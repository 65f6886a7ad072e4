package ratelimit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// workTest is a part whose server answers a ms later, and the driver's calls after each of the
// machine's.
type workTest struct {
	m     machine
	p     *part
	now   int64
	asked []*action
	at    int64              // when these are answered
	held  map[uint64]*action // acquires, of a server that holds them until they are given up; nil: it refuses them

	refreshed func(*protocol.LimitRefresh, *protocol.LimitRefreshReply) // sees a refresh, and changes its answer
}

func newWorkTest() *workTest {
	x := &workTest{p: newPart("api"), now: 1e9}
	x.m.parts = append(x.m.parts, x.p)
	x.m.attached(x.now, x.p, 1, 1)
	x.drive()
	return x
}

func (x *workTest) drive() {
	out, _ := x.m.take()
	for i := range out {
		x.asked, x.at = append(x.asked, &out[i]), x.now+1e6
	}
	if next := x.p.next(x.now); next > 0 && next <= x.now {
		x.m.tick(x.now)
	}
	if len(x.asked) == 0 || x.now < x.at {
		return
	}
	asked := x.asked
	x.asked = nil
	for _, a := range asked {
		if q, ok := a.msg.(*protocol.LimitAcquire); ok && x.held != nil {
			if delete(x.held, q.Back); q.Hold {
				x.held[q.Seq] = a
				continue
			}
		}
		x.m.answered(x.now, a, x.answer(a), nil)
		x.drive()
	}
}

func (x *workTest) answer(a *action) protocol.Message {
	switch q := a.msg.(type) {
	case *protocol.LimitRefresh:
		r := &protocol.LimitRefreshReply{BucketEpoch: 1, LeaderEpoch: 1, Length: 3000}
		for range q.Leaves {
			r.Leaves = append(r.Leaves, protocol.LimitLease{Length: 3000, Most: 1000, Limit: 1000})
		}
		if x.refreshed != nil {
			x.refreshed(q, r)
		}
		return r
	case *protocol.LimitAcquire:
		return &protocol.LimitAcquireReply{Retry: 2000, BucketEpoch: 1, LeaderEpoch: 1}
	}
	return &protocol.Empty{}
}

// pass drives for some ms.
func (x *workTest) pass(ms int) {
	for range ms {
		x.now += 1e6
		x.drive()
	}
}

// linear reports an error if ten times as much is more than fifteen times the work.
func linear(t *testing.T, what string, work func(n int) uint64) {
	few, many := work(500), work(5_000)
	t.Logf("%s: %d and %d looks", what, few, many)
	if many > 15*few {
		t.Errorf("%s: %d looks for 5,000, %d for 500", what, many, few)
	}
}

// TestWorkIsLinear: limiters are opened and closed, and calls give up, with work that does not grow
// with how many there are.
func TestWorkIsLinear(t *testing.T) {
	open := func(x *workTest, n int) (leaves []*leaf) {
		for i := range n {
			x.now += 1e4
			leaves = append(leaves, x.m.open(x.now, x.p, fmt.Sprintf("api/%d", i)))
			x.drive()
		}
		x.pass(2_000)
		return leaves
	}
	linear(t, "open", func(n int) uint64 {
		x := newWorkTest()
		for _, l := range open(x, n) {
			if l.stale {
				t.Fatalf("%s of %d was not described", l.path, n)
			}
		}
		return x.p.looks
	})
	linear(t, "close", func(n int) uint64 {
		x := newWorkTest()
		leaves := open(x, n)
		before := x.p.looks
		for _, l := range leaves {
			x.now += 1e4
			x.m.release(x.now, l, ErrClosed)
			x.drive()
		}
		if x.pass(2_000); !x.p.forgotten {
			t.Fatalf("%d that were closed are not forgotten", n)
		}
		return x.p.looks - before
	})
	for _, order := range []string{"first to last", "last to first", "any"} {
		linear(t, "give up behind a call of two limits that stays, "+order, func(n int) uint64 {
			x := newWorkTest()
			leaves := open(x, 2)
			x.m.enqueue(x.now, &call{leaves: leaves, amount: 1000})
			var calls []*call
			for range n {
				x.now += 1e4
				c := &call{leaves: leaves[:1], amount: 1000}
				x.m.enqueue(x.now, c)
				calls = append(calls, c)
				x.drive()
			}
			before := x.p.looks
			r := rand.New(rand.NewPCG(1, 2))
			for i := range calls {
				switch order {
				case "last to first":
					i = len(calls) - 1 - i
				case "any":
					k := i + r.IntN(len(calls)-i)
					calls[i], calls[k] = calls[k], calls[i]
				}
				x.now += 1e4
				x.m.cancel(x.now, calls[i], context.Canceled)
				x.drive()
			}
			if c := leaves[0].head(); c == nil || len(c.leaves) != 2 || leaves[0].queue.last.call != c || leaves[0].queued.Load() != 1 {
				t.Fatal("not only the call of two limits is left")
			}
			return x.p.looks - before
		})
	}
}

// TestLeaseIsBelieved: a lease ends for its client at 0.85 of its length from when it was asked
// for, however late the answer came and whatever the server does not answer any more.
func TestLeaseIsBelieved(t *testing.T) {
	x := newWorkTest()
	x.pass(5) // it has joined
	l := x.m.open(x.now, x.p, "api")
	x.p.poked = true
	for len(x.asked) == 0 || x.asked[0].kind != doRefresh {
		x.now += 1e6
		x.m.tick(x.now)
		out, _ := x.m.take()
		for i := range out {
			x.asked = append(x.asked, &out[i])
		}
	}
	sent := x.asked[0].sent
	late := sent + 300e6
	x.m.answered(late, x.asked[0], &protocol.LimitRefreshReply{BucketEpoch: 1, LeaderEpoch: 1, Length: 1000,
		Leaves: []protocol.LimitLease{{Rate: 1_000_000, Burst: 1_000_000, Level: 500_000, Length: 1000, Most: 1_000_000, Limit: 1_000_000}}}, nil)
	if end := sent + 850e6; !l.decide(late, 1000) || !l.decide(end-1, 1000) || l.decide(end, 1000) {
		t.Errorf("a lease of 1 s is not believed for 850 ms: at once %t, before the end %t, at the end %t",
			l.decide(late, 1000), l.decide(end-1, 1000), l.decide(end, 1000))
	}
}

// TestOpenedInARow: limiters that are opened one after the other wait for an answer each, and not
// for the least time between two refreshes.
func TestOpenedInARow(t *testing.T) {
	x := newWorkTest()
	x.pass(100) // it has joined
	began := x.now
	for i := range 100 {
		l := x.m.open(x.now, x.p, fmt.Sprintf("api/%d", i))
		for x.drive(); l.stale; x.pass(1) {
		}
	}
	if took := x.now - began; took > 300e6 {
		t.Errorf("100 limiters are opened in %d ms, with a server that answers within 1 ms", took/1e6)
	}
}

// TestAllLeasesArePresentedFirst: a leader that learns waits for no lease of a session that names
// it. So a session names it when it has presented all leases, also those that do not fit one
// message.
func TestAllLeasesArePresentedFirst(t *testing.T) {
	const leaves = 5*protocol.MaxLimitLeaves/2 + 1
	x := newWorkTest()
	leader, named := uint64(1), false
	presented := map[string]bool{}
	x.refreshed = func(q *protocol.LimitRefresh, r *protocol.LimitRefreshReply) {
		r.LeaderEpoch = leader
		for i := range q.Leaves {
			f := &r.Leaves[i]
			f.Rate, f.Burst, f.Most, f.Statement = 1000, 1000, 1_000_000, []byte{1}
			if leader == 2 && len(q.Leaves[i].Statement) > 0 {
				presented[string(q.Leaves[i].Path)] = true
			}
		}
		if q.LeaderEpoch == 2 && !named {
			if named = true; len(presented) < leaves {
				t.Errorf("the leader is named when it knows of %d leases of %d", len(presented), leaves)
			}
		}
	}
	for i := range leaves {
		l := x.m.open(x.now, x.p, fmt.Sprintf("api/%d", i))
		x.m.enqueue(x.now, &call{leaves: []*leaf{l}, amount: 100_000}) // it waits for as long as the test lasts
	}
	leased := func() (n int) {
		for _, l := range x.p.leaves {
			if l.leased(x.now) {
				n++
			}
		}
		return n
	}
	for range 200 {
		if x.pass(10); leased() == leaves {
			break
		}
	}
	if leased() < leaves {
		t.Fatalf("%d of %d have a lease", leased(), leaves)
	}
	leader = 2
	for range 200 {
		if x.pass(10); named {
			break
		}
	}
	if !named {
		t.Error("the leader is not named at all")
	}
}

// TestOtherTreesRest: a step of one tree looks at no leaf of another one. A client may take part in
// thousands, and asks all of them when it has to look again.
func TestOtherTreesRest(t *testing.T) {
	var m machine
	const now = int64(1e9)
	for i := range 100 {
		p := newPart(fmt.Sprintf("tree%d", i))
		m.parts = append(m.parts, p)
		m.enqueue(now, &call{leaves: []*leaf{m.open(now, p, p.root)}, amount: 1000})
		p.next(now)
	}
	looks := func() (sum uint64) {
		for _, p := range m.parts[1:] {
			sum += p.looks
		}
		return sum
	}
	before := looks()
	for range 100 {
		m.poke(now, m.parts[0].leaves[0])
		for _, p := range m.parts {
			p.next(now)
		}
	}
	if n := looks() - before; n > 0 {
		t.Errorf("100 steps of one tree looked %d times at leaves of others", n)
	}
}

// TestHeldLeaveRoom: the acquires of a program leave most of a connection's window to other requests, at however many
// limits it waits. When one ends another one is sent.
func TestHeldLeaveRoom(t *testing.T) {
	x := newWorkTest()
	x.held = map[uint64]*action{}
	var calls []*call
	for i := range 2_000 {
		l := x.m.open(x.now, x.p, fmt.Sprintf("api/%d", i))
		for range 2 {
			c := &call{leaves: []*leaf{l}, amount: 1000}
			x.m.enqueue(x.now, c)
			calls = append(calls, c)
		}
		x.drive()
	}
	given := 0
	for _, left := range []int{4_000, 3_000, 1_000, 100, 0} {
		for ; len(calls) > left; calls = calls[:len(calls)-1] {
			if c := calls[len(calls)-1]; len(c.asks) > 0 && c.asks[0].open {
				given++
			}
			x.m.cancel(x.now, calls[len(calls)-1], context.Canceled)
		}
		x.pass(1_000)
		if want := min(left, mostHeld); len(x.held) > want || len(x.held) < want/2 {
			t.Errorf("of %d calls that wait %d are held by the server, want %d", left, len(x.held), want)
		}
		if len(x.held) != x.m.wanted || len(x.p.wanted) != x.m.wanted {
			t.Errorf("the server holds %d, and the client wants %d and %d", len(x.held), x.m.wanted, len(x.p.wanted))
		}
	}
	if given == 0 {
		t.Error("nothing was withdrawn")
	}
}
