package dial

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/signalbox-dev/signalbox/server/servertest/seeds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errRefused = errors.New("refused")

// network is addresses that answer after some time: the zero value refuses at once.
type network struct {
	answers map[string]answer
	hosts   map[string][]string

	mu        sync.Mutex
	began     time.Time
	tried     []string // with the time at which each attempt began
	running   sync.WaitGroup
	started   int // goroutines
	discarded []string
}

type answer struct {
	after time.Duration
	err   error // nil: a connection
}

func silent() answer { return answer{after: 5 * time.Second, err: errors.New("silent")} }

func (n *network) run(ctx context.Context, addresses ...string) (string, bool, []error) {
	n.began = time.Now()
	r := Race[string]{
		Connect: func(ctx context.Context, to Target) (string, error) {
			n.mu.Lock()
			n.tried = append(n.tried, fmt.Sprintf("%s at %s", to, time.Since(n.began)))
			n.mu.Unlock()
			a, ok := n.answers[to.Dial]
			if !ok {
				return "", errRefused
			}
			select {
			case <-time.After(a.after):
				return to.Dial, a.err
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		},
		Discard: func(c string) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.discarded = append(n.discarded, c)
		},
		Go: func(f func()) bool {
			n.mu.Lock()
			n.started++
			n.mu.Unlock()
			n.running.Go(f)
			return true
		},
	}
	if n.hosts != nil {
		r.Lookup = func(_ context.Context, host string) (list []netip.Addr, err error) {
			for _, a := range n.hosts[host] {
				list = append(list, netip.MustParseAddr(a))
			}
			if list == nil {
				err = fmt.Errorf("no host %s", host)
			}
			return list, err
		}
	}
	return r.Run(ctx, addresses)
}

func TestRace(t *testing.T) {
	for _, x := range []struct {
		name      string
		answers   map[string]answer
		hosts     map[string][]string
		addresses []string
		won       string
		after     time.Duration
		tried     []string
		failed    string
		started   int
	}{
		{"one", map[string]answer{"a": {}}, nil, []string{"a"}, "a", 0, []string{"a at 0s"}, "[]", 0},
		{"the first", map[string]answer{"a": {after: 299 * time.Millisecond}}, nil, []string{"a", "b", "c"},
			"a", 299 * time.Millisecond, []string{"a at 0s"}, "[]", 0},
		{"refused", map[string]answer{"c": {}}, nil, []string{"a", "b", "c"}, "c", 0,
			[]string{"a at 0s", "b at 0s", "c at 0s"}, "[refused refused]", 0},
		{"two of five are silent", map[string]answer{"a": silent(), "b": silent(), "c": {after: 10 * time.Millisecond}}, nil,
			[]string{"a", "b", "c", "d", "e"}, "c", 610 * time.Millisecond,
			[]string{"a at 0s", "b at 300ms", "c at 600ms"}, "[]", 2},
		{"one that failed is followed at once", map[string]answer{"a": silent(), "b": {100 * time.Millisecond, errRefused},
			"c": silent(), "d": {}}, nil, []string{"a", "b", "c", "d"}, "d", 700 * time.Millisecond,
			[]string{"a at 0s", "b at 300ms", "c at 400ms", "d at 700ms"}, "[refused]", 2},
		{"the first after all", map[string]answer{"a": {after: time.Second}, "b": silent()}, nil, []string{"a", "b"},
			"a", time.Second, []string{"a at 0s", "b at 300ms"}, "[]", 1},
		{"all fail", map[string]answer{"a": silent(), "c": silent()}, nil, []string{"a", "b", "c"},
			"", 5300 * time.Millisecond, []string{"a at 0s", "b at 300ms", "c at 300ms"}, "[refused silent silent]", 1},
		{"none", nil, nil, nil, "", 0, nil, "[]", 0},
		{"addresses of a name", map[string]answer{"10.0.0.1:7": silent(), "[fd00::1]:7": silent(), "10.0.0.2:7": {}},
			map[string][]string{"s": {"10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1"}}, []string{"s:7", "1.1.1.1:7"},
			"10.0.0.2:7", 600 * time.Millisecond,
			[]string{"s:7 (10.0.0.1:7) at 0s", "s:7 ([fd00::1]:7) at 300ms", "s:7 (10.0.0.2:7) at 600ms"}, "[]", 2},
		{"a name that is none", map[string]answer{"1.1.1.1:7": {}, "[fe80::1%x]:7": silent()}, map[string][]string{"s": nil},
			[]string{"s:7", "[fe80::1%x]:7", "1.1.1.1:7"}, "1.1.1.1:7", 300 * time.Millisecond,
			[]string{"[fe80::1%x]:7 at 0s", "1.1.1.1:7 at 300ms"}, "[no host s]", 1},
		{"no address", nil, map[string][]string{}, []string{"a", ":7"}, "", 0, []string{"a at 0s", ":7 at 0s"},
			"[refused refused]", 0},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &network{answers: x.answers, hosts: x.hosts}
				won, ok, failed := n.run(t.Context(), x.addresses...)
				if won != x.won || ok != (x.won != "") || fmt.Sprint(failed) != x.failed {
					t.Errorf("got %q, %t, failed %v; want %q, failed %s", won, ok, failed, x.won, x.failed)
				}
				if d := time.Since(n.began); d != x.after {
					t.Errorf("it took %s, want %s", d, x.after)
				}
				synctest.Wait()
				n.running.Wait() // what was overtaken ends at once
				if d := time.Since(n.began); d != x.after || !slices.Equal(n.tried, x.tried) || n.started != x.started {
					t.Errorf("after %s it had tried %q on %d more goroutines, want %q on %d", d, n.tried, n.started, x.tried, x.started)
				}
			})
		})
	}
}

