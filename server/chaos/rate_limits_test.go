package chaos

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/client/ratelimit"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// limitSizes is how large the test of rate limits is.
type limitSizes struct {
	processes, sessions int           // that take what they can get
	rate                float64       // of the limit that they share
	every               time.Duration // between two calls of a session
	lease, burst        time.Duration
	steady              int // sessions of the other limit
}

// TestRateLimits: many sessions share a limit of two leaves, in processes of their own. The leader
// of its shard is killed while some are cut off, its bucket moves to another shard, clients are
// stopped for longer than a lease and continued, and some are killed and started again. In no window
// is more admitted than the limit allows, of the root or of a leaf. Sessions that share another
// limit keep their rates meanwhile.
func TestRateLimits(t *testing.T) {
	form.SkipUntil(t, form.Full, "46 sessions in processes, whose leases end")
	size := limitSizes{processes: 4, sessions: 10, rate: 1500, every: 5 * time.Millisecond,
		lease: 2 * time.Second, burst: 100 * time.Millisecond, steady: 6}
	if form.Is(form.Long) {
		size = limitSizes{processes: 10, sessions: 100, rate: 15_000, every: 40 * time.Millisecond,
			lease: 2 * time.Second, burst: 500 * time.Millisecond, steady: 20}
	}
	c := newCluster(t, "--shards", "2")
	c.startThree()
	c.makeNode()
	x := &limitTest{cluster: c, size: size, bounds: map[string]limitBound{}}
	x.prepare()
	x.startClients()

	// The leader is killed while some clients are cut off, and use their leases. The next one has to
	// wait for the ends of those before it gives more to others.
	s := c.awaitReady("before the leader is killed", c.names()...)
	victim := c.instances[s.Shards[1].Master]
	for _, a := range x.takers[:size.processes/2] {
		_ = a.cmd.Process.Signal(syscall.SIGUSR1)
		x.awaitReports(a, "cut off", 1)
	}
	x.mark("clients are cut off, and a leader is killed")
	victim.kill()
	for _, a := range x.takers[:size.processes/2] {
		x.awaitReports(a, "no lease", size.sessions)
	}
	x.awaitLearned("after the leader was killed")
	x.awaitUse("after the leader was killed")
	x.mark("the clients are there again")
	for _, a := range x.takers[:size.processes/2] {
		_ = a.cmd.Process.Signal(syscall.SIGUSR2)
	}
	victim.start()
	c.awaitReady("after the leader was killed", c.names()...)

	// The bucket moves: the shard that has it goes.
	x.mark("the bucket moves")
	if _, err := c.command("cluster", "shards", "1", "--timeout", waitLimit.String()); err != nil {
		t.Fatal(err)
	}
	c.await("one shard", func(s *protocol.ClusterStatus) string {
		if len(s.Shards) != 1 || len(s.Moves) > 0 {
			return fmt.Sprintf("%d shards, %d moves", len(s.Shards), len(s.Moves))
		}
		return ""
	})
	x.awaitLearned("after the bucket moved")
	x.awaitUse("after the bucket moved")

	// Clients are stopped until others have what they had, and continued.
	stopped := x.takers[0]
	x.mark("clients are stopped")
	_ = stopped.cmd.Process.Signal(syscall.SIGSTOP)
	x.awaitCallers("that are left by stopped clients", (size.processes-1)*size.sessions)
	x.mark("clients are continued")
	_ = stopped.cmd.Process.Signal(syscall.SIGCONT)
	x.awaitCallers("with those that were stopped", size.processes*size.sessions)
	x.awaitUse("after stopped clients were continued")

	// Clients are killed, and others take their place.
	x.mark("clients are killed")
	_ = x.takers[1].cmd.Process.Kill()
	<-x.takers[1].ended
	x.takers[1] = x.startTakers()
	x.awaitReports(x.takers[1], "ready", size.sessions)
	x.awaitCallers("with those in place of killed ones", size.processes*size.sessions)
	x.awaitUse("after others took the place of killed clients")
	x.check()
}

// limitTest is a run of TestRateLimits.
type limitTest struct {
	*cluster
	size           limitSizes
	node           *client.Node
	shared, steady string // names of trees in the last shard
	bounds         map[string]limitBound
	takers, all    []*actor
	waiters        *actor
	steadySince    time.Duration // the steady sessions have their rates since
	marks          []string
}

