package waitgraph

import (
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// graphs is how many random graphs a test looks at; WAITGRAPH_GRAPHS sets another number.
func graphs(t *testing.T, n int) int {
	if text := os.Getenv("WAITGRAPH_GRAPHS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// everybody are the sessions of the world.
func everybody() (list []uint64) {
	for s := uint64(1); s <= worldSessions; s++ {
		list = append(list, s)
	}
	return list
}

// TestDeadlockedIsTheTruth: what is found in a world that stands still is who can never go on.
// Under the policy fair some deadlocks are not seen, and none is seen that is none.
func TestDeadlockedIsTheTruth(t *testing.T) {
	found, unseen := 0, 0
	for seed := range graphs(t, 5_000) {
		w := newWorld(rand.New(rand.NewPCG(uint64(seed), 1)))
		for range 40 {
			w.step()
		}
		g, cut := Read(w, everybody())
		if cut != "" {
			t.Fatalf("seed %d: cut: %s", seed, cut)
		}
		got, want := g.Deadlocked(), w.deadlocked()
		fair := slices.ContainsFunc(w.names, func(n string) bool { return w.sems[n].policy == protocol.PolicyFair })
		switch {
		case slices.Equal(got, want):
			found += min(len(got), 1)
		case fair && !slices.ContainsFunc(got, func(s uint64) bool { return !slices.Contains(want, s) }):
			unseen++
		default:
			t.Fatalf("seed %d: found %v, the truth is %v\n%s", seed, got, want, g.Facts(everybody()))
		}
	}
	t.Logf("%d graphs with deadlocks, %d unseen or seen in part", found, unseen)
	if found == 0 || unseen > found/10 {
		t.Errorf("%d graphs with deadlocks, %d unseen", found, unseen)
	}
}

// TestDeadlockedIsTheLargestSet compares with all sets of sessions, one by one.
func TestDeadlockedIsTheLargestSet(t *testing.T) {
	found := 0
	for seed := range graphs(t, 5_000) {
		w := newWorld(rand.New(rand.NewPCG(uint64(seed), 2)))
		for range 40 {
			w.step()
		}
		g, _ := Read(w, everybody())
		var largest []uint64
		for bits := range 1 << worldSessions {
			set := make(map[uint64]bool)
			for s := uint64(1); s <= worldSessions; s++ {
				if bits>>(s-1)&1 == 1 {
					set[s] = true
				}
			}
			ok := true
			for s := range set {
				ok = ok && len(g.Waits[s]) > 0
				for _, name := range g.Waits[s] {
					ok = ok && g.stuck(name, s, set)
				}
			}
			if ok && len(set) > len(largest) {
				largest = nil
				for s := range set {
					largest = append(largest, s)
				}
			}
		}
		slices.Sort(largest)
		if got := g.Deadlocked(); !slices.Equal(got, largest) {
			t.Fatalf("seed %d: found %v, the largest set is %v", seed, got, largest)
		}
		checkCore(t, g, largest)
		found += min(len(largest), 1)
	}
	if found == 0 {
		t.Error("no deadlocks")
	}
}

// checkCore: the core of a deadlock is one by itself, and all of it block somebody of it.
func checkCore(t *testing.T, g *Graph, all []uint64) {
	t.Helper()
	core := g.Core()
	set, blocks := make(map[uint64]bool), make(map[uint64]bool)
	for _, s := range core {
		set[s] = true
	}
	for _, s := range core {
		for _, name := range g.Waits[s] {
			if !g.stuck(name, s, set) {
				t.Fatalf("session %d of the core %v of %v is not stuck", s, core, all)
			}
			for _, b := range g.Blockers(name, s, core) {
				blocks[b.Session] = true
			}
		}
	}
	if len(blocks) != len(core) || (len(core) == 0) != (len(all) == 0) {
		t.Fatalf("core %v of %v", core, all)
	}
	if path := g.Path(all, core); len(path) != len(core) {
		t.Fatalf("path %v of the core %v", path, core)
	}
}

// changing is a world that goes on between any two reads.
type changing struct {
	*world
	steps int
}

func (c changing) Waits(session uint64) ([]string, error) {
	for range c.r.IntN(c.steps) {
		c.step()
	}
	return c.world.Waits(session)
}

func (c changing) Semaphore(name string) (*Semaphore, error) {
	for range c.r.IntN(c.steps) {
		c.step()
	}
	return c.world.Semaphore(name)
}

// TestNoFalseReport: what two reads of a world that goes on confirm was a deadlock at the end of
// the first one.
func TestNoFalseReport(t *testing.T) {
	confirmed, rejected := 0, 0
	for seed := range graphs(t, 5_000) {
		w := newWorld(rand.New(rand.NewPCG(uint64(seed), 3)))
		for range w.r.IntN(60) {
			w.step()
		}
		c := changing{w, 1 + w.r.IntN(4)}
		from := []uint64{1 + w.r.Uint64N(worldSessions)}
		first, _ := Read(c, from)
		then := w.clone()
		set := first.Core()
		if len(set) == 0 {
			continue
		}
		for range w.r.IntN(6) {
			w.step()
		}
		second, _ := Read(c, from)
		if !Confirmed(first, second) {
			rejected++
			continue
		}
		confirmed++
		truth := then.deadlocked()
		for _, s := range set {
			if !slices.Contains(truth, s) {
				t.Fatalf("seed %d: session %d of %v was not deadlocked; %v were\n%s", seed, s, set, truth, first.Facts(set))
			}
		}
	}
	t.Logf("%d confirmed, %d rejected", confirmed, rejected)
	if confirmed == 0 || rejected == 0 {
		t.Error("the test sees nothing")
	}
}

// TestOwnerOutsideMayRelease: a cycle alone is not a deadlock.
func TestOwnerOutsideMayRelease(t *testing.T) {
	a := &Semaphore{Name: "a", Limit: 2, Owners: []Owner{{Session: 1, Token: 1, Count: 1}, {Session: 3, Token: 2, Count: 1}},
		Waiters: []Waiter{{Session: 2, Place: 3, Count: 1}}}
	b := &Semaphore{Name: "b", Limit: 1, Owners: []Owner{{Session: 2, Token: 1, Count: 1}}, Waiters: []Waiter{{Session: 1, Place: 2, Count: 1}}}
	g := &Graph{Semaphores: map[string]*Semaphore{"a": a, "b": b}, Waits: map[uint64][]string{1: {"b"}, 2: {"a"}, 3: nil}}
	if got := g.Deadlocked(); len(got) != 0 {
		t.Errorf("deadlocked: %v", got)
	}
	a.Waiters[0].Count = 2
	if got := g.Deadlocked(); !slices.Equal(got, []uint64{1, 2}) {
		t.Errorf("with both units: %v", got)
	}
	if got := g.Blockers("a", 2, []uint64{1, 2}); !slices.Equal(got, []Blocker{{1, true, 1}}) {
		t.Errorf("blocked by %v", got)
	}
	a.Limit = 1 // it was lowered: an operator may raise it
	if got := g.Deadlocked(); len(got) != 0 {
		t.Errorf("what can never be granted: %v", got)
	}
}

// chain is a source in which each session waits for the next one, and each semaphore has an owner.
type chain struct{ broken uint64 }

func (c chain) Waits(session uint64) ([]string, error) {
	if session == c.broken {
		return nil, errors.New("no leader")
	}
	return []string{strconv.FormatUint(session, 10)}, nil
}

func (c chain) Semaphore(name string) (*Semaphore, error) {
	n, _ := strconv.ParseUint(name, 10, 64)
	return &Semaphore{Name: name, Limit: 1, Owners: []Owner{{Session: n%100 + 1, Token: n, Count: 1}},
		Waiters: []Waiter{{Session: n, Place: n + 1, Count: 1}}}, nil
}

// TestWhatIsNotReadGoesOn: limits and errors are named, and make no deadlock.
func TestWhatIsNotReadGoesOn(t *testing.T) {
	for cut, src := range map[string]Source{"more than 16 steps": chain{}, "no leader": chain{broken: 5}} {
		g, got := Read(src, []uint64{1})
		if !strings.Contains(got, cut) || len(g.Deadlocked()) != 0 {
			t.Errorf("cut %q, deadlocked %v; want %q", got, g.Deadlocked(), cut)
		}
	}
	var many []uint64
	for s := uint64(1); s <= 100; s++ {
		many = append(many, s)
	}
	if _, got := Read(chain{}, many); !strings.Contains(got, "more than 64 sessions") {
		t.Errorf("cut %q", got)
	}
}
