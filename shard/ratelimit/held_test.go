package ratelimit

import (
	"errors"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// heldTree is a limit of one resource with a session that takes part.
func heldTree(t testing.TB, rate uint64) (*Tree, *Leases) {
	tree, err := New(1000, 0, "api", protocol.LimitConfig{Rate: rate})
	if err != nil {
		t.Fatal(err)
	}
	if err := tree.Join(1000, 1, 1, false); err != nil {
		t.Fatal(err)
	}
	return tree, NewLeases(Leadership{1, 1}, 999)
}

// TestUnitsEndByTheBarrier: units are used until a time that counts from when the leadership was confirmed, however
// late the leader gives them out. Another leader may have begun since, and waits for no more than that.
func TestUnitsEndByTheBarrier(t *testing.T) {
	tree, l := heldTree(t, 5000)
	if err := l.Acquire(1000, tree, 1, &Acquire{Session: 1, Epoch: 1, Seq: 1, Leaves: []string{"api"}, Amount: 1000, Wait: true}); err != nil {
		t.Fatal(err)
	}
	l.Tick(1400, tree, 1, func(uint64) {})
	var until uint64
	l.Admit(1000, tree, 1, func(a *Answer) bool { until = a.Until; return true })
	if until != 1000+protocol.MaxLimitWithin {
		t.Errorf("units that were asked for at 1000 are used until %d", until)
	}
}

// TestHeldIsBounded: a session has so many acquires wait, and one more when one of them is given up. To send one again
// is no further one.
func TestHeldIsBounded(t *testing.T) {
	tree, l := heldTree(t, 1)
	ask := func(q Acquire) error {
		q.Session, q.Epoch, q.Wait = 1, 1, true
		if q.Seq > 0 {
			q.Leaves, q.Amount = []string{"api"}, 1000
		}
		err := l.Acquire(1000, tree, 1, &q)
		l.Admit(1000, tree, 1, func(*Answer) bool { return true })
		return err
	}
	const most = protocol.MaxLimitHeld
	for seq := range uint64(most + 1) { // the first has the burst
		if err := ask(Acquire{Seq: seq + 1}); err != nil {
			t.Fatalf("acquire %d: %v", seq+1, err)
		}
	}
	if err := ask(Acquire{Seq: most + 2}); !errors.Is(err, protocol.StatusOverloaded) {
		t.Errorf("beside %d that wait one more is taken: %v", most, err)
	}
	if err := ask(Acquire{Seq: most}); err != nil {
		t.Errorf("one is sent again: %v", err)
	}
	if err := ask(Acquire{Back: 9}); err != nil {
		t.Fatal(err)
	}
	if err := ask(Acquire{Seq: most + 3}); err != nil {
		t.Errorf("when one was given up: %v", err)
	}
}

// TestGivenUpWaitsNoMore: what is given up does not wait in a description, before its client says so, too.
func TestGivenUpWaitsNoMore(t *testing.T) {
	tree, l := heldTree(t, 1)
	waiting := func() uint64 {
		t.Helper()
		var s protocol.LimitStatus
		if err := l.Describe(1000, tree, 1, &protocol.LimitDescribe{Path: []byte("api"), Sessions: 1}, &s); err != nil {
			t.Fatal(err)
		}
		if a, b := s.Resources[0].Waiting, s.Sessions[0].Waiting; a != b {
			t.Fatalf("%d wait, and of the session %d", a, b)
		}
		return s.Resources[0].Waiting
	}
	for seq := range uint64(4) {
		if err := l.Acquire(1000, tree, 1, &Acquire{Session: 1, Epoch: 1, Seq: seq + 1, Leaves: []string{"api"}, Amount: 1000, Wait: true}); err != nil {
			t.Fatal(err)
		}
	}
	l.Admit(1000, tree, 1, func(*Answer) bool { return true })
	q := Refresh{Session: 1, Epoch: 1, Seq: 5, Leaves: []LeafRefresh{{Leaf: "api", Demand: 1, Waiting: 5000}}}
	if err := l.Refresh(1000, tree, 1, &q, new(Reply)); err != nil {
		t.Fatal(err)
	}
	before := waiting()
	for i, want := range []uint64{4000, 3000} {
		if err := l.Acquire(1000, tree, 1, &Acquire{Session: 1, Epoch: 1, Back: uint64(2 + i)}); err != nil {
			t.Fatal(err)
		}
		if n := waiting(); before != 5000 || n != want {
			t.Errorf("of %d that wait %d are given up, and %d wait", before, 1000*(i+1), n)
		}
	}
}