func (x *limitTest) mark(what string) {
	x.marks = append(x.marks, fmt.Sprintf("%s: %s", now().Round(time.Millisecond), what))
}

// prepare makes two trees in the last shard, the one that goes when there is to be one less.
func (x *limitTest) prepare() {
	x.t.Helper()
	w, err := client.Open(x.t.Context(), client.Config{Endpoints: x.endpoints()})
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { _ = w.Close() })
	s, err := w.Session(x.t.Context(), nodePath, client.Timeout(5*time.Minute))
	if err != nil {
		x.t.Fatal(err)
	}
	x.node = s.Node()
	m, err := admin.New(w).Map(x.t.Context())
	if err != nil {
		x.t.Fatal(err)
	}
	x.shared, x.steady = x.nameInLastShard(m, "shared"), x.nameInLastShard(m, "steady")
	x.create(s, x.shared, ratelimit.Config{Rate: ratelimit.PerSecond(x.size.rate), Burst: x.size.burst, Lease: x.size.lease})
	x.create(s, x.shared+"/a", ratelimit.Config{Rate: ratelimit.PerSecond(x.size.rate * 2 / 3), Burst: x.size.burst, Weight: 3})
	x.create(s, x.shared+"/b", ratelimit.Config{Burst: x.size.burst, Min: x.size.rate / 10})
	x.create(s, x.steady, ratelimit.Config{Rate: ratelimit.PerSecond(20 * float64(x.size.steady)), Burst: 500 * time.Millisecond, Lease: time.Minute})
}

func (x *limitTest) create(s *client.Session, path string, c ratelimit.Config) {
	x.t.Helper()
	if _, err := ratelimit.Create(x.t.Context(), s, path, c); err != nil {
		x.t.Fatal(err)
	}
	rate := x.size.rate
	if c.Rate != nil {
		rate = *c.Rate
	}
	x.bounds[path] = limitBound{rate, max(rate*c.Burst.Seconds(), 1)}
}

func (x *limitTest) nameInLastShard(m *admin.Map, prefix string) string {
	last := uint64(0)
	for _, s := range m.Shards {
		last = max(last, s.ID)
	}
	for i := 0; ; i++ {
		name := fmt.Sprintf("%s-%d", prefix, i)
		bucket := protocol.Bucket(x.node.ID(), []byte(name), m.Tiers[0].Buckets)
		for _, r := range m.Tiers[0].Runs {
			if bucket < r.Count {
				if r.Shard == last {
					return name
				}
				break
			}
			bucket -= r.Count
		}
	}
}

// steadyAge is how old a session is whose lease lasts longer than an election may take on a machine
// with other things to do: leases of younger ones are as short as they are young.
const steadyAge = 8 * time.Second

// startClients starts all, and waits until the steady ones have equal rates and long leases.
func (x *limitTest) startClients() {
	x.t.Helper()
	x.waiters = x.start(limitClientsSpec{Sessions: x.size.steady, Leaves: []string{x.steady}, Steady: true})
	for range x.size.processes {
		x.takers = append(x.takers, x.startTakers())
	}
	await.True(x.t, "equal rates and long leases", func() bool {
		d, err := ratelimit.Describe(x.t.Context(), x.node, x.steady, 1000)
		if err != nil || len(d.Sessions) != x.size.steady || d.Resources[0].Unconfirmed > 0 {
			return false
		}
		return !slices.ContainsFunc(d.Sessions, func(s ratelimit.SessionUse) bool { return s.Rate < 19 || s.Age < steadyAge })
	})
	x.awaitUse("at first")
	x.steadySince = now()
}

func (x *limitTest) startTakers() *actor {
	x.t.Helper()
	return x.start(limitClientsSpec{Sessions: x.size.sessions, Leaves: []string{x.shared + "/a", x.shared + "/b"}, Every: x.size.every})
}

