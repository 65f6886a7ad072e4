package shard

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// The ordered structures against a sorted slice. Histories are too small to fill them.

func TestTreapIsASortedSlice(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 2))
		which := int(seed % 2)
		var x treap
		var want []*entry
		less := func(a, b *entry) int {
			if which == byOrder {
				return cmp.Compare(a.orderID, b.orderID)
			}
			return bytes.Compare(a.semaphore.name, b.semaphore.name)
		}
		b := &bucket{number: 3}
		for i := range 3000 {
			if r.IntN(5) > 1 {
				id := r.Uint64N(5000)
				if seed%3 == 0 {
					id = uint64(i)
				}
				e := &entry{orderID: id,
					semaphore: &semaphore{bucket: b, name: binary.BigEndian.AppendUint64(nil, id)}}
				at, found := slices.BinarySearchFunc(want, e, less)
				if found {
					continue
				}
				x.insert(e, which)
				want = slices.Insert(want, at, e)
			} else if len(want) > 0 {
				at := r.IntN(len(want))
				if r.IntN(2) == 0 {
					at = 0 // as queues do
				}
				x.remove(want[at], which)
				want = slices.Delete(want, at, at+1)
			}
			var got, back []*entry
			if i%40 == 0 {
				for e := x.first; e != nil; e = next(e, which) {
					got = append(got, e)
				}
				for e := x.last; e != nil; e = previous(e, which) {
					back = append(back, e)
				}
				slices.Reverse(back)
				if !slices.Equal(got, want) || !slices.Equal(back, want) {
					t.Fatalf("seed %d, step %d: %d forwards, %d backwards, want %d",
						seed, i, len(got), len(back), len(want))
				}
			}
			if x.n != len(want) {
				t.Fatalf("seed %d: %d entries, want %d", seed, x.n, len(want))
			}
			after := r.Uint64N(5000)
			var sought *entry
			for _, e := range want {
				if which == byOrder && e.orderID > after || which == byName && e.orderID >= after {
					sought = e
					break
				}
			}
			found := x.seekOrder(after)
			if which == byName {
				found = x.seekName(binary.BigEndian.AppendUint64(nil, after))
			}
			if found != sought {
				t.Fatalf("seed %d, step %d: seek %d finds %v, want %v", seed, i, after, found, sought)
			}
		}
	}
}

// TestDeadlinesFireInOrder holds the order that is part of the log's format: time, then sessions
// before waiters before remote sessions, then id, then bucket.
func TestDeadlinesFireInOrder(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 3))
		var d deadlines
		var all []scheduled
		for i := range 400 {
			n := &node{id: 1}
			switch r.IntN(3) {
			case 0:
				s := newHomeSession()
				s.id, s.node = uint64(i)*7919%1000, n
				all = append(all, s)
			case 1:
				all = append(all, &sessionRecord{id: uint64(i), node: n})
			default:
				all = append(all,
					&entry{waiting: true, orderID: r.Uint64N(50), semaphore: &semaphore{bucket: &bucket{number: uint32(i)}}})
			}
		}
		for range 3000 {
			rec := all[r.IntN(len(all))]
			if r.IntN(3) == 0 {
				d.unschedule(rec)
			} else {
				d.schedule(rec, r.Uint64N(20))
			}
		}
		key := func(rec scheduled) []uint64 {
			kind := uint64(3)
			switch rec.(type) {
			case *homeSession:
				kind = 1
			case *entry:
				kind = 2
			}
			_, id, bucket := rec.deadlineKey()
			return []uint64{rec.timerRef().at, kind, id, uint64(bucket)}
		}
		var want []scheduled
		for _, rec := range all {
			if rec.timerRef().pos > 0 {
				want = append(want, rec)
			}
		}
		slices.SortStableFunc(want, func(a, b scheduled) int { return slices.Compare(key(a), key(b)) })
		for i := range want {
			at, rec := d.first()
			if rec == nil || at != rec.timerRef().at || slices.Compare(key(rec), key(want[i])) != 0 {
				t.Fatalf("seed %d: deadline %d of %d is not the next", seed, i, len(want))
			}
			d.unschedule(rec)
		}
		if _, rec := d.first(); rec != nil {
			t.Fatalf("seed %d: a deadline too many", seed)
		}
	}
}

// TestManyNames walks more semaphores than are kept apart as young, while they come and go.
func TestManyNames(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 4))
	m := New(1)
	var out Events
	var index, seq uint64
	apply := func(ops ...op) {
		index++
		out.Reset()
		m.Apply(index, encode(Header{Format: 1, Seq: index}, ops), &out)
		for _, e := range out.List {
			if e.Kind == EventReply && e.Status != protocol.StatusOK {
				t.Fatal(show(e), e.Text)
			}
		}
	}
	create := [protocol.KeyLen]byte{1}
	apply(op{kind: CmdBuckets, msg: BucketsBody{Total: 8, Count: 8}},
		op{kind: CmdNodePut, msg: NodePutBody{Node: 1, Revision: 1, Config: protocol.DefaultNodeConfig()}},
		op{kind: CmdSessionStart, msg: &protocol.SessionStart{Node: 1, CreateID: create[:], Key: create[:], Timeout: 1000, Nonce: 1}})
	session := out.List[2].Session
	names := map[string]bool{}
	for range 60 {
		var ops []op
		for range 100 {
			seq++
			name := fmt.Sprint(r.IntN(1500))
			h := protocol.Head{Session: session, Seq: seq, Low: seq}
			o := op{kind: CmdCreate, node: 1, epoch: 1, msg: &protocol.Create{Head: h, Name: []byte(name), Limit: 1}}
			if names[name] {
				o.kind, o.msg = CmdDelete, &protocol.Delete{Head: h, Name: []byte(name)}
			}
			names[name] = !names[name]
			ops = append(ops, o)
		}
		apply(ops...)
		prefix := fmt.Sprint(r.IntN(10))
		var want []string
		for name, there := range names {
			if there && name[:1] == prefix {
				want = append(want, name)
			}
		}
		slices.Sort(want)
		for _, m := range []*Machine{m, mustRestore(t, m)} {
			var got []string
			req := protocol.List{Node: 1, Prefix: []byte(prefix), Limit: uint32(1 + r.IntN(50))}
			for range manyPages {
				var page protocol.ListReply
				if err := m.Semaphores().List(&req, &page); err != nil {
					t.Fatal(err)
				}
				for _, it := range page.Semaphores {
					got = append(got, string(it.Name))
				}
				if req.Cursor = page.Cursor; len(req.Cursor) == 0 {
					break
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%d names with %q, want %d", len(got), prefix, len(want))
			}
		}
	}
}

func mustRestore(t *testing.T, m *Machine) *Machine {
	t.Helper()
	other, err := restored(m)
	if err != nil {
		t.Fatal(err)
	}
	if m.Digest() != other.Digest() {
		t.Fatal("restored it is another machine")
	}
	return other
}
