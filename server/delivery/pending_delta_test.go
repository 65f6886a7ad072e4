package delivery

import (
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestMerge: the merged delta of any changes leads from every state in between to the last one,
// from the state before the first change included.
func TestMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &subscriberModel{t: t, names: []string{"a"}}
		sems := make(map[string]semaphore)
		for range rapid.IntRange(0, 5).Draw(t, "before") {
			s.mutate(sems, 1)
		}
		var p pendingDelta
		states := []map[string]semaphore{maps.Clone(sems)}
		size := 0
		many := rapid.SampledFrom([]int{5, 60}).Draw(t, "at most")
		for i := range rapid.IntRange(1, many).Draw(t, "changes") {
			c := s.mutate(sems, 1)
			size += p.merge(uint64(i), &c.SemaphoreChange)
			states = append(states, maps.Clone(sems))
		}
		changes := p.changes(nil)
		want := 0
		for i := range changes {
			want += changeSize(&changes[i])
		}
		if size != want || p.size != want {
			t.Fatalf("merge counted %d bytes, the delta has %d", size, want)
		}
		for i, state := range states {
			for j := range changes {
				apply(state, "a", &changes[j])
			}
			if !maps.EqualFunc(state, sems, semaphore.equal) {
				t.Fatalf("from state %d: %v, want %v", i, state, sems)
			}
		}
	})
}

// TestMergeDropsOverridden: a recycled pending keeps nothing of its former life.
func TestMergeDropsOverridden(t *testing.T) {
	h := NewWatchHub(1, nil, WatchOptions{})
	n := h.nodeOrNew(1)
	p := h.newPending(n, []byte("a"))
	for id := range uint64(3 * manyOwners) {
		p.merge(1, &protocol.SemaphoreChange{Kind: protocol.ChangeOwnerAdded, Owner: protocol.Owner{OrderID: id}})
	}
	p.merge(2, &protocol.SemaphoreChange{Kind: protocol.ChangeData, Data: []byte("x")})
	h.pending = h.pending[:0]
	h.recycle(p)
	if q := h.newPending(h.nodeOrNew(1), []byte("b")); q != p || len(q.changes(nil)) != 0 || q.size != 0 || q.ownerIndexes != nil {
		t.Fatalf("recycled as %+v", q)
	}
}

// TestMergeManyOwners: all members of a large service restart within one window, a few come and go,
// and then again after the semaphore was made again.
func TestMergeManyOwners(t *testing.T) {
	const members = 1000
	for _, created := range []bool{false, true} {
		var p pendingDelta
		sems := map[string]semaphore{"a": {limit: 1, owners: make(map[uint64]string)}}
		for id := range uint64(members) {
			sems["a"].owners[id] = "old"
		}
		before := map[string]semaphore{"a": sems["a"].clone()}
		step := func(kind protocol.SemaphoreChangeKind, order uint64, data string) {
			c := protocol.SemaphoreChange{Kind: kind, Limit: 1, Owner: protocol.Owner{OrderID: order, Data: []byte(data)}}
			apply(sems, "a", &c)
			p.merge(1, &c)
		}
		order := uint64(members)
		for id := range uint64(members) {
			step(protocol.ChangeOwnerRemoved, id, "")
			step(protocol.ChangeOwnerAdded, order, "starting")
			if id%3 == 0 {
				step(protocol.ChangeOwnerChanged, order, "up")
			}
			if id%10 == 0 {
				step(protocol.ChangeOwnerRemoved, order, "")
			}
			order++
			if created && id == members/2 {
				step(protocol.ChangeDeleted, 0, "")
				step(protocol.ChangeCreated, 0, "")
			}
		}
		changes := p.changes(nil)
		if limit := 2*members + 2; len(changes) > limit {
			t.Errorf("%d changes in the delta, at most %d are needed", len(changes), limit)
		}
		for i := range changes {
			apply(before, "a", &changes[i])
		}
		if !maps.EqualFunc(before, sems, semaphore.equal) {
			t.Errorf("created %v: the delta leads to another state", created)
		}
	}
}