func (x *limitTest) start(spec limitClientsSpec) *actor {
	x.t.Helper()
	spec.Name, spec.Endpoints = fmt.Sprintf("limits-%d", len(x.all)), x.endpoints()
	spec.History = x.history(spec.Name)
	text, err := json.Marshal(&spec)
	if err != nil {
		x.t.Fatal(err)
	}
	a := startActor(x.t, "", "limits", spec.Name, limitClientsEnv+"="+string(text))
	x.all = append(x.all, a)
	x.t.Cleanup(func() { _ = a.cmd.Process.Kill(); <-a.ended; _ = a.cmd.Wait() })
	return a
}

// awaitReports waits until a process has reported an event so many times.
func (x *limitTest) awaitReports(a *actor, event string, want int) {
	x.t.Helper()
	a.until(x.t, fmt.Sprintf("%d times %q of %s", want, event, a.name), func() bool { return a.count(event) >= want })
}

func (x *limitTest) history(name string) string { return filepath.Join(x.dir, name+".admitted") }

// awaitLearned waits until the leader knows which leases are in use. An earlier leader's knowledge
// ended before the call.
func (x *limitTest) awaitLearned(when string) {
	x.t.Helper()
	for _, name := range []string{x.shared, x.steady} {
		await.True(x.t, "the leader to know all leases of "+name+" "+when, func() bool {
			d, err := ratelimit.Describe(x.t.Context(), x.node, name, 0)
			if err == nil && !d.Learning {
				x.t.Logf("%s: %s was learned in %v", when, name, d.Learned)
			}
			return err == nil && !d.Learning
		})
	}
}

// awaitCallers waits until so many sessions have calls to the shared limit. Those of stopped and
// killed processes are listed for as long as they last.
func (x *limitTest) awaitCallers(which string, want int) {
	x.t.Helper()
	await.True(x.t, fmt.Sprintf("%d callers %s", want, which), func() bool {
		d, err := ratelimit.Describe(x.t.Context(), x.node, x.shared, 0)
		return err == nil && d.Resources[1].Callers+d.Resources[2].Callers == uint64(want)
	})
}

// awaitUse waits until what is leased of the shared limit is nearly all of it.
func (x *limitTest) awaitUse(when string) {
	x.t.Helper()
	await.True(x.t, "the limit to be used "+when, func() bool {
		d, err := ratelimit.Describe(x.t.Context(), x.node, x.shared, 0)
		return err == nil && !d.Learning && d.Resources[0].Leased > 0.9*x.size.rate
	})
}

// check ends all clients, and checks what they noted.
func (x *limitTest) check() {
	x.t.Helper()
	for _, a := range x.all {
		_ = a.cmd.Process.Signal(syscall.SIGTERM)
	}
	var shared [2][]admission
	var steady []admission
	least, leastAt, readings := math.MaxFloat64, time.Duration(0), 0
	for _, a := range x.all {
		<-a.ended
		if r, ok := a.has("failed"); ok {
			x.t.Errorf("%s: %s\n%s", a.name, r.Text, &a.errors)
		}
		list, err := readAdmissions(x.history(a.name))
		if err != nil {
			x.t.Fatal(err)
		}
		for _, r := range list {
			switch {
			case a != x.waiters:
				shared[r.Leaf] = append(shared[r.Leaf], r)
			case r.Rate == 0:
				steady = append(steady, r)
			case r.From > x.steadySince:
				if readings++; float64(r.Rate) < least {
					least, leastAt = float64(r.Rate), r.From
				}
			}
		}
	}
	for name, list := range map[string][]admission{
		x.steady: steady, x.shared: slices.Concat(shared[0], shared[1]), x.shared + "/a": shared[0], x.shared + "/b": shared[1],
	} {
		parts, err := checkWindows(list, x.bounds[name])
		if err != nil {
			x.t.Errorf("%s: %v; what happened:\n%s", name, err, strings.Join(x.marks, "\n"))
		}
		x.t.Logf("%s: %d units; the fullest windows of %v have these parts of what may be: %.2f", name, len(list), limitWindows, parts)
		if len(list) < 100 {
			x.t.Errorf("%s: only %d units were admitted: the test has lost its way", name, len(list))
		}
	}
	x.t.Logf("the least rate of a steady session was %.2f of 20, in %d readings", least, readings)
	if least < 19 || readings == 0 {
		x.t.Errorf("a session that should have kept its rate of 20 had %.2f at %v; what happened:\n%s", least, leastAt, strings.Join(x.marks, "\n"))
	}
}
