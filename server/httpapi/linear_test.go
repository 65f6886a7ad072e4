package httpapi

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server/servertest"
)

var seedFlag = flag.Uint64("seed", 0, "of the random tests; 0: another one each time")

// random is the source of a random test, whose failure says how it is run again alone.
func random(t *testing.T) *rand.Rand {
	seed := cmp.Or(*seedFlag, rand.Uint64())
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("again: go test ./server/httpapi -run '^%s$' -seed %d", t.Name(), seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}

// states is the history of one name, as its callers saw it. The states of a name have numbers that
// rise: a configuration its versions; a lock twice the token while it is held, and one more when it is
// free again.
type states struct {
	mu     sync.Mutex
	writes []interval // ended is zero for one whose outcome is unknown
	reads  []interval
}

// interval is a write of a state, or a read that has shown it.
type interval struct {
	number       int64 // 0: of a read of a lock, that it is free
	data         string
	began, ended time.Time
	what         string
}

func (s *states) wrote(w interval) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes = append(s.writes, w)
}

func (s *states) read(r interval) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads = append(s.reads, r)
}

// check says which reads no order of the operations explains: one that shows a state from before one
// that was acknowledged, or read, before it began; and one of a state that nobody had begun to write.
func (s *states) check(lock bool) (faults []string) {
	reads := slices.SortedFunc(slices.Values(s.reads), func(a, b interval) int { return a.ended.Compare(b.ended) })
	for i, r := range reads {
		floor, by := int64(1), "the beginning"
		seen := func(x interval, what string) {
			if !x.ended.IsZero() && x.ended.Before(r.began) && x.number > floor {
				floor, by = x.number, fmt.Sprintf("%s that %s %s before", what, x.what, r.began.Sub(x.ended))
			}
		}
		for _, w := range s.writes {
			seen(w, "a write")
		}
		for _, before := range reads[:i] {
			seen(before, "a read")
		}
		number, possible := r.number, false
		if number == 0 && floor == 1 {
			number, possible = 1, true // it was never held
		}
		for _, w := range s.writes {
			switch {
			case !w.began.Before(r.ended):
			case lock && r.number == 0:
				if w.number%2 == 1 && w.number >= floor && (number == 0 || w.number < number) { // the earliest that it can be
					number, possible = w.number, true
				}
			case lock && w.number == r.number, !lock && w.data == r.data && (w.number == r.number || w.ended.IsZero()):
				possible = true
			}
		}
		switch reads[i].number = number; {
		case !possible:
			faults = append(faults, fmt.Sprintf("%s shows %d %q, which nobody had written; before was %d", r.what, r.number, r.data, floor))
		case number < floor:
			faults = append(faults, fmt.Sprintf("%s shows %d, and %d was there by %s", r.what, number, floor, by))
		}
	}
	return faults
}

// TestHistoryCheck: the check of histories finds what cannot be, and nothing else.
func TestHistoryCheck(t *testing.T) {
	t.Parallel()
	at := func(n int) time.Time { return time.Unix(int64(n), 0) }
	one := func(number int64, began, ended int) interval {
		return interval{number, fmt.Sprint(number), at(began), at(ended), "it"}
	}
	for _, c := range []struct {
		what          string
		lock          bool
		writes, reads []interval
		faults        int
	}{
		{"in order", false, []interval{one(2, 0, 1), one(3, 4, 5)}, []interval{one(2, 2, 3), one(3, 6, 7)}, 0},
		{"at once", false, []interval{one(2, 0, 1), one(3, 2, 5)}, []interval{one(2, 3, 4), one(3, 3, 4)}, 0},
		{"older than a write", false, []interval{one(2, 0, 1), one(3, 2, 3)}, []interval{one(2, 4, 5)}, 1},
		{"older than a read", false, []interval{one(2, 0, 1), one(3, 2, 9)}, []interval{one(3, 3, 4), one(2, 5, 6)}, 1},
		{"from the future", false, []interval{one(2, 0, 1), one(3, 5, 6)}, []interval{one(3, 2, 3)}, 1},
		{"free between", true, []interval{one(4, 0, 1), one(5, 2, 3), one(6, 4, 9)}, []interval{one(0, 3, 5), one(6, 6, 7)}, 0},
		{"free while held", true, []interval{one(4, 0, 1), one(5, 6, 7)}, []interval{one(0, 2, 3)}, 1},
		{"held after the release", true, []interval{one(4, 0, 1), one(5, 2, 3)}, []interval{one(4, 4, 5)}, 1},
		{"free at first", true, []interval{one(4, 3, 4)}, []interval{one(0, 1, 2)}, 0},
	} {
		h := states{writes: c.writes, reads: c.reads}
		if faults := h.check(c.lock); len(faults) != c.faults {
			t.Errorf("%s: %q", c.what, faults)
		}
	}
}

// lateConn is a connection whose bytes take a random time.
type lateConn struct{ net.Conn }

func (c lateConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if rand.N(4) == 0 {
		time.Sleep(rand.N(30 * time.Millisecond))
	}
	return n, err
}