// TestRaceEnds: the end of the context ends the attempts, and what was not tried has no error.
func TestRaceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := errors.New("too late")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 400*time.Millisecond, late)
		defer cancel()
		n := &network{answers: map[string]answer{"a": silent(), "b": silent(), "c": {}}}
		_, ok, failed := n.run(ctx, "a", "b", "c")
		if d := time.Since(n.began); ok || d != 400*time.Millisecond || !slices.Equal(failed, []error{late, late}) {
			t.Errorf("%t after %s, failed %v", ok, d, failed)
		}
		n.running.Wait()
		n.tried = nil
		if _, ok, failed = n.run(ctx, "a", "b"); ok || len(failed) > 0 || len(n.tried) > 0 {
			t.Errorf("with a context that has ended: %t, failed %v, tried %q", ok, failed, n.tried)
		}
	})
}

// TestOvertaken: a connection that does not heed its context in time is discarded.
func TestOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var discarded []string
		var running sync.WaitGroup
		r := Race[string]{
			Connect: func(_ context.Context, to Target) (string, error) {
				if to.Dial == "b" {
					time.Sleep(time.Second)
				} else {
					time.Sleep(500 * time.Millisecond)
				}
				return to.Dial, nil
			},
			Discard: func(c string) { discarded = append(discarded, c) },
			Go: func(f func()) bool {
				running.Go(f)
				return true
			},
		}
		if won, ok, failed := r.Run(t.Context(), []string{"a", "b"}); won != "a" || !ok || failed != nil {
			t.Errorf("got %q, %t, %v", won, ok, failed)
		}
		running.Wait()
		if !slices.Equal(discarded, []string{"b"}) {
			t.Errorf("discarded %q", discarded)
		}
	})
}

// TestRandomRaces: the winner is the one that a list of all moments finds.
func TestRandomRaces(t *testing.T) {
	for seed := range seeds.Of(t, 300, 300) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 7))
			n := &network{answers: map[string]answer{}}
			var addresses []string
			for i := range 1 + random.IntN(6) {
				a := string(rune('a' + i))
				addresses = append(addresses, a)
				// Odd times, so that no two things happen in one moment.
				x := answer{after: time.Duration(random.IntN(2000))*time.Millisecond + time.Duration(1+i)*time.Microsecond}
				if random.IntN(3) > 0 {
					x.err = errRefused
				}
				n.answers[a] = x
			}
			won, _, _ := n.run(t.Context(), addresses...)
			took := time.Since(n.began)
			wantWon, wantTook := naive(addresses, n.answers)
			if won != wantWon || took != wantTook {
				t.Errorf("%q after %s, want %q after %s", won, took, wantWon, wantTook)
			}
			n.running.Wait()
		})
	}
}

// naive finds the outcome of a race from one moment to the next.
func naive(addresses []string, answers map[string]answer) (string, time.Duration) {
	ends := map[string]time.Duration{}
	now, next := time.Duration(0), time.Duration(0)
	for {
		if len(addresses) > 0 && now == next {
			ends[addresses[0]], addresses = now+answers[addresses[0]].after, addresses[1:]
			next = now + Stagger
		}
		first := ""
		for a, at := range ends {
			if first == "" || at < ends[first] {
				first = a
			}
		}
		switch {
		case first == "":
			return "", now
		case len(addresses) > 0 && next < ends[first]:
			now = next
			continue
		}
		now = ends[first]
		if answers[first].err == nil {
			return first, now
		}
		delete(ends, first)
		next = now
	}
}
