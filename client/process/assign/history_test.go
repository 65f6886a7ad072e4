package assign

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/signalbox-dev/signalbox/client/process"
	"github.com/signalbox-dev/signalbox/server/servertest/seeds"
)

// testPartitions knows for each partition who works on it.
type testPartitions struct {
	t    *testing.T
	at   map[int]*testWorker
	last map[int]uint64 // highest token
}

// testWorker is a worker in a history.
type testWorker struct {
	partitions  *testPartitions
	session     uint64
	order       uint64
	weight      uint32
	lifetime    context.Context
	endLifetime context.CancelFunc
	assigned    assignedPartitions
	ctx         map[int]context.Context
	dead        bool
}

func (s *testWorker) Assigned(ctx context.Context, p Partition) {
	if o := s.partitions.at[p.Number]; o != nil {
		s.partitions.t.Fatalf("partition %d goes to worker %d while %d works on it", p.Number, s.session, o.session)
	}
	if ctx.Err() != nil || p.Token <= s.partitions.last[p.Number] {
		s.partitions.t.Fatalf("partition %d with token %d after %d, context %v", p.Number,
			p.Token, s.partitions.last[p.Number], ctx.Err())
	}
	s.partitions.at[p.Number], s.partitions.last[p.Number], s.ctx[p.Number] = s, p.Token, ctx
}

func (s *testWorker) Revoked(p Partition) {
	if s.dead {
		return // its work stopped with it
	}
	if s.partitions.at[p.Number] != s || s.ctx[p.Number].Err() == nil {
		s.partitions.t.Fatalf("partition %d is revoked from worker %d, which does not have it or may go on",
			p.Number, s.session)
	}
	delete(s.partitions.at, p.Number)
}

// kill ends a worker as a crash does.
func (s *testWorker) kill() {
	s.dead = true
	s.endLifetime()
	for n, o := range s.partitions.at { // each alike: the order does not matter
		if o == s {
			delete(s.partitions.at, n)
		}
	}
}

// TestRandomHistories plays rounds that break off anywhere, among workers that come, leave and
// crash at any moment: no partition is ever worked on by two, and after a round that was let
// through each worker has its share.
func TestRandomHistories(t *testing.T) {
	through, broken, crashes := 0, 0, 0
	for seed := range seeds.Of(t, 300, 300) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		y := &testPartitions{t: t, at: map[int]*testWorker{}, last: map[int]uint64{}}
		n := 1 + rnd.IntN(12)
		var live []*testWorker
		orders, epoch := uint64(0), uint64(0)
		come := func() {
			orders++
			s := &testWorker{partitions: y, session: 100 + orders, order: orders, weight: uint32(rnd.IntN(3)),
				ctx: map[int]context.Context{}}
			s.lifetime, s.endLifetime = context.WithCancel(t.Context())
			s.assigned = assignedPartitions{holder: s, log: slog.New(slog.DiscardHandler), assignments: map[int]*assignment{}}
			live = append(live, s)
		}
		// change has somebody come, leave or crash, which breaks a round off.
		change := func() bool {
			switch k := rnd.IntN(20); {
			case k > 2:
				return false
			case k == 0 && len(live) < 6 || len(live) <= 1:
				come()
			case k == 1: // it leaves
				i := rnd.IntN(len(live))
				live[i].assigned.close()
				live = slices.Delete(live, i, i+1)
			default:
				i := rnd.IntN(len(live))
				live[i].kill()
				live = slices.Delete(live, i, i+1)
				crashes++
			}
			broken++
			return true
		}
		come()
		round := func(change func() bool) bool {
			epoch++
			members := make([]process.Member, len(live))
			for i, s := range live {
				members[i] = process.Member{Session: s.session, Order: s.order, Weight: s.weight}
			}
			in := slices.Clone(live)
			var replies []process.Reply[holdingsReply]
			for _, j := range rnd.Perm(len(in)) {
				replies = append(replies, process.Reply[holdingsReply]{From: in[j].session, Value: holdingsReply{in[j].assigned.list()}})
				if change() {
					return false
				}
			}
			w, err := tableFor(n, members, replies)
			if err != nil {
				t.Fatal(err)
			}
			tab, err := readTable(w.append(nil))
			if err != nil {
				t.Fatal(err)
			}
			for _, j := range rnd.Perm(len(in)) {
				if len(lostPartitions(in[j].assigned.list(), tab.of(in[j].order))) > 0 {
					in[j].assigned.retain(tab.of(in[j].order))
				}
				if change() {
					return false
				}
			}
			disturbed := false // decided: from here on all that live complete, though not all with the table
			for _, j := range rnd.Perm(len(in)) {
				if s := in[j]; !s.dead && !(disturbed && rnd.IntN(2) == 0) {
					s.assigned.retain(tab.of(s.order))
					s.assigned.assign(s.lifetime, tab.of(s.order), epoch)
				}
				disturbed = change() || disturbed
			}
			return !disturbed
		}
		for range 40 {
			if round(change) {
				through++
			}
		}
		if !round(func() bool { return false }) {
			t.Fatal("a round that nobody disturbed is not complete")
		}
		owner := make([]int, n)
		members := make([]member, len(live))
		for p := range owner {
			if y.at[p] == nil {
				t.Fatalf("nobody works on partition %d", p)
			}
			owner[p] = slices.Index(live, y.at[p])
			members[owner[p]].holds = append(members[owner[p]].holds, p)
		}
		for i, s := range live {
			members[i].weight = s.weight
			if !slices.Equal(s.assigned.list(), members[i].holds) {
				t.Fatalf("a worker holds %v, and works on %v", s.assigned.list(), members[i].holds)
			}
		}
		if !fair(owner, members) {
			t.Fatalf("owners %v of %+v", owner, members)
		}
		for _, s := range live {
			s.assigned.close()
		}
		if len(y.at) > 0 {
			t.Fatalf("%d partitions are left", len(y.at))
		}
	}
	t.Logf("%d rounds went through, %d were broken off, %d workers crashed", through, broken, crashes)
	if !seeds.Chosen() && (through < 1000 || broken < 1000 || crashes < 500) {
		t.Error("too little happened to mean anything; want 1000, 1000 and 500 at least")
	}
}

