package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os/signal"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/discovery"
)

// largeServiceSize is how large the service is, and for how long it changes.
type largeServiceSize struct {
	members, watchers, processes, copies int
	slow, busy                           time.Duration
	changes                              float64 // a second, in the second load
	pairs                                string  // of others, a second
}

// TestLargeService: watchers in processes of their own, each with a client, follow one service.
// They all begin at once, a member changes each second, members restart, and the instance that
// leads most is killed. No change fails, all watchers go on after the kill, and copies of the list
// in the SDK equal the server's at the end. The log has when watchers see a change, and what others
// notice.
func TestLargeService(t *testing.T) {
	size := sizeOf(t,
		largeServiceSize{members: 120, watchers: 32, processes: 2, copies: 2, slow: 4 * time.Second, busy: 4 * time.Second, changes: 17, pairs: "50"},
		largeServiceSize{members: 5000, watchers: 2000, processes: 2, copies: 50, slow: time.Minute, busy: 3 * time.Minute, changes: 17, pairs: "1000"})
	c := newCluster(t)
	c.startThree()
	clients := openClients(t, 8, c.endpoints()...)
	members := make([]*serviceMember, size.members)
	inParallel(t, len(members), func(ctx context.Context, i int) error {
		members[i] = &serviceMember{client: clients[i%len(clients)], addr: fmt.Sprintf("10.0.%d.%d:80", i>>8, i&255)}
		return members[i].join(ctx, 0)
	})

	began := now()
	w := serviceWatchers{t: t, want: size.watchers}
	for range size.processes {
		text, err := json.Marshal(serviceWatchersSpec{Endpoints: c.endpoints(), Count: size.watchers / size.processes})
		if err != nil {
			t.Fatal(err)
		}
		a := startActor(t, "", "watchers", "watchers", serviceWatchersEnv+"="+string(text))
		t.Cleanup(func() { _ = a.cmd.Process.Kill(); <-a.ended; _ = a.cmd.Wait() })
		w.list = append(w.list, a)
	}
	w.await("to begin", func(s *watcherStats) int { return s.Begun })
	t.Logf("%d watchers have the list of %d members after %v", size.watchers, size.members, now()-began)
	var copies []*discovery.Endpoints
	for _, cl := range openClients(t, size.copies, c.endpoints()...) {
		e, err := discovery.Watch(cl, client.DefaultNode, "api")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.Close)
		copies = append(copies, e)
	}

	for i, load := range []struct {
		what   string
		length time.Duration
		every  time.Duration
		change func(m *serviceMember, phase int) error
	}{
		{"one change a second", size.slow, time.Second,
			func(m *serviceMember, phase int) error { return m.update(t.Context(), phase) }},
		{"members restart", size.busy, time.Duration(2 * float64(time.Second) / size.changes), // leaving and joining are two changes
			func(m *serviceMember, phase int) error { return m.restart(t.Context(), phase) }},
	} {
		phase := i + 1
		others := make(chan error, 1)
		go func() {
			r, err := measureLoad(c.bin, c.endpoints(), "lock-pairs", "--rate", size.pairs, "--callers", "256", "--warm-up", "1s",
				"--duration", (load.length - time.Second).String())
			if err == nil {
				t.Logf("%s: others' pairs: %v", load.what, r)
			}
			others <- err
		}()
		var changing sync.WaitGroup
		for range int(load.length / load.every) {
			time.Sleep(load.every)
			m := members[rand.IntN(len(members))]
			changing.Go(func() {
				if err := load.change(m, phase); err != nil {
					t.Errorf("%s: %v", load.what, err)
				}
			})
		}
		changing.Wait()
		if err := <-others; err != nil {
			t.Error(err)
		}
		w.await("to see a change: "+load.what, func(s *watcherStats) int { return s.currentIn(phase) })
		w.awaitReports()
		s := w.stats()
		t.Logf("%s: seen by watchers, p50 %.1f ms, p99 %.1f ms", load.what, s.quantile(0.5), s.quantile(0.99))
	}

	status := c.awaitReady("before the leader is killed", c.names()...)
	victim := c.instances[busiest(&status)]
	killed := now()
	victim.kill()
	w.await("to see a change after the leader was killed", func(s *watcherStats) int {
		m := members[rand.IntN(len(members))]
		if err := m.update(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		return s.currentIn(3)
	})
	t.Logf("leader killed: all watchers have seen a later change after %v", now()-killed)
	victim.start()
	c.awaitReady("after the leader was killed", c.names()...)

	node, err := clients[0].Node(t.Context(), client.DefaultNode)
	if err != nil {
		t.Fatal(err)
	}
	list, err := node.Service("api").List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]uint64{}
	for _, m := range list {
		e, err := discovery.ParseEndpoint(m.Data)
		if err != nil {
			t.Fatal(err)
		}
		want[e.Addr] = m.Token
	}
	if len(want) != size.members {
		t.Errorf("the server lists %d members; %d are registered", len(want), size.members)
	}
	w.awaitTrue("copies to equal the server's list", func() bool {
		return !slices.ContainsFunc(copies, func(e *discovery.Endpoints) bool {
			v, got := e.View(), map[string]uint64{}
			for _, x := range v.All {
				got[x.Addr] = x.Token
			}
			return !v.Live || !maps.Equal(got, want)
		})
	})
}

