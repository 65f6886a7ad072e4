package loadgen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
)

// TestScenarios runs each scenario against a real server, a few hundred operations in a closed
// loop, and looks at what must be true whatever the machine does.
func TestScenarios(t *testing.T) {
	for _, tc := range []struct {
		name   string
		cfg    Config
		series map[string]uint64 // exact numbers of values
	}{
		{"lock-pairs", Config{Callers: 16, Keys: 100, Skew: 1, Operations: 300, DataSize: 10}, map[string]uint64{"pair": 300}},
		{"lock-pairs", Config{Callers: 8, Connections: Each, Operations: 100}, map[string]uint64{"pair": 100}},
		{"lock-pairs", Config{Callers: 8, Sessions: 2, Connections: 2, Operations: 100}, map[string]uint64{"pair": 100}},
		{"contended-lock", Config{Callers: 8, Operations: 200}, map[string]uint64{"pair": 200}},
		{"semaphore", Config{Callers: 8, Limit: 3, Keys: 2, Operations: 200}, map[string]uint64{"pair": 200}},
		{"describe-strict", Config{Callers: 8, Keys: 20, DataSize: 100, Operations: 200}, map[string]uint64{"describe": 200}},
		{"describe-relaxed", Config{Callers: 8, Keys: 20, Skew: 0.99, Operations: 200}, map[string]uint64{"describe": 200}},
		{"watch-stream", Config{Watchers: 40, Operations: 20}, map[string]uint64{"round": 20, "seen": 20 * 40, "seen-by-all": 20}},
		{"watch-stream", Config{Callers: 3, Watchers: 10, Operations: 30, DataSize: 500}, map[string]uint64{"round": 30, "seen": 100, "seen-by-all": 30}},
		{"session-storm", Config{Callers: 8, Operations: 100}, map[string]uint64{"session": 100, "start": 100, "stop": 100}},
		{"session-storm", Config{Callers: 8, Connections: Each, Operations: 50, Deadline: time.Minute}, map[string]uint64{"session": 50, "start": 50, "stop": 50}},
		{"discovery", Config{Sessions: 20, Keys: 2, Watchers: 10, Rate: 1000, Operations: 40}, map[string]uint64{"restart": 40}},
		{"discovery", Config{Sessions: 20, Keys: 2, Watchers: 10, Rate: 1000, Operations: 20}, map[string]uint64{"restart": 20, "joined": 20 * 5, "left": 20 * 5}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.cfg.Scenario, _ = Find(tc.name)
			tgt := target(t)
			tgt.SessionEach = tc.name == "session-storm" && tc.cfg.Connections == Each
			tc.cfg.Target = tgt
			r, err := Run(t.Context(), tc.cfg)
			if err != nil {
				t.Fatal(err)
			}
			if r.Operations != tc.cfg.Operations || len(r.Errors) != 0 {
				t.Errorf("%d operations and errors %v, want %d and none", r.Operations, r.Errors, tc.cfg.Operations)
			}
			for _, s := range r.Series {
				if want, ok := tc.series[s.Name]; ok && s.Count != want {
					t.Errorf("series %s has %d values, want %d", s.Name, s.Count, want)
				}
				if s.Count > 0 && !(s.MinUS > 0 && s.MinUS <= s.P50US && s.P50US <= s.P99US && s.P99US <= s.MaxUS) {
					t.Errorf("series %s is out of order: %+v", s.Name, s)
				}
			}
			if r.Rate <= 0 {
				t.Errorf("rate %v, want more", r.Rate)
			}
			sum := uint32(0)
			for _, n := range r.Throughput.Operations {
				sum += n
			}
			if uint64(sum) != r.Operations {
				t.Errorf("the throughput over time adds up to %d operations of %d", sum, r.Operations)
			}
			if err := errors.Join(r.WriteTable(io.Discard), r.WriteJSON(io.Discard, true)); err != nil {
				t.Error(err)
			}
		})
	}
	nothingLeft(t)
}