// meetChanges has long polls begin while the one change is made that they are for: each is answered
// with it.
func meetChanges(t *testing.T, rng *rand.Rand, sites []*site, rounds int) {
	const path = "/v1/config/quiet"
	put := func(s *site, data string) int64 {
		a, err := again(func() (*answer, error) { return s.ask("PUT", path, "", data), nil }, (*answer).answered)
		if err != nil {
			t.Fatal(err)
		}
		return a.wants(200).number("version")
	}
	version := put(sites[0], "")
	for round := range rounds {
		known := fmt.Sprintf(`If-None-Match: "%d"`, version)
		var all sync.WaitGroup
		for i := range 6 {
			late := time.Duration(rng.Int64N(int64(10 * time.Millisecond)))
			all.Go(func() {
				time.Sleep(late)
				a, err := again(func() (*answer, error) {
					return sites[i%2].try(t.Context(), "GET", path+"?wait=30s", "", "", known)
				}, func(a *answer) bool { return a.status != 503 })
				if err != nil {
					t.Error(err)
				} else if a.status != 200 {
					t.Errorf("a long poll is answered %d, and has slept through a change", a.status)
				}
			})
		}
		time.Sleep(time.Duration(rng.Int64N(int64(10 * time.Millisecond))))
		version = put(sites[rng.IntN(2)], fmt.Sprint(round))
		if all.Wait(); t.Failed() {
			return
		}
	}
}

// TestReadsAreLinear: strict and conditional reads and long polls, through two gateways with slow links
// that break at times, show no state from before one that was acknowledged or read before they began,
// and none that nobody wrote; and no long poll sleeps through a change.
func TestReadsAreLinear(t *testing.T) {
	t.Parallel()
	rng := random(t)
	cluster := servertest.StartCluster(t, 3, servertest.RealTime())
	var sites []*site
	for i := range 2 {
		sites = append(sites, openSite(t, cluster.Instance(i), func(cfg *Config) {
			cfg.Client.Dial = func(ctx context.Context, address string) (net.Conn, error) {
				c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
				if err != nil {
					return nil, err
				}
				return lateConn{c}, nil
			}
		}))
	}
	rounds := sized(25, 50, 300)
	var writing, reading sync.WaitGroup
	written := make(chan struct{})
	histories := []*states{{}, {}}
	sources := make(chan *rand.Rand, 100)
	for range 100 {
		sources <- rand.New(rand.NewPCG(rng.Uint64(), 0))
	}
	ask := func(r *rand.Rand, method, path, session, body string, header ...string) *answer {
		a, err := sites[r.IntN(2)].try(t.Context(), method, path, session, body, header...)
		if err != nil {
			t.Error(err)
			return &answer{status: 599}
		}
		return a
	}
	// shown notes what an answer shows, under its ETag, which is of one state.
	var mu sync.Mutex
	tags := []map[string]string{{}, {}}
	shown := func(i int, a *answer, x interval) (tag string) {
		if a.status == 404 {
			return ""
		}
		tag = a.header.Get("ETag")
		if i == 0 {
			x.data = string(a.body)
			x.number, _ = strconv.ParseInt(strings.Trim(tag, `"`), 10, 64)
		} else if owners := a.doc["owners"].([]any); len(owners) > 0 {
			token, _ := strconv.ParseInt(fmt.Sprint(owners[0].(map[string]any)["token"]), 10, 64)
			x.number = 2 * token
		}
		histories[i].read(x)
		mu.Lock()
		defer mu.Unlock()
		state := fmt.Sprintf("%d %s", x.number, x.data)
		if before, ok := tags[i][tag]; ok && before != state {
			t.Errorf("the ETag %s is of %q and of %q", tag, before, state)
		}
		tags[i][tag] = state
		return tag
	}
	for w := range 3 { // writers
		writing.Go(func() {
			r := <-sources
			for n := range rounds {
				x := interval{data: fmt.Sprintf("%d-%d", w, n), began: time.Now(), what: "a PUT"}
				if a := ask(r, "PUT", "/v1/config/flags", "", x.data); a.status == 200 {
					x.ended, x.number = time.Now(), a.number("version")
				}
				histories[0].wrote(x)
				// What is read at once, at the other gateway too, is what was written, or newer.
				x = interval{began: time.Now(), what: "a long poll that knows nothing"}
				a := ask(r, "GET", "/v1/config/flags?wait=1m", "", "", `If-None-Match: "none"`)
				if x.ended = time.Now(); a.status == 200 {
					shown(0, a, x)
				}
				if r.IntN(10) == 0 {
					cluster.Instance(r.IntN(3)).DropConnections()
					sites[0].checkServer(cluster.Addrs()[0])
				}
			}
		})
		writing.Go(func() {
			r := <-sources
			for n := range rounds {
				// A gateway that could not take a session over in time leaves it its ttl: the check of
				// the server's sessions waits for longer.
				session := fmt.Sprintf("writer-%d-%d", w, n)
				x := interval{began: time.Now(), what: "a grant"}
				a, err := again(func() (*answer, error) {
					return ask(r, "POST", "/v1/locks/lock?ttl=1m&wait=1m", session, ""), nil
				}, func(a *answer) bool { return a.status != 202 && a.status != 503 && a.status != 504 })
				if err != nil || a.status != 200 {
					t.Errorf("answered %d %s: %v", a.status, a.body, err)
					return
				}
				token := a.number("token")
				x.ended, x.number = time.Now(), 2*token
				histories[1].wrote(x)
				x = interval{began: time.Now(), number: 2*token + 1, what: "a release"}
				path := fmt.Sprintf("/v1/locks/lock?token=%d", token)
				if _, err := again(func() (*answer, error) { return ask(r, "DELETE", path, session, ""), nil },
					func(a *answer) bool { return a.status != 503 && a.status != 504 }); err != nil {
					t.Error(err)
					return
				}
				x.ended = time.Now()
				histories[1].wrote(x)
				_ = ask(r, "DELETE", "/v1/session", session, "")
			}
		})
	}
	for i, path := range []string{"/v1/config/flags", "/v1/locks/lock"} {
		for reader := range 6 {
			reading.Go(func() {
				r, tag := <-sources, ""
				for over := false; !over; {
					select {
					case <-written:
						over = true
					default:
					}
					x := interval{began: time.Now(), what: "a read"}
					query, header := "?consistency=strict", []string(nil)
					polls := reader%2 == 0 && tag != "" && !over
					if tag != "" && r.IntN(2) == 0 || polls {
						query, header = "", []string{"If-None-Match: " + tag}
					}
					if polls {
						x.what, query = "a long poll", "?wait=1m"
						if r.IntN(2) == 0 { // it knows nothing of now, and is answered with what is there
							header = []string{`If-None-Match: "none"`}
						}
					}
					a := ask(r, "GET", path+query, "", "", header...)
					x.ended = time.Now()
					switch a.status {
					case 200, 404:
						tag = shown(i, a, x)
					case 304:
						mu.Lock()
						number, data, _ := strings.Cut(tags[i][tag], " ")
						mu.Unlock()
						x.number, _ = strconv.ParseInt(number, 10, 64)
						x.data = data
						histories[i].read(x)
						histories[i].mu.Lock()
						for _, w := range histories[i].writes {
							if polls && w.began.After(x.began) && !w.ended.IsZero() && x.ended.Sub(w.ended) > 20*time.Second {
								t.Errorf("a long poll has slept through %d, which was written %s before", w.number, x.ended.Sub(w.ended))
							}
						}
						histories[i].mu.Unlock()
					case 503, 504:
					default:
						t.Errorf("answered %d %s", a.status, a.body)
						return
					}
				}
			})
		}
	}
	writing.Wait()
	close(written)
	meetChanges(t, rng, sites, rounds)
	last := interval{began: time.Now(), what: "the last change"} // it ends the long polls
	last.number = sites[0].until("version", "PUT", "/v1/config/flags", "").number("version")
	histories[0].wrote(last)
	held := interval{began: time.Now(), what: "the last grant"}
	held.number = 2 * sites[0].until("token", "POST", "/v1/locks/lock?ttl=1m", alice).number("token")
	histories[1].wrote(held)
	reading.Wait()
	for i, h := range histories {
		faults := h.check(i == 1)
		for _, f := range faults[:min(5, len(faults))] {
			t.Error(f)
		}
		t.Logf("%d writes, %d reads", len(h.writes), len(h.reads))
	}
}