// serviceMember is a place in the service.
type serviceMember struct {
	client  *client.Client
	addr    string
	mu      sync.Mutex // of a change
	session *client.Session
	in      *client.Lease
}

// data says when it was made, and in which phase of the test: watchers look for that.
func (m *serviceMember) data(phase int) ([]byte, error) {
	e := discovery.Endpoint{Addr: m.addr, Meta: map[string]string{"at": strconv.FormatInt(int64(now()), 10), "phase": strconv.Itoa(phase)}}
	return e.Data()
}

func (m *serviceMember) join(ctx context.Context, phase int) error {
	data, err := m.data(phase)
	if err != nil {
		return err
	}
	if m.session, err = m.client.Session(ctx, client.DefaultNode); err == nil {
		m.in, err = m.session.Service("api").Register(ctx, data)
	}
	return err
}

func (m *serviceMember) update(ctx context.Context, phase int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	data, err := m.data(phase)
	if err != nil {
		return err
	}
	return m.in.UpdateData(ctx, data)
}

func (m *serviceMember) restart(ctx context.Context, phase int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.session.Close(ctx); err != nil {
		return err
	}
	return m.join(ctx, phase)
}

// serviceWatchers are all processes of watchers.
type serviceWatchers struct {
	t    *testing.T
	list []*actor
	want int
}

// stats adds up what the processes reported last.
func (w *serviceWatchers) stats() *watcherStats {
	sum := &watcherStats{Delays: map[int]int{}}
	for _, a := range w.list {
		var s watcherStats
		r, ok := a.last("stats")
		if !ok || json.Unmarshal([]byte(r.Text), &s) != nil {
			continue
		}
		sum.Begun += s.Begun
		if s.Phase > sum.Phase {
			sum.Phase, sum.Current = s.Phase, 0
			clear(sum.Delays)
		}
		if s.Phase < sum.Phase {
			continue // this process has seen nothing of the newest phase
		}
		sum.Current += s.Current
		for k, n := range s.Delays {
			sum.Delays[k] += n
		}
	}
	return sum
}

// await waits until as many watchers as there are have something.
func (w *serviceWatchers) await(what string, count func(s *watcherStats) int) {
	w.t.Helper()
	w.awaitTrue("watchers "+what, func() bool { return count(w.stats()) == w.want })
}

// awaitReports waits until each process has reported what its watchers had seen when it was called.
func (w *serviceWatchers) awaitReports() {
	w.t.Helper()
	before := make(map[*actor]int)
	for _, a := range w.list {
		before[a] = a.count("stats")
	}
	w.awaitTrue("reports", func() bool { // a first one may have been on its way
		return !slices.ContainsFunc(w.list, func(a *actor) bool { return a.count("stats") < before[a]+2 })
	})
}

// awaitTrue waits longer than others do: thousands of watchers share two cores with their servers.
func (w *serviceWatchers) awaitTrue(what string, holds func() bool) {
	w.t.Helper()
	for began := now(); !holds(); time.Sleep(50 * time.Millisecond) {
		for _, a := range w.list {
			if a.isOver() {
				w.t.Fatalf("watchers ended: %s", &a.errors)
			}
		}
		if now()-began > 5*waitLimit {
			w.t.Fatalf("waited in vain for %s: %+v", what, w.stats())
		}
	}
}

