package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// lossHoldersEnv has the spec of a process that holds leases until it loses them.
const lossHoldersEnv = "SIGNALBOX_CHAOS_LOSSES"

// lossHolders is what such a process is told.
type lossHolders struct {
	Name      string
	Endpoints []string
	Holders   int
	Take      string // what it has done to each of its own leases, if anything
}

// lossTimeout is the timeout of their sessions.
const lossTimeout = 3 * time.Second

// lossSite is a cluster on hosts of its own, and one host of clients.
type lossSite struct {
	*testing.T
	net     *network
	c       *cluster
	clients int // the host
}

func (x *lossSite) signal(s syscall.Signal, names ...string) {
	for _, name := range names {
		if err := x.c.instances[name].cmd.Process.Signal(s); err != nil {
			x.Fatal(err)
		}
	}
}

// lossLength is for how long a process is stopped: for longer than a session lives without a renewal.
func lossLength() time.Duration { return lossTimeout + rand.N(2*lossTimeout) }

// plantedLosses take leases away. Those with a fault do it to all holders of a process at once; others
// are done by the process itself, to one lease at a time.
var plantedLosses = []struct {
	what, cause string
	fault       func(x *lossSite, a *actor, names []string)
}{
	{"process stopped", "process_stood_still", func(x *lossSite, a *actor, _ []string) {
		signalTo(x.T, a, syscall.SIGSTOP)
		time.Sleep(lossLength()) // the fault is that long
		signalTo(x.T, a, syscall.SIGCONT)
	}},
	{"packets dropped", "unreachable", func(x *lossSite, _ *actor, _ []string) { x.net.part(x.clients, 0, 1, 2) }},
	{"packets to the instances dropped", "unreachable", func(x *lossSite, _ *actor, _ []string) {
		for k := range 3 {
			x.net.cut(x.clients, k)
		}
	}},
	{"packets from the instances dropped", "unreachable", func(x *lossSite, _ *actor, _ []string) {
		for k := range 3 {
			x.net.cut(k, x.clients)
		}
	}},
	{"all instances stopped", "unreachable", func(x *lossSite, _ *actor, names []string) { x.signal(syscall.SIGSTOP, names...) }},
	{"all instances killed", "unreachable", func(x *lossSite, _ *actor, names []string) {
		for _, name := range names {
			x.c.instances[name].kill()
		}
	}},
	{"two of three instances killed", "no_leader", func(x *lossSite, _ *actor, names []string) {
		for _, k := range rand.Perm(3)[:2] {
			x.c.instances[names[k]].kill()
		}
	}},
	{"session killed", "session_ended_by_operator", nil},
	{"lease released by force", "released_by_operator", nil},
	{"semaphore deleted", "deleted", nil},
	{"held for too long", "max_hold", nil},
	{"node deleted", "node_deleted", nil},
	{"session restored elsewhere", "taken_over", nil},
}

// TestLosses takes leases away from processes, and compares what their holders are told.
func TestLosses(t *testing.T) {
	form.SkipUntil(t, form.Full, "client/internal/core plants the same in a simulation")
	t.Parallel()
	rounds, holders, parts := 1, 4, 10 // a fault is the same for all holders of a process
	if form.Is(form.Long) {
		rounds, holders, parts = 5, 20, 100
	}
	net, c, names := threeHosts(t, 4)
	x := &lossSite{T: t, net: net, c: c, clients: 3}
	matrix, texts := map[string]map[string]int{}, map[string]string{}
	total, wrong, unknown := 0, 0, 0
	for n := range rounds * len(plantedLosses) {
		p := plantedLosses[n%len(plantedLosses)]
		spec := lossHolders{Name: fmt.Sprint("losses-", n), Endpoints: c.endpoints(), Holders: holders}
		if p.fault == nil {
			spec.Take = p.what
		}
		text, err := json.Marshal(&spec)
		if err != nil {
			t.Fatal(err)
		}
		a := startActor(t, net.hosts[x.clients], "losses", spec.Name, lossHoldersEnv+"="+string(text))
		over := func() { _ = a.cmd.Process.Kill(); <-a.ended; _ = a.cmd.Wait() }
		t.Cleanup(over)
		a.until(t, "all leases to be held", func() bool { return a.count("held") == holders || a.isOver() })
		before := 0
		if p.fault != nil {
			before = a.count("loss") // the machine was too slow for its timeout
			p.fault(x, a, names)
		}
		a.until(t, "all leases to be lost after "+p.what, func() bool { return a.count("loss") == holders || a.isOver() })
		if r, ok := a.has("failed"); ok || a.count("loss") != holders {
			t.Fatalf("%s: %d of %d leases are lost: %s\n%s", p.what, a.count("loss"), holders, r.Text, &a.errors)
		}
		over()
		net.healAll()
		x.signal(syscall.SIGCONT, slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			in := c.instances[name]
			select {
			case <-in.ended:
				in.start()
				return true
			default:
				return false
			}
		})...)
		c.awaitReady("after "+p.what, names...)
		if matrix[p.what] == nil {
			matrix[p.what] = map[string]int{}
		}
		for _, r := range losses(a)[before:] {
			var loss lossSeen
			if err := json.Unmarshal([]byte(r.Text), &loss); err != nil {
				t.Fatal(err)
			}
			cause := loss.Cause
			matrix[p.what][cause]++
			texts[p.what] = loss.Text
			total++
			if cause != p.cause {
				wrong++
				t.Logf("%s is said to be %s: %s %q", p.what, cause, loss.Text, loss.Steps)
			}
			if cause == "unknown" {
				unknown++
			}
			if cause == "process_stood_still" && p.cause != cause {
				t.Errorf("%s: the process ran, and is said to have stood still: %s", p.what, loss.Text)
			}
		}
	}
	for _, what := range slices.Sorted(maps.Keys(matrix)) {
		t.Logf("%-34s %v  %s", what, matrix[what], texts[what])
	}
	t.Logf("%d losses, %d said wrongly, %d unknown", total, wrong, unknown)
	if wrong*parts > total || unknown*parts > total {
		t.Errorf("of %d losses %d are said to have another reason, and %d to have none that is known", total, wrong, unknown)
	}
}

