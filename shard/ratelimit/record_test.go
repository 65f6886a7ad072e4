package ratelimit

import (
	"bytes"
	"slices"
	"testing"

	"github.com/signalbox-dev/signalbox/shard/fieldtest"
)

// TestEveryFieldIsKept: each field of a tree, its resources and participants is in the record,
// which snapshots and exports of buckets carry, and comes back from it.
func TestEveryFieldIsKept(t *testing.T) {
	var x *Tree
	law := &fieldtest.Law{
		Derived: map[string]string{"Tree.textBytes": "counted again", "Tree.forgetAt": "found again"},
		Keys:    map[string]bool{"participant.session": true},
		Write:   func() []byte { return x.Append(nil) },
		Read:    func(b []byte) (any, error) { return Decode(b) },
	}
	for seed := range uint64(40) {
		r := newRandomRun(t, seed)
		for range 200 {
			r.step()
		}
		if x = r.tree; x.Deleted() {
			continue
		}
		c, revision, _ := x.Resource("api")
		c.Shadow, c.Floor = true, 7
		if _, err := x.Alter(r.now, "api", revision, c); err != nil {
			t.Fatal(err)
		}
		law.Look(t, x)
	}
	law.Whole(t)
}

// FuzzDecode: whatever the bytes are, what is read keeps the invariants and has exactly this
// record.
func FuzzDecode(f *testing.F) {
	for seed := range uint64(4) {
		r := newRandomRun(f, seed)
		for range 50 {
			r.step()
		}
		f.Add(r.tree.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := Decode(b)
		if err != nil {
			return
		}
		if err := x.Check(); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(x.Append(nil), b) {
			t.Fatal("another record")
		}
		l := NewLeases(Leadership{1, 1}, 1)
		l.Observe(2, x, 1)
		for i, id := range x.Sessions() {
			if i == 3 {
				break
			}
			epoch, _ := x.Joined(id)
			path := x.resources[len(x.resources)-1].path
			q := Refresh{Session: id, Epoch: epoch, Seq: 1, Leaves: []LeafRefresh{{Leaf: path, Demand: 1000}}}
			if err := l.Refresh(3, x, 1, &q, new(Reply)); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Check(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestDeletedTree: a deleted tree stays until leases of it have ended and its bursts have refilled.
// One of its name made meanwhile continues it, with empty buckets.
func TestDeletedTree(t *testing.T) {
	x := newRandomRun(t, 1)
	for len(x.paths) > 0 {
		for i, p := range slices.Clone(x.paths) {
			if x.tree.Delete(x.now, p, 0) == nil {
				x.paths = slices.Delete(x.paths, i, i+1)
				break
			}
		}
	}
	at, ok := x.tree.Next()
	if !x.tree.Deleted() || !ok || at <= x.now+1000 {
		t.Fatalf("deleted %t, goes at %d %t, now %d", x.tree.Deleted(), at, ok, x.now)
	}
	if back, err := Decode(x.tree.Append(nil)); err != nil || !back.Deleted() || back.Forget(at-1) || !back.Forget(at) {
		t.Fatal("the tree does not go when it says", err)
	}
	former := x.tree.Revision()
	if revision, err := x.tree.Create(x.now, former+5, "api", x.config("api")); err != nil || revision != former+6 {
		t.Fatal(revision, err)
	}
	if r := x.tree.resources[0]; !r.again || r.created != x.now {
		t.Fatalf("a new bucket is full: %t; it was made at %d, and the tree at %d", !r.again, r.created, x.now)
	}
}