// serviceWatchersEnv tells the test binary to watch the service: a serviceWatchersSpec.
const serviceWatchersEnv = "SIGNALBOX_CHAOS_SERVICE_WATCHERS"

type serviceWatchersSpec struct {
	Endpoints []string
	Count     int
}

// watcherStats is what the watchers of a process have seen.
type watcherStats struct {
	Begun   int         // watchers that have, or once had, the whole list
	Phase   int         // of the newest change
	Current int         // watchers that have seen a change of it
	Delays  map[int]int // of its changes: how many by step of delayBase

	sync.Mutex `json:"-"`
}

// delayBase makes the steps of delays: each is 3 % longer than the one before, from a microsecond
// on.
const delayBase = 1.03

// currentIn returns how many watchers have seen a change of a phase, if none is newer.
func (s *watcherStats) currentIn(phase int) int {
	if s.Phase != phase {
		return 0
	}
	return s.Current
}

// quantile returns the delay in milliseconds that so large a part did not exceed.
func (s *watcherStats) quantile(part float64) float64 {
	total, seen := 0, 0
	for _, n := range s.Delays {
		total += n
	}
	for _, k := range slices.Sorted(maps.Keys(s.Delays)) {
		if seen += s.Delays[k]; float64(seen) >= part*float64(total) {
			return math.Pow(delayBase, float64(k)) / 1e3
		}
	}
	return 0
}

// runServiceWatchers is the main function of a process of watchers, each with a client. It reports
// what they saw five times a second.
func runServiceWatchers(text string) int {
	var spec serviceWatchersSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		say(report{Event: "failed", Text: err.Error()})
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s := &watcherStats{Delays: map[int]int{}}
	for range spec.Count {
		go func() {
			w := serviceWatcher{stats: s}
			for ctx.Err() == nil {
				if err := w.follow(ctx, spec.Endpoints); err != nil {
					say(report{Event: "interrupted", Text: err.Error()})
				}
				time.Sleep(100 * time.Millisecond)
			}
		}()
	}
	for ctx.Err() == nil {
		time.Sleep(200 * time.Millisecond)
		s.Lock()
		line, err := json.Marshal(s)
		s.Unlock()
		if err == nil {
			say(report{Event: "stats", Text: string(line)})
		}
	}
	return 0
}

// serviceWatcher is one watcher.
type serviceWatcher struct {
	stats *watcherStats
	begun bool
	phase int // of the newest change that it saw
}

func (w *serviceWatcher) follow(ctx context.Context, endpoints []string) error {
	c, err := client.Open(ctx, client.Config{Endpoints: endpoints})
	if err != nil {
		return err
	}
	defer c.Close()
	node, err := c.Node(ctx, client.DefaultNode)
	if err != nil {
		return err
	}
	for ev, err := range node.Service("api").Watch(ctx) {
		switch {
		case err != nil:
			return err
		case ev.Kind == client.MemberSnapshot:
			w.hasList()
		case ev.Kind != client.MemberRemoved:
			if e, err := discovery.ParseEndpoint(ev.Member.Data); err == nil {
				at, _ := strconv.ParseInt(e.Meta["at"], 10, 64)
				phase, _ := strconv.Atoi(e.Meta["phase"])
				w.saw(phase, now()-time.Duration(at))
			}
		}
	}
	return nil
}

func (w *serviceWatcher) hasList() {
	w.stats.Lock()
	defer w.stats.Unlock()
	if !w.begun {
		w.begun = true
		w.stats.Begun++
	}
}

// saw notes a change that was made in a phase. Late changes of an older phase do not count.
func (w *serviceWatcher) saw(phase int, delay time.Duration) {
	s := w.stats
	s.Lock()
	defer s.Unlock()
	if phase < s.Phase {
		return
	}
	if phase > s.Phase {
		s.Phase, s.Current = phase, 0
		clear(s.Delays)
	}
	if phase > w.phase {
		w.phase = phase
		s.Current++
	}
	s.Delays[int(math.Log(max(1, float64(delay.Microseconds())))/math.Log(delayBase))]++
}