// lossSeen is what a holder sees of a loss.
type lossSeen struct {
	Text, Cause string
	Steps       []string
}

// losses are the reports of them.
func losses(a *actor) (list []report) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.reports {
		if r.Event == "loss" {
			list = append(list, r)
		}
	}
	return list
}

// runLossHolders is the main function of the process.
func runLossHolders(text string) int {
	var spec lossHolders
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		say(report{Event: "failed", Text: err.Error()})
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	var wg sync.WaitGroup
	var failed atomic.Bool
	for i := range spec.Holders {
		wg.Go(func() {
			if err := spec.hold(ctx, fmt.Sprint(spec.Name, "-", i)); err != nil {
				failed.Store(true)
				say(report{Event: "failed", Text: err.Error()})
			}
		})
	}
	wg.Wait()
	if failed.Load() {
		return 1
	}
	return 0
}

// hold holds a lease until it is lost, and says why that was.
func (x *lossHolders) hold(ctx context.Context, name string) error {
	c, err := client.Open(ctx, client.Config{Endpoints: x.Endpoints, Name: "losses"})
	if err != nil {
		return err
	}
	defer c.CloseWithoutRelease()
	nodes, path := admin.Nodes(c), nodePath
	if x.Take == "node deleted" {
		path = "/" + name
		if _, err := nodes.Create(ctx, path, admin.NodeConfig{}); err != nil {
			return err
		}
	}
	s, err := c.Session(ctx, path, client.Timeout(lossTimeout))
	if err != nil {
		return err
	}
	if err := s.Create(ctx, name, 1, nil); err != nil {
		return err
	}
	var opts []client.AcquireOption
	if x.Take == "held for too long" {
		opts = append(opts, client.MaxHold(time.Second))
	}
	l, err := s.Acquire(ctx, name, opts...)
	if err != nil {
		return err
	}
	say(report{Event: "held", Session: s.ID()})
	node := admin.OfNode(s.Node())
	switch x.Take {
	case "session killed":
		err = node.KillSession(ctx, s.ID(), "a test")
	case "lease released by force":
		_, err = node.ForceRelease(ctx, name, l.Token(), l.Token(), "a test")
	case "semaphore deleted":
		err = s.Delete(ctx, name, true, client.Reason("a test"))
	case "node deleted":
		_, err = nodes.Delete(ctx, path, admin.DeleteOptions{Force: true, Reason: "a test"})
	case "session restored elsewhere":
		var other *client.Client
		if other, err = client.Open(ctx, client.Config{Endpoints: x.Endpoints, Name: "other"}); err == nil {
			defer other.CloseWithoutRelease()
			_, err = other.Restore(ctx, s.Save())
		}
	}
	if err != nil {
		return err
	}
	<-l.Context().Done()
	loss, ok := errors.AsType[*client.Loss](l.Lost())
	if !ok {
		return fmt.Errorf("a lease ended with %w, which does not say why", l.Lost())
	}
	text, err := json.Marshal(lossSeen{loss.Error(), loss.Cause, loss.Steps})
	say(report{Event: "loss", Session: s.ID(), Text: string(text)})
	return err
}