// defaultNode is where loads make their names.
func defaultNode(t *testing.T) *client.Node {
	t.Helper()
	c, err := client.Dial(t.Context(), testServer().Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	n, err := c.Node(t.Context(), "/default")
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// nothingLeft: loads remove the names they made, and their sessions. A shard learns a moment later
// that a session which held something there has ended at its home.
func nothingLeft(t *testing.T) {
	t.Helper()
	n := defaultNode(t)
	var left []string
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		left = left[:0]
		for s, err := range n.List(t.Context(), "load/") {
			if err != nil {
				t.Fatal(err)
			}
			left = append(left, s.Name)
		}
		for s, err := range admin.OfNode(n).Sessions(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			left = append(left, fmt.Sprint("session ", s.ID))
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("left behind: %q", left)
		}
	}
}

// TestWatchersWithoutSessions: where a target can watch without a session, only what changes values
// and registers has one, by the server's own list.
func TestWatchersWithoutSessions(t *testing.T) {
	n := defaultNode(t)
	for _, tc := range []struct {
		scenario        string
		connections     int
		sessions, conns int
	}{
		{"watch-stream", 4, 2, 4},
		{"watch-stream", Each, 2, 10 + 2},
		{"discovery", 4, 5, 4},
	} {
		s, _ := Find(tc.scenario)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		seen := 0
		cfg := Config{Scenario: s, Target: target(t), Callers: 2, Connections: tc.connections, Watchers: 10, Duration: time.Hour}
		if tc.scenario == "discovery" {
			cfg.Sessions, cfg.Rate = 5, 1000
		}
		cfg.Progress = func(p Progress) {
			if p.Operations == 0 || ctx.Err() != nil {
				return
			}
			for _, err := range admin.OfNode(n).Sessions(t.Context()) {
				if err != nil {
					t.Error(err)
				}
				seen++
			}
			cancel()
		}
		r, err := Run(ctx, cfg)
		if err != nil {
			t.Fatal(err)
		}
		// Members of discovery that restart may have none, or the former one as well.
		most, least := tc.sessions, tc.sessions
		if tc.scenario == "discovery" {
			most, least = most+cfg.Callers, least-cfg.Callers
		}
		if seen > most || seen < least {
			t.Errorf("%s on %d connections: the server has %d sessions, want %d", tc.scenario, tc.connections, seen, tc.sessions)
		}
		if r.Sessions != tc.sessions || r.Connections != tc.conns {
			t.Errorf("%s on %d connections had %d sessions on %d connections, want %d on %d", tc.scenario, tc.connections,
				r.Sessions, r.Connections, tc.sessions, tc.conns)
		}
		nothingLeft(t)
	}
}

// TestNamesOfLostSessions: what sessions made that are lost meanwhile is removed by the others.
func TestNamesOfLostSessions(t *testing.T) {
	kept := &keeper{}
	names := []string{"a", "b", "c", "d"}
	deleteNames(t.Context(), []CanStore{&keeper{lost: true}, kept}, names)
	if slices.Sort(kept.deleted); !slices.Equal(kept.deleted, names) {
		t.Errorf("deleted %v, want %v", kept.deleted, names)
	}
}

type keeper struct {
	CanStore
	lost    bool
	mu      sync.Mutex
	deleted []string
}

func (k *keeper) Delete(_ context.Context, name string) error {
	if k.lost {
		return client.ErrSessionExpired
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.deleted = append(k.deleted, name)
	return nil
}

func TestHandOffs(t *testing.T) {
	s, _ := Find("contended-lock")
	r, err := Run(t.Context(), Config{Scenario: s, Target: target(t), Callers: 8, Operations: 200})
	if err != nil {
		t.Fatal(err)
	}
	// The first grant is nobody's hand-off, nor are those at the end, when callers have gone and
	// the last finds the lock free.
	if h := r.Series[0]; h.Name != "handoff" || h.Count < 150 || h.Count > 199 || h.MaxUS > r.Series[1].MaxUS {
		t.Errorf("hand-offs are %+v beside %+v", h, r.Series[1])
	}
}

func TestMixed(t *testing.T) {
	s := newMixed([]mixedPart{
		{scenario: lockPairs, weight: 3, keys: 50}, {scenario: contendedLock, weight: 1}, {scenario: watchStream, weight: 0.5},
	})
	r, err := Run(t.Context(), Config{Scenario: s, Target: target(t), Callers: 8, Watchers: 16, Operations: 400, Seed: 1, Deadline: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]uint64{}
	for _, x := range r.Series {
		got[x.Name] = x.Count
	}
	if got["operation"] != 400 || got["lock-pairs.pair"]+got["contended-lock.pair"]+got["watch-stream.round"] != 400 {
		t.Errorf("parts do not add up: %v; errors are %v", got, r.Errors)
	}
	if p, h, w := got["lock-pairs.pair"], got["contended-lock.pair"], got["watch-stream.round"]; p <= h || h <= w || w == 0 {
		t.Errorf("weights 3, 1 and 0.5 gave %d, %d and %d operations", p, h, w)
	}
	if got["watch-stream.seen"] != 2*got["watch-stream.round"] {
		t.Errorf("2 watchers for each of 8 names saw %d changes of %d", got["watch-stream.seen"], got["watch-stream.round"])
	}
	if r.Sessions != 8+8+4 || r.Connections != 4 {
		t.Errorf("%d sessions on %d connections, want 20 on 4", r.Sessions, r.Connections)
	}
	nothingLeft(t)
}

func TestIdleSessions(t *testing.T) {
	s, _ := Find("idle-sessions")
	r, err := Run(t.Context(), Config{Scenario: s, Target: target(t), Sessions: 50, Connections: Each,
		Duration: 50 * time.Millisecond, Metrics: testServer().AdminAddr()})
	if err != nil {
		t.Fatal(err)
	}
	if r.Sessions != 50 || r.Connections != 50 || r.Series[0].Count != 50 || len(r.Errors) != 0 || r.Operations != 0 {
		t.Errorf("not what was asked for: %+v", r)
	}
	if r.Server == nil || r.Server.Memory == 0 || r.Server.MemoryBefore == 0 {
		t.Errorf("the server's cost is missing: %+v", r.Server)
	}
	nothingLeft(t)
}

// TestOpenLoopKeepsItsRate: an open loop does exactly the operations that its rate and duration ask
// for.
func TestOpenLoopKeepsItsRate(t *testing.T) {
	s, _ := Find("lock-pairs")
	r, err := Run(t.Context(), Config{Scenario: s, Target: target(t), Callers: 8, Rate: 500, Duration: 400 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if r.Operations != 200 || r.Loop != "open" || r.Series[1].Name != "from-actual-start" || r.Series[1].Count != 200 {
		t.Errorf("%d operations, %+v", r.Operations, r.Series)
	}
}

func TestInterrupted(t *testing.T) {
	s, _ := Find("lock-pairs")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cfg := Config{Scenario: s, Target: target(t), Callers: 4, Duration: time.Hour, Progress: func(p Progress) {
		if p.Operations > 0 {
			cancel()
		}
	}}
	r, err := Run(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Interrupted || r.Operations == 0 || len(r.Errors) != 0 {
		t.Errorf("interrupted is %v after %d operations with errors %v", r.Interrupted, r.Operations, r.Errors)
	}
	nothingLeft(t)
}

func TestRefused(t *testing.T) {
	pairs, _ := Find("lock-pairs")
	stream, _ := Find("watch-stream")
	idle, _ := Find("idle-sessions")
	down := &Signalbox{Client: client.Config{Endpoints: []string{"127.0.0.1:1"}}}
	some := func(change func(*Config)) Config {
		c := Config{Scenario: pairs, Target: &Noop{}, Operations: 1}
		change(&c)
		return c
	}
	for _, tc := range []struct {
		cfg  Config
		says string
	}{
		{Config{}, "needs a scenario"},
		{some(func(c *Config) { c.Operations = 0 }), "never ends"},
		{some(func(c *Config) { c.Callers = -1 }), "callers is -1"},
		{some(func(c *Config) { c.Connections = -2 }), "connections is -2"},
		{some(func(c *Config) { c.Skew = 11 }), "skew is 11"},
		{some(func(c *Config) { c.Rate = 1e9 }), "rate is"},
		{some(func(c *Config) { c.DataSize = 1<<20 + 1 }), "data size is"},
		{some(func(c *Config) { c.Callers, c.Keys = 10, 5 }), "10 callers need at least as many keys"},
		{some(func(c *Config) { c.Deadline = -time.Second }), "deadline is -1"},
		{some(func(c *Config) { c.Scenario, c.Callers, c.Watchers = stream, 10, 5 }), "5 watchers are too few for 10 names"},
		{some(func(c *Config) { c.Scenario, c.Keys = stream, 5 }), "each caller changes one name"},
		{some(func(c *Config) { c.Scenario = idle }), "give a duration"},
		{some(func(c *Config) { c.Metrics = "127.0.0.1:1" }), "ask the admin endpoint"},
		{some(func(c *Config) { c.Target = peer{} }), "cannot lock"},
	} {
		r, err := Run(t.Context(), tc.cfg)
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("got %v and error %v, want one that says %q", r, err, tc.says)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := Run(ctx, Config{Scenario: pairs, Target: down, Operations: 1}); !errors.Is(err, client.ErrUnreachable) {
		t.Errorf("a target that is down gives %v", err)
	}
	if _, err := Find("lock-pair"); err == nil || !strings.Contains(err.Error(), "choose one of lock-pairs, ") {
		t.Errorf("an unknown scenario gives %v", err)
	}
}

// peer is a target whose sessions can do nothing.
type peer struct{}

func (peer) Name() string                             { return "a peer" }
func (peer) Code(error) string                        { return "other" }
func (peer) Open(context.Context) (Conn, error)       { return peer{}, nil }
func (peer) Session(context.Context) (Session, error) { return peerSession{}, nil }
func (peer) Close() error                             { return nil }

type peerSession struct{}

func (peerSession) Close(context.Context) error { return nil }
