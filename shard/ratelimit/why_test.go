package ratelimit

import (
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// whyWorld is a tree whose sessions refresh and ask for units at one time.
type whyWorld struct {
	t       *testing.T
	now     uint64
	tree    *Tree
	leases  *Leases
	seq     uint64
	version uint64
}

// newWhyWorld makes api of 1,000/s with the children a, b and c, with the sessions 1 to 3. They joined long ago.
func newWhyWorld(t *testing.T, children ...protocol.LimitConfig) *whyWorld {
	tree, err := New(1000, 0, "api", protocol.LimitConfig{Rate: 1_000_000})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range children {
		if _, err := tree.Create(1000, 0, "api/"+string(rune('a'+i)), c); err != nil {
			t.Fatal(err)
		}
	}
	for session := range uint64(3) {
		if err := tree.Join(1000, session+1, 1, false); err != nil {
			t.Fatal(err)
		}
	}
	return &whyWorld{t: t, now: 100_000, tree: tree, leases: NewLeases(Leadership{1, 1}, 50_000), version: 1}
}

// refresh has a session ask for a leaf twice: shares are computed with the demand of the first time.
func (x *whyWorld) refresh(session uint64, leaf LeafRefresh) {
	x.t.Helper()
	for range 2 {
		x.now, x.seq = x.now+60, x.seq+1
		q, r := Refresh{Session: session, Epoch: 1, Seq: x.seq, Leadership: Leadership{1, 1}, Leaves: []LeafRefresh{leaf}}, Reply{}
		if err := x.leases.Refresh(x.now, x.tree, x.version, &q, &r); err != nil {
			x.t.Fatal(err)
		}
	}
}

func (x *whyWorld) acquire(session, amount uint64, leaves ...string) {
	x.t.Helper()
	x.seq++
	err := x.leases.Acquire(x.now, x.tree, x.version, &Acquire{Session: session, Epoch: 1, Seq: x.seq, Leaves: leaves, Amount: amount, Wait: true})
	if err != nil {
		x.t.Fatal(err)
	}
	x.leases.Admit(x.now, x.tree, x.version, func(*Answer) bool { return true })
}

func (x *whyWorld) wants(session uint64, path string, why protocol.LimitWhy, at string) protocol.LimitSession {
	x.t.Helper()
	var out protocol.LimitStatus
	q := protocol.LimitDescribe{Path: []byte("api"), Sessions: 10}
	if err := x.leases.Describe(x.now, x.tree, x.version, &q, &out); err != nil {
		x.t.Fatal(err)
	}
	for _, s := range out.Sessions {
		if s.Session == session && string(s.Path) == path {
			if s.Why != why || string(s.At) != at {
				x.t.Errorf("session %d has %d of %q at %s, not %d of %q", session, s.Why, s.At, path, why, at)
			}
			return s
		}
	}
	x.t.Fatalf("session %d is not described at %s", session, path)
	return protocol.LimitSession{}
}

// TestWhy: a description says what holds each session, of five reasons, or that it is silent.
func TestWhy(t *testing.T) {
	none := protocol.LimitConfig{Unlimited: true}
	t.Run("demand", func(t *testing.T) {
		x := newWhyWorld(t, none, none)
		x.refresh(1, LeafRefresh{Leaf: "api/a", Demand: 200_000})
		x.wants(1, "api/a", protocol.LimitDemand, "")
	})
	t.Run("weight", func(t *testing.T) {
		x := newWhyWorld(t, none, none)
		x.refresh(1, LeafRefresh{Leaf: "api/a", Demand: 2_000_000})
		x.refresh(2, LeafRefresh{Leaf: "api/b", Demand: 2_000_000})
		x.refresh(1, LeafRefresh{Leaf: "api/a", Demand: 2_000_000})
		x.wants(1, "api/a", protocol.LimitWeight, "api")
		x.refresh(3, LeafRefresh{Leaf: "api/a", Demand: 2_000_000})
		x.wants(3, "api/a", protocol.LimitWeight, "api")
	})
	t.Run("cap", func(t *testing.T) {
		x := newWhyWorld(t, protocol.LimitConfig{Rate: 100_000}, none)
		x.refresh(1, LeafRefresh{Leaf: "api/a", Demand: 2_000_000})
		x.wants(1, "api/a", protocol.LimitCap, "api/a")
		x = newWhyWorld(t, none, none)
		x.refresh(2, LeafRefresh{Leaf: "api/b", Demand: 2_000_000})
		x.wants(2, "api/b", protocol.LimitCap, "api")
	})
	t.Run("rate 0", func(t *testing.T) {
		x := newWhyWorld(t, protocol.LimitConfig{})
		x.refresh(1, LeafRefresh{Leaf: "api/a", Demand: 2_000_000})
		x.wants(1, "api/a", protocol.LimitCap, "api/a")
	})
	t.Run("burst", func(t *testing.T) {
		x := newWhyWorld(t, protocol.LimitConfig{Unlimited: true, Burst: 100}, none)
		x.refresh(1, LeafRefresh{Leaf: "api/a", Demand: 2_000_000, Need: 90_000})
		x.refresh(2, LeafRefresh{Leaf: "api/b", Demand: 2_000_000})
		x.refresh(1, LeafRefresh{Leaf: "api/a", Demand: 2_000_000, Need: 90_000})
		s := x.wants(1, "api/a", protocol.LimitBurst, "api/a")
		if s.Burst != 180_000 {
			t.Errorf("a burst of %d would do, as the session has half of the rate; it is said to be %d", 180_000, s.Burst)
		}
		if _, err := x.tree.Alter(x.now, "api/a", 0, protocol.LimitConfig{Unlimited: true, Burst: 180}); err != nil {
			t.Fatal(err)
		}
		x.version++
		x.now += 10_000
		x.refresh(2, LeafRefresh{Leaf: "api/b", Demand: 2_000_000})
		x.refresh(1, LeafRefresh{Leaf: "api/a", Demand: 2_000_000, Need: 90_000})
		x.wants(1, "api/a", protocol.LimitWeight, "api")
	})
	t.Run("another resource", func(t *testing.T) {
		x := newWhyWorld(t, none, protocol.LimitConfig{Rate: 2_000})
		x.now += 5_000
		x.acquire(2, 2_000, "api/b")
		x.acquire(1, 1_000, "api/a", "api/b")
		x.now += 60
		x.wants(1, "api/a", protocol.LimitElsewhere, "api/b")
		if s := x.wants(1, "api/b", protocol.LimitCap, "api/b"); s.Lacks == 0 {
			t.Error("the resource that lacks units is the cause, and its session lacks nothing there")
		}
	})
	t.Run("another tree", func(t *testing.T) {
		x := newWhyWorld(t, none)
		x.refresh(1, LeafRefresh{Leaf: "api/a", Demand: 2_000, Elsewhere: true})
		x.wants(1, "api/a", protocol.LimitElsewhere, "")
		x.refresh(1, LeafRefresh{Leaf: "api/a", Demand: 2_000})
		x.wants(1, "api/a", protocol.LimitDemand, "")
	})
	t.Run("silent", func(t *testing.T) {
		x := newWhyWorld(t, none)
		x.refresh(1, LeafRefresh{Leaf: "api/a", Demand: 200_000})
		x.leases.nodes[1].holdings[0].liveUntil = x.now // its lease is counted for longer
		x.wants(1, "api/a", protocol.LimitSilent, "")
	})
	t.Run("learning", func(t *testing.T) {
		x := newWhyWorld(t, none)
		x.leases = NewLeases(Leadership{1, 2}, x.now)
		x.refresh(1, LeafRefresh{Leaf: "api/a", Demand: 200_000})
		x.wants(1, "api/a", protocol.LimitLearning, "")
	})
}
