package peerdiscovery

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const seeds = 999

// TestInterleavings: whatever is lost, late or restarted, there is one leader at most at every
// moment; and exactly one in the end, which everybody finds, once messages arrive, if anybody can
// vote.
func TestInterleavings(t *testing.T) {
	for n := 1; n <= 4; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			elected, moved := 0, 0
			for seed := range uint64(seeds) {
				w := newSimulation(t, seed, n)
				w.faults = seed%3 > 0
				for range w.random.IntN(400) {
					w.step()
					if l := w.leaders(); len(l) > 1 {
						t.Fatalf("seed %d: %s and %s both lead", seed, l[0].name, l[1].name)
					}
				}
				if len(w.leaders()) == 1 {
					elected++
				}
				w.faults = false
				for _, x := range w.nodes {
					x.asking = 0
				}
				voters := slices.ContainsFunc(w.nodes, func(x *node) bool { return x.voter })
				for i := 0; !w.done() && i < 20_000 && (voters || i < 2000); i++ {
					w.step()
					if l := w.leaders(); len(l) > 1 {
						t.Fatalf("seed %d: %s and %s both lead", seed, l[0].name, l[1].name)
					}
				}
				l := w.leaders()
				if !voters {
					if len(l) > 0 || w.done() {
						t.Fatalf("seed %d: a leader without voters", seed)
					}
					continue
				}
				if len(l) != 1 || !w.done() {
					t.Fatalf("seed %d: %d leaders in the end; %v", seed, len(l), w.waiting())
				}
				if !l[0].voter {
					t.Fatalf("seed %d: %s leads and cannot vote", seed, l[0].name)
				}
				for _, x := range w.nodes {
					if r, _ := x.machine.Result(); x != l[0] && w.at[r.Leader] != l[0] {
						t.Fatalf("seed %d: %s joins at %q, which is not %s", seed, x.name, r.Leader, l[0].name)
					}
				}
				if l[0] != w.nodes[0] {
					moved++
				}
			}
			// What the test relies on has happened.
			if elected < seeds/10 || elected > seeds*9/10 && n > 2 || moved < seeds/4 && n > 1 {
				t.Errorf("of %d seeds %d had a leader before the end, %d one that is not the first", seeds, elected, moved)
			}
		})
	}
}

func (w *simulation) waiting() (list []string) {
	for _, x := range w.nodes {
		if x.machine != nil {
			list = append(list, x.name+": "+x.machine.Waiting())
		}
	}
	return list
}

// TestIsolation: instances that know of others and reach nobody do not make clusters.
func TestIsolation(t *testing.T) {
	for n := 2; n <= 4; n++ {
		for seed := range uint64(seeds) {
			w := newSimulation(t, seed, n)
			w.isolated = true
			for i, x := range w.nodes {
				x.peers = append(x.peers, w.nodes[(i+1)%n].addresses[0])
			}
			for range 300 {
				w.step()
			}
			if l := w.leaders(); len(l) > 0 {
				t.Fatalf("%d instances, seed %d: %s leads all alone", n, seed, l[0].name)
			}
		}
	}
}

func mustMachine(t *testing.T, id string, voter bool, advertise string, peers ...string) *Machine {
	t.Helper()
	m, err := NewMachine(id, voter, advertise, peers)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestLateResponseIsNoVisit: an answer to a question from before another peer was known does not
// count: its giver does not know of that peer.
func TestLateResponseIsNoVisit(t *testing.T) {
	a := mustMachine(t, "a", true, "a:1", "c:1")
	c := mustMachine(t, "c", false, "c:1", "c:1")
	calls := a.NextCalls()
	answer, err := c.HandleRequest(calls[1].Request, "c:1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.HandleRequest(Request{ID: "b", Voter: true, Peers: []string{"b:1"}}, "a:1"); err != nil {
		t.Fatal(err)
	}
	if err := a.HandleResponse(calls[1], answer); err != nil {
		t.Fatal(err)
	}
	var asked []string
	for _, call := range a.NextCalls() {
		asked = append(asked, call.Address)
	}
	if want := []string{"a:1", "b:1", "c:1"}; !slices.Equal(asked, want) {
		t.Errorf("asks %v, want %v", asked, want)
	}
}

// TestElectedRetriesUntilFinish: until its cluster is on disk, the elected one answers that nothing
// may be concluded.
func TestElectedRetriesUntilFinish(t *testing.T) {
	a := mustMachine(t, "a", true, "a:1")
	call := a.NextCalls()[0]
	answer, _ := a.HandleRequest(call.Request, "a:1")
	if err := a.HandleResponse(call, answer); err != nil {
		t.Fatal(err)
	}
	if r, ok := a.Result(); !ok || !r.Bootstrap {
		t.Fatalf("result %+v %v of one alone", r, ok)
	}
	if got, err := a.HandleRequest(Request{ID: "b"}, "a:1"); err != nil || !got.Retry || got.Leader != "" {
		t.Errorf("answers %+v %v before its cluster is made", got, err)
	}
	a.Finish("a:1")
	if got, err := a.HandleRequest(Request{ID: "b"}, "a:1"); err != nil || got.Leader != "a:1" {
		t.Errorf("answers %+v %v with its cluster made", got, err)
	}
	a.Finish("")
	if got, err := a.HandleRequest(Request{ID: "b"}, "a:1"); err != nil || !got.Retry {
		t.Errorf("answers %+v %v without a leader", got, err)
	}
}

func TestLimits(t *testing.T) {
	if _, err := NewMachine("a", false, "", nil); err == nil {
		t.Error("a machine without any address")
	}
	if _, err := NewMachine("", true, "a:1", nil); err == nil {
		t.Error("a machine without an id")
	}
	m := mustMachine(t, "a", true, "a:1")
	call := m.NextCalls()[0]
	many := make([]string, MaxPeers)
	for i := range many {
		many[i] = fmt.Sprint("host", i, ":1")
	}
	for name, list := range map[string][]string{"empty": {""}, "long": {strings.Repeat("x", MaxAddressLen+1)}, "many": many} {
		if _, err := m.HandleRequest(Request{ID: "b", Peers: list}, "a:1"); err == nil {
			t.Errorf("a question with %s addresses is taken", name)
		}
		if _, err := m.HandleRequest(Request{ID: "b", Votable: list}, "a:1"); err == nil {
			t.Errorf("a question with %s votable addresses is taken", name)
		}
		if err := m.HandleResponse(call, Response{Peers: list}); err == nil {
			t.Errorf("an answer with %s addresses is taken", name)
		}
	}
	if _, err := m.HandleRequest(Request{ID: "b"}, ""); err == nil {
		t.Error("a question to nowhere is taken")
	}
	if err := m.HandleResponse(call, Response{Leader: strings.Repeat("x", MaxAddressLen+1)}); err == nil {
		t.Error("a leader with a long address is taken")
	}
	if got := m.Peers(); !slices.Equal(got, []string{"a:1"}) {
		t.Errorf("what was refused taught %v", got)
	}
}
