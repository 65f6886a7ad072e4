package ratelimit

import (
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestNothingIsKept: of participants that come and go, whether they leave or end without a word, a
// leadership that is called when it asks for it keeps nothing.
func TestNothingIsKept(t *testing.T) {
	const sessions = 300
	tree, err := New(1, 0, "api", protocol.LimitConfig{Rate: 1_000_000_000, Lease: 500})
	if err != nil {
		t.Fatal(err)
	}
	l, now, version := NewLeases(Leadership{1, 1}, 1), uint64(10), uint64(1)
	var r Reply
	for session := range uint64(sessions) {
		session++
		now += 7
		if err := tree.Join(now, session, 1, false); err != nil {
			t.Fatal(err)
		}
		version++
		q := Refresh{Session: session, Epoch: 1, Seq: 1,
			Leaves: []LeafRefresh{{Leaf: "api", Demand: 1_000_000, Waiting: session % 2 * 1000}}}
		for range 2 {
			if err := l.Refresh(now, tree, version, &q, &r); err != nil {
				t.Fatal(err)
			}
			q.Seq++
			q.Leadership, q.Leaves[0].Held, q.Leaves[0].Presented = r.Leadership, r.Leaves[0].Lease, true
		}
		if session%3 == 0 { // it gives its lease back
			q.Leaves[0] = LeafRefresh{Leaf: "api", Closed: true}
			if err := l.Refresh(now, tree, version, &q, &r); err != nil {
				t.Fatal(err)
			}
		}
		if session%3 < 2 {
			tree.Leave(now, session)
			version++
		}
	}
	for id := range uint64(sessions) { // the sessions of the others end
		tree.Leave(now, id+1)
	}
	version++
	ticks := 0
	for at, ok := l.Next(); ok && ticks < 1000; at, ok = l.Next() {
		ticks++
		now = max(now, at)
		l.Tick(now, tree, version, func(uint64) {})
	}
	if len(l.members) > 0 || len(l.bySession) > 0 || len(l.nodes[0].holdings) > 0 || l.nodes[0].countedRate > 0 {
		t.Errorf("after %d ticks there are %d members, %d by session, %d holdings with a rate of %d",
			ticks, len(l.members), len(l.bySession), len(l.nodes[0].holdings), l.nodes[0].countedRate)
	}
	if ticks == 1000 {
		t.Error("it asks to be called for ever")
	}
}
