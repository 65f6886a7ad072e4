package ratelimit

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestNobodyShrinksForWhatIsLent: as long as all have what they ask for, demands that go up and down a
// little ask nobody to refresh.
func TestNobodyShrinksForWhatIsLent(t *testing.T) {
	tree, err := New(1, 0, "api", protocol.LimitConfig{Rate: 2_000_000})
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 4))
	l, now := NewLeases(Leadership{1, 1}, 1), uint64(10)
	asks := make([]Refresh, 100)
	for i := range asks {
		asks[i] = Refresh{Session: uint64(i + 1), Epoch: 1, Leaves: []LeafRefresh{{Leaf: "api"}}}
		if err := tree.Join(now, asks[i].Session, 1, false); err != nil {
			t.Fatal(err)
		}
	}
	var reply Reply
	for round := range 20 {
		notified := 0
		for i := range asks {
			q := &asks[i]
			now += 10
			q.Seq++
			q.Leaves[0].Demand = 11_000 + r.Uint64N(2_000)
			if err := l.Refresh(now, tree, 1, q, &reply); err != nil {
				t.Fatal(err)
			}
			q.Leadership, q.Leaves[0].Held, q.Leaves[0].Presented = reply.Leadership, reply.Leaves[0].Lease, true
			if at, ok := l.Next(); ok && at <= now {
				l.Tick(now, tree, 1, func(uint64) { notified++ })
			}
		}
		if round > 5 && notified > 0 {
			t.Fatalf("round %d: %d sessions are asked to refresh", round, notified)
		}
	}
	if n := l.Unconfirmed(); n > 0 {
		t.Errorf("%d leases are unconfirmed", n)
	}
}

// TestNotifiedAtOnce: a session that confirms that it uses less frees its rate for others at once,
// also if its demand has changed and shares cannot be computed yet.
func TestNotifiedAtOnce(t *testing.T) {
	tree, err := New(1, 0, "api", protocol.LimitConfig{Rate: 1_000_000})
	if err != nil {
		t.Fatal(err)
	}
	l := NewLeases(Leadership{1, 1}, 1)
	asks := make([]Refresh, 2)
	for i := range asks {
		asks[i] = Refresh{Session: uint64(i + 1), Epoch: 1, Leaves: []LeafRefresh{{Leaf: "api"}}}
		if err := tree.Join(2, asks[i].Session, 1, false); err != nil {
			t.Fatal(err)
		}
	}
	refresh := func(now uint64, i int, demand, waiting uint64) (rate uint64) {
		t.Helper()
		q, reply := &asks[i], Reply{}
		q.Seq++
		q.Leaves[0].Demand, q.Leaves[0].Waiting = demand, waiting
		if err := l.Refresh(now, tree, 1, q, &reply); err != nil {
			t.Fatal(err)
		}
		q.Leadership, q.Leaves[0].Held, q.Leaves[0].Presented = reply.Leadership, reply.Leaves[0].Lease, true
		return reply.Leaves[0].Lease.Rate
	}
	notified := func(now uint64) (sessions []uint64) {
		if at, ok := l.Next(); ok && at <= now {
			l.Tick(now, tree, 1, func(s uint64) { sessions = append(sessions, s) })
		}
		return sessions
	}
	refresh(10, 0, 2_000_000, 1)
	refresh(10, 1, 0, 0)
	refresh(70, 0, 2_000_000, 1)
	refresh(200, 1, 0, 1)
	if got := notified(200); !slices.Equal(got, []uint64{1}) {
		t.Fatalf("a session that waits has %v notified", got)
	}
	if rate := refresh(201, 0, 3_000_000, 1); rate != 500_000 {
		t.Fatalf("it shrinks to %d", rate)
	}
	refresh(220, 0, 2_000_000, 1)
	if got := notified(220); !slices.Equal(got, []uint64{2}) {
		t.Fatalf("the confirmation has %v notified", got)
	}
	if rate := refresh(221, 1, 0, 1); rate != 500_000 {
		t.Fatalf("the session that waits gets %d", rate)
	}
}

// TestShortUseIsCounted: a session that opened a leaf, used it and left between two refreshes is
// counted with its last one. Of one that had counted before this leadership only the increase is.
func TestShortUseIsCounted(t *testing.T) {
	for _, x := range []struct {
		of           Leadership
		before, want uint64
	}{{Leadership{}, 0, 7000}, {Leadership{1, 1}, 3000, 7000}} {
		tree, err := New(1, 0, "api", protocol.LimitConfig{Rate: 1_000_000})
		if err != nil {
			t.Fatal(err)
		}
		if err := tree.Join(10, 1, 1, false); err != nil {
			t.Fatal(err)
		}
		l := NewLeases(Leadership{1, 2}, 1)
		q := Refresh{Session: 1, Epoch: 1, Seq: 1, Leadership: x.of,
			Leaves: []LeafRefresh{{Leaf: "api", Allowed: x.before}}}
		var reply Reply
		refresh := func() {
			if err := l.Refresh(10+q.Seq, tree, 1, &q, &reply); err != nil {
				t.Fatal(err)
			}
			q.Seq, q.Leadership = q.Seq+1, reply.Leadership
		}
		refresh()
		q.Leaves[0] = LeafRefresh{Leaf: "api", Closed: true, Allowed: x.before + 7000}
		refresh()
		for u := range l.Usage {
			if u.Allowed != x.want {
				t.Errorf("%d units before: %d are counted", x.before, u.Allowed)
			}
		}
	}
}
