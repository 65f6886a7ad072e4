package shard

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestTreapDepth: entries that come in order, as they do, make no chain.
func TestTreapDepth(t *testing.T) {
	b := &bucket{number: 3}
	s := &semaphore{bucket: b}
	var tree treap
	for i := range uint64(100_000) {
		tree.insert(&entry{orderID: i + 1, semaphore: s}, byOrder)
	}
	deepest := 0
	for e := tree.first; e != nil; e = next(e, byOrder) {
		depth := 0
		for p := e; p != nil; p = p.links[byOrder].parent {
			depth++
		}
		deepest = max(deepest, depth)
	}
	if deepest > 64 {
		t.Errorf("depth is %d", deepest)
	}
}

func TestAnswers(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	var a answers
	want := map[uint64]uint64{}
	low := uint64(1)
	for step := range uint64(50_000) {
		seq := low + r.Uint64N(40)
		a.add(answer{seq: seq, value: step})
		want[seq] = step
		if r.IntN(10) == 0 {
			low += r.Uint64N(30)
			a.forget(low)
			for seq := range want {
				if seq < low {
					delete(want, seq)
				}
			}
		}
		probe := low + r.Uint64N(50)
		got := a.find(probe)
		value, ok := want[probe]
		if ok != (got != nil) || ok && got.value != value || a.len() != len(want) {
			t.Fatalf("step %d: answer to %d differs, %d answers of %d", step, probe, a.len(), len(want))
		}
	}
}

// TestShare holds the rule for quotas that shards check by themselves.
func TestShare(t *testing.T) {
	m := New(1)
	m.buckets = make([]bucket, 4096)
	for _, c := range []struct{ active, quota, want uint64 }{
		{4096, 1_000_000, 1_000_000},
		{1024, 1_000_000, 252_004},
		{1024, 10, 10},
		{1024, 100, 49},
		{1, 1_000_000, 309},
		{4095, math.MaxUint64, 18_442_240_491_259_953_024},
		{1024, 0, 0},
	} {
		m.copyCount = c.active
		if got := m.quotaShare(c.quota); got != c.want {
			t.Errorf("%d of 4096 buckets, quota %d: %d, want %d", c.active, c.quota, got, c.want)
		}
	}
	for _, v := range []uint64{0, 1, 2, 3, 4, 8, 9, 1<<32 - 1, 1 << 32, math.MaxUint64} {
		if r := integerRoot(v); r > math.MaxUint32 || r*r > v || r < math.MaxUint32 && (r+1)*(r+1) <= v {
			t.Errorf("root of %d is %d", v, r)
		}
	}
}

func TestBatchCodec(t *testing.T) {
	h := Header{Format: 1, Epoch: 3<<16 | 2, Seq: 9, LogTime: 1 << 40, Wall: 1 << 41}
	c := Command{Kind: CmdAcquire, Node: 5, Epoch: 6, Sender: "addr", Body: []byte("body")}
	entry := AppendCommand(AppendHeader(nil, h), c)
	got, rest, err := ReadHeader(entry)
	if err != nil || got != h {
		t.Fatal(got, err)
	}
	back, rest, err := ReadCommand(rest)
	if err != nil || len(rest) != 0 || back.Kind != c.Kind || back.Node != 5 || back.Epoch != 6 ||
		back.Sender != "addr" || string(back.Body) != "body" {
		t.Fatal(back, rest, err)
	}
	for cut := range entry {
		m := New(1)
		var out Events
		m.Apply(7, entry[:cut], &out)
		if len(out.List) > 0 && out.List[0].Kind != EventRefused || m.AppliedIndex() != 7 || m.LogTime() != 0 {
			t.Fatalf("entry cut at %d: %v", cut, out.List)
		}
	}
	m := New(1)
	var out Events
	m.Apply(1, []byte{FormatVersion + 1, 1, 2, 3}, &out)
	if len(out.List) != 1 || out.List[0].Kind != EventUnknownFormat {
		t.Fatal(out.List)
	}
	if _, _, err := ReadHeader([]byte{9}); err != ErrFormat {
		t.Fatal(err)
	}
}

// TestManyEntries: a session with very many entries ends over several Applies, in the order of
// names, and everything is gone at the end.
func TestManyEntries(t *testing.T) {
	const n = 25_000
	x := newBenchMachine(2)
	for i := 0; i < n; {
		x.begin()
		for range 500 {
			x.acquire(0, fmt.Appendf(nil, "lock/%06d", i), true)
			i++
		}
		x.commit()
	}
	x.begin()
	m := protocol.SessionStop{Session: x.sessions[0], Epoch: 1}
	x.body = protocol.AppendBody(x.body[:0], &m)
	x.command(CmdSessionStop)
	x.commit()
	applies := 1
	for {
		if err := x.m.Check(); err != nil {
			t.Fatal(err)
		}
		if at, ok := x.m.NextDeadline(); !ok || at != x.m.LogTime() {
			break
		}
		x.begin()
		x.commit()
		applies++
	}
	if x.m.nodes[1].semaphoreCount != 0 || x.m.sessions.Len() != 1 || applies != 3 {
		t.Errorf("%d semaphores, %d sessions left after %d applies",
			x.m.nodes[1].semaphoreCount, x.m.sessions.Len(), applies)
	}
}

// TestManyExpiries: sessions that are due at once expire a bounded number at a time, and all count
// as gone from the first on.
func TestManyExpiries(t *testing.T) {
	const n = 3_500
	x := newBenchMachine(n)
	var d DetachBody
	for _, id := range x.sessions {
		d.Sessions = append(d.Sessions, DetachItem{Session: id, Epoch: 1, LastContact: x.now})
	}
	x.begin()
	x.entry = AppendCommand(x.entry, Command{Kind: CmdDetach, Body: AppendDetach(nil, d)})
	x.commit()
	x.now += 10_001
	for _, want := range []int{1000, 1000, 1000, 500, 0} {
		x.begin()
		x.commit()
		got := 0
		for _, e := range x.out.List {
			if e.Kind == EventSessionEnded {
				got++
			}
		}
		if got != want {
			t.Fatalf("%d sessions expired in one Apply, want %d", got, want)
		}
		for _, id := range x.sessions {
			if _, ok := x.m.Sessions().Home(id); ok {
				t.Fatalf("session %x is overdue and still there", id)
			}
		}
	}
}