// TestHolderPanics: a partition whose callback panics is held all the same, and the others are not
// hurt.
func TestHolderPanics(t *testing.T) {
	h := assignedPartitions{holder: panicking{}, log: slog.New(slog.DiscardHandler), assignments: map[int]*assignment{}}
	h.assign(t.Context(), []int{1, 2, 3}, 7)
	if l := h.list(); !slices.Equal(l, []int{1, 2, 3}) {
		t.Errorf("holds %v", l)
	}
	h.retain([]int{2})
	if l := h.list(); !slices.Equal(l, []int{2}) {
		t.Errorf("holds %v", l)
	}
	h.close()
	h.assign(t.Context(), []int{1}, 8)
	if l := h.list(); len(l) > 0 {
		t.Errorf("holds %v after its end", l)
	}
}

type panicking struct{}

func (panicking) Assigned(context.Context, Partition) { panic("assigned") }
func (panicking) Revoked(Partition)                   { panic("revoked") }

// exits is a Holder whose methods end their goroutine, as FailNow of a test does.
type exits struct{ assigned, revoked []int }

func (h *exits) Assigned(_ context.Context, p Partition) {
	h.assigned = append(h.assigned, p.Number)
	runtime.Goexit()
}

func (h *exits) Revoked(p Partition) {
	h.revoked = append(h.revoked, p.Number)
	runtime.Goexit()
}

// TestHolderEndsGoroutine: a holder that ends its goroutine is told of each partition all the same, and
// holds none when it is closed.
func TestHolderEndsGoroutine(t *testing.T) {
	t.Parallel()
	h := new(exits)
	a := assignedPartitions{holder: h, log: slog.New(slog.DiscardHandler), assignments: map[int]*assignment{}}
	a.assign(t.Context(), []int{1, 2, 3}, 7)
	a.retain([]int{2})
	a.close()
	if want := []int{1, 3, 2}; !slices.Equal(h.assigned, []int{1, 2, 3}) || !slices.Equal(h.revoked, want) || len(a.list()) != 0 {
		t.Errorf("assigned %v, revoked %v, want %v; it holds %v", h.assigned, h.revoked, want, a.list())
	}
}