// TestPollAtCutReplica: a gateway that reaches only a leader which is cut off from its followers answers no
// long poll from before a change that their new leader has made. The servers' clock stands still, so that
// the replica takes itself for fresh.
func TestPollAtCutReplica(t *testing.T) {
	t.Parallel()
	cluster := servertest.StartCluster(t, 3, servertest.Shards(1))
	alone := cluster.Leader(cluster.Shards()[0])
	there, healed := cluster.Addrs()[alone], new(atomic.Bool)
	cut := openSite(t, cluster.Instance(alone), func(cfg *Config) {
		cfg.Client.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			if address != there && !healed.Load() {
				return nil, fmt.Errorf("%s cannot be reached", address)
			}
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}
	})
	others := openSite(t, cluster.Instance((alone+1)%cluster.Size()))
	poll := func() *answer { return cut.ask("GET", "/v1/config/flags?wait=1m", "", "", `If-None-Match: "none"`) }
	others.ask("PUT", "/v1/config/flags", "", "before").wants(200)
	if a := poll(); string(a.wants(200).body) != "before" {
		t.Fatalf("before the cut: %s", a.body)
	}
	cluster.Isolate(alone)
	others.ask("PUT", "/v1/config/flags", "", "after").wants(200)
	a, err := cut.try(t.Context(), "GET", "/v1/config/flags?wait=1m", "", "", `If-None-Match: "none"`)
	if err != nil || a.answered() && string(a.body) != "after" {
		t.Errorf("behind the cut a long poll is answered %d %s: %v", a.status, a.body, err)
	}
	healed.Store(true)
	cluster.HealAll()
	if a := poll(); string(a.wants(200).body) != "after" {
		t.Errorf("when the cut is healed: %s", a.body)
	}
}
