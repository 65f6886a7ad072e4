package peerdiscovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// network carries questions between discoveries in a synctest bubble, where time is not real.
type network struct {
	mu     sync.Mutex
	random *rand.Rand
	at     map[string]*Discovery
	lose   bool // a third of the questions and answers is lost
}

var errLost = errors.New("lost")

func (n *network) Discover(ctx context.Context, address string, q Request) (Response, error) {
	n.mu.Lock()
	d := n.at[address]
	there, back := time.Duration(n.random.IntN(3000))*time.Millisecond, time.Duration(n.random.IntN(100))*time.Millisecond
	lost, mute := n.lose && n.random.IntN(3) == 0, n.lose && n.random.IntN(3) == 0
	n.mu.Unlock()
	if !lost && there%3 > 0 {
		there /= 50
	}
	select {
	case <-time.After(there):
	case <-ctx.Done():
		return Response{}, ctx.Err()
	}
	if lost || d == nil {
		return Response{}, errLost
	}
	a, err := d.Handle(q, address)
	if err != nil || mute {
		return Response{}, errors.Join(err, errLost)
	}
	select {
	case <-time.After(back):
		return a, nil
	case <-ctx.Done():
		return Response{}, ctx.Err()
	}
}

func TestRun(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			n := &network{random: rand.New(rand.NewPCG(seed, 1)), at: map[string]*Discovery{}, lose: seed%2 > 0}
			results := make([]Result, 4)
			var running sync.WaitGroup
			for i := range results {
				own, seed := fmt.Sprintf("%c:1", 'a'+i), "b:1"
				d, err := New(Config{ID: own, Voter: i > 0, Advertise: own, Peers: []string{seed}, Transport: n,
					Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				n.mu.Lock()
				n.at[own] = d
				late := time.Duration(n.random.IntN(10_000)) * time.Millisecond
				n.mu.Unlock()
				running.Go(func() {
					time.Sleep(late)
					r, err := d.Run(t.Context())
					if err != nil {
						t.Error(err)
					}
					if r.Bootstrap {
						time.Sleep(3 * time.Second) // the cluster is being made
						d.Finish(func() string { return own })
					}
					results[i] = r
				})
			}
			running.Wait()
			leader := slices.IndexFunc(results, func(r Result) bool { return r.Bootstrap })
			if leader < 1 {
				t.Fatalf("seed %d: leader %d of %+v", seed, leader, results)
			}
			for i, r := range results {
				if want := (Result{Leader: fmt.Sprintf("%c:1", 'a'+leader)}); i != leader && r != want {
					t.Errorf("seed %d: instance %d has %+v, want %+v", seed, i, r, want)
				}
			}
		})
	}
}

// TestRunEnds: a discovery that finds nobody says why, and ends with its context.
func TestRunEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{random: rand.New(rand.NewPCG(1, 1)), at: map[string]*Discovery{}}
		d, err := New(Config{ID: "a", Voter: true, Advertise: "a:1", Peers: []string{"b:1"}, Transport: n,
			Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		n.at["a:1"] = d
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := d.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		if why := d.Waiting(); !strings.Contains(why, "[b:1]") || d.Alone() {
			t.Errorf("it waits for %q, alone: %t", why, d.Alone())
		}
	})
}

// TestPeersAreSavedBeforeResponse: a response names a peer only after SavePeers has stored it.
func TestPeersAreSavedBeforeResponse(t *testing.T) {
	var kept []string
	fail := errors.New("disk is full")
	d, err := New(Config{ID: "a", Voter: true, Advertise: "a:1", SavePeers: func(peers []string) error {
		if fail == nil {
			kept = peers
		}
		return fail
	}})
	if err != nil {
		t.Fatal(err)
	}
	q := Request{ID: "b", Voter: true, Peers: []string{"b:1"}}
	if _, err := d.Handle(q, "a:1"); err == nil {
		t.Error("answered without keeping")
	}
	fail = nil
	if a, err := d.Handle(q, "a:1"); err != nil || !slices.Equal(kept, []string{"a:1", "b:1"}) || !slices.Equal(a.Peers, kept) {
		t.Errorf("answered %+v %v, kept %v", a, err, kept)
	}
}

// TestFinish: members answer with the leader of the moment.
func TestFinish(t *testing.T) {
	d, err := New(Config{ID: "a", Advertise: "a:1"})
	if err != nil {
		t.Fatal(err)
	}
	leader := ""
	d.Finish(func() string { return leader })
	for _, leader = range []string{"", "b:1", "c:1", ""} {
		if a, err := d.Handle(Request{ID: "x"}, "a:1"); err != nil || a.Leader != leader || a.Retry != (leader == "") {
			t.Errorf("leader %q: answered %+v %v", leader, a, err)
		}
	}
}
