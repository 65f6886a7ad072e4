package ratelimit

import (
	"fmt"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// benchLeases has a tree of some leaves with so many participants, each with a lease.
func benchLeases(b testing.TB, leaves, participants int) (*Leases, *Tree, []Refresh) {
	tree, err := New(1, 0, "api", protocol.LimitConfig{Rate: 100_000_000_000})
	for i := 0; i < leaves && err == nil; i++ {
		_, err = tree.Create(1, 0, fmt.Sprintf("api/tenant-%d", i), protocol.LimitConfig{Unlimited: true, Weight: uint32(i%5 + 1)})
	}
	if err != nil {
		b.Fatal(err)
	}
	l := NewLeases(Leadership{1, 1}, 1)
	asks := make([]Refresh, participants)
	for i := range asks {
		q := &asks[i]
		*q = Refresh{Session: uint64(i + 1), Epoch: 1, Leaves: []LeafRefresh{{Leaf: fmt.Sprintf("api/tenant-%d", i%leaves), Demand: uint64(i%1000) * 10_000}}}
		if err := tree.Join(2, q.Session, 1, false); err != nil {
			b.Fatal(err)
		}
	}
	return l, tree, asks
}

// BenchmarkRefresh is a refresh among 10,000 participants that refresh three times in a lease of three
// seconds, with what the leader does between them: shares are computed, and clients are notified.
func BenchmarkRefresh(b *testing.B) {
	for _, leaves := range []int{1, 100} {
		b.Run(fmt.Sprintf("leaves=%d", leaves), func(b *testing.B) {
			l, tree, asks := benchLeases(b, leaves, 10_000)
			var r Reply
			n := uint64(0)
			b.ReportAllocs()
			for b.Loop() {
				q := &asks[n%uint64(len(asks))]
				q.Seq++
				q.Leaves[0].Demand += n % 7 * 1000
				now := 10 + n/10
				if err := l.Refresh(now, tree, 1, q, &r); err != nil {
					b.Fatal(err)
				}
				q.Leadership = r.Leadership
				q.Leaves[0].Held, q.Leaves[0].Presented = r.Leaves[0].Lease, true
				if at, ok := l.Next(); ok && at <= now {
					l.Tick(now, tree, 1, func(uint64) {})
				}
				n++
			}
		})
	}
}

// benchWaiting has so many sessions whose calls of a unit wait at one resource, and one more that takes part.
func benchWaiting(b *testing.B, waiting int, rate uint64) (l *Leases, tree *Tree, acquire func(now, session, used, back uint64)) {
	tree, err := New(1, 0, "api", protocol.LimitConfig{Rate: rate, Burst: 10})
	if err != nil {
		b.Fatal(err)
	}
	l = NewLeases(Leadership{1, 1}, 1)
	seq := uint64(0)
	leaves, demands := []string{"api"}, []uint64{1000}
	acquire = func(now, session, used, back uint64) {
		seq++
		err := l.Acquire(now, tree, 1, &Acquire{Session: session, Epoch: 1, Seq: seq, Used: used, Back: back, Wait: true,
			Leaves: leaves, Demands: demands, Amount: 1000, From: Origin{session, seq}})
		if err != nil {
			b.Fatal(err)
		}
	}
	for i := range uint64(waiting + 1) {
		if err := tree.Join(2, i+1, 1, false); err != nil {
			b.Fatal(err)
		}
	}
	return l, tree, acquire
}

// BenchmarkAcquire is an acquire of a session that gave its last one up, beside others that wait.
func BenchmarkAcquire(b *testing.B) {
	for _, waiting := range []int{10, 1_000, 10_000} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			l, tree, acquire := benchWaiting(b, waiting, 1000)
			const now = 100
			admit := func() { l.Admit(now, tree, 1, func(*Answer) bool { return true }) }
			for i := range waiting {
				acquire(now, uint64(i+1), 0, 0)
			}
			admit()
			if n := l.nodes[0].heap.Len(); n < waiting-1 { // one may have the burst
				b.Fatalf("only %d wait", n)
			}
			b.ReportAllocs()
			for seq := uint64(waiting); b.Loop(); seq++ {
				acquire(now, uint64(waiting+1), 0, seq)
				admit()
			}
		})
	}
}

// BenchmarkAdmission is a call that is admitted, and the next one of its session, among others that wait.
func BenchmarkAdmission(b *testing.B) {
	for _, waiting := range []int{10, 1_000, 10_000} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			l, tree, acquire := benchWaiting(b, waiting, 1_000_000_000)
			now := uint64(100)
			var admitted []Origin
			admit := func() {
				l.Admit(now, tree, 1, func(a *Answer) bool {
					if a.Granted {
						admitted = append(admitted, a.To)
					}
					return true
				})
			}
			for i := range waiting {
				acquire(now, uint64(i+1), 0, 0)
			}
			admit()
			b.ReportAllocs()
			for b.Loop() {
				for ms := 0; len(admitted) == 0; ms++ {
					if ms > 1000 {
						b.Fatal("nobody is admitted for a second")
					}
					now++
					admit()
				}
				last := len(admitted) - 1
				next := admitted[last]
				admitted = admitted[:last]
				acquire(now, next.Conn, next.Request, 0)
				if last == 0 {
					admit()
				}
			}
		})
	}
}

// BenchmarkJoins is 10,000 sessions that join one after the other at 10,000 a second, and refresh.
func BenchmarkJoins(b *testing.B) {
	for b.Loop() {
		l, tree, _ := benchLeases(b, 100, 0)
		var r Reply
		for i := range uint64(10_000) {
			if err := tree.Join(10+i/10, i+1, 1, false); err != nil {
				b.Fatal(err)
			}
			q := Refresh{Session: i + 1, Epoch: 1, Seq: 1, Leaves: []LeafRefresh{{Leaf: fmt.Sprintf("api/tenant-%d", i%100), Demand: 1000}}}
			if err := l.Refresh(10+i/10, tree, i+1, &q, &r); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// TestRefreshDoesNotAllocate: a refresh of a known lease needs no memory.
func TestRefreshDoesNotAllocate(t *testing.T) {
	l, tree, asks := benchLeases(t, 100, 10)
	var r Reply
	now := uint64(10)
	q := &asks[3]
	refresh := func() {
		now += 60
		q.Seq++
		if err := l.Refresh(now, tree, 1, q, &r); err != nil {
			t.Fatal(err)
		}
		q.Leadership = r.Leadership
		q.Leaves[0].Held, q.Leaves[0].Presented = r.Leaves[0].Lease, true
	}
	refresh()
	if n := testing.AllocsPerRun(100, refresh); n > 0 {
		t.Fatalf("%v allocations", n)
	}
}

// BenchmarkForget is a refresh that says that nothing is wanted of earlier acquires any more: a connection was lost.
// The time for each of them does not grow with how many there are.
func BenchmarkForget(b *testing.B) {
	for _, n := range []int{1_000, 30_000} {
		b.Run(fmt.Sprint(n, "-grants"), func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				tree, l := heldTree(b, 1)
				m, err := l.member(tree, 1, 1)
				if err != nil {
					b.Fatal(err)
				}
				holdings := []*holding{l.holdingOf(m, "api")}
				for seq := range n {
					l.lend(m, holdings, uint64(seq+1), 1)
				}
				b.StartTimer()
				if l.forgetBefore(m, uint64(n+1)); len(m.grants) > 0 {
					b.Fatal("not all are forgotten")
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/grant")
		})
	}
}
