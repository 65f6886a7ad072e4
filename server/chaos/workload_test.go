package chaos

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/binary"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

const (
	workers    = 20
	candidates = 10
	contenders = 10
	// sessionTimeout is long enough for 40 processes and a server's restart on a small machine that
	// other tests share.
	sessionTimeout = 20 * time.Second
)

// TestWorkload: 40 client processes, of which the leader and others are killed and
// replaced, and a server that is killed and started again.
func TestWorkload(t *testing.T) {
	form.SkipUntil(t, form.Full, "40 processes")
	t.Parallel()
	in := startInstance(t, binary.Signalbox(t))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	c := in.dial(ctx)
	defer c.Close()
	n, err := c.Node(ctx, nodePath)
	if err != nil {
		t.Fatal(err)
	}

	cr := &workload{t: t, dir: t.TempDir(), in: in, timeout: sessionTimeout}
	defer func() {
		for _, a := range cr.alive("") {
			a.killed = true
			_ = a.cmd.Process.Kill()
			<-a.ended
			_ = a.cmd.Wait()
		}
	}()
	list := watchWorkers(ctx, t, n)
	count := startCounter(ctx, t, c)

	for range workers {
		cr.spawn("worker")
	}
	for range candidates {
		cr.spawn("candidate")
	}
	for range contenders {
		cr.spawn("contender")
	}
	awaitAll := func(when string) {
		t.Helper()
		began := time.Now()
		await.True(t, "all actors to be ready "+when, func() bool {
			for _, a := range cr.alive("") {
				if r, ok := a.has("failed"); ok {
					t.Fatalf("%s %s: %s", a.name, when, r.Text)
				}
				if _, ok := a.has("ready"); !ok {
					return false
				}
			}
			return true
		})
		var want []string
		for _, a := range cr.alive("worker") {
			want = append(want, a.name)
		}
		slices.Sort(want)
		await.True(t, "the list of workers "+when, func() bool { return slices.Equal(list(), want) })
		listed := time.Since(began)
		leads := len(readEvidence(t, cr.dir, election))
		await.True(t, "a living leader "+when, func() bool {
			lines := readEvidence(t, cr.dir, election)
			return len(lines) > leads+10 && cr.livingPid(lines[len(lines)-1].pid)
		})
		enters := len(readEvidence(t, cr.dir, slots))
		await.True(t, "contenders to go on "+when, func() bool { return len(readEvidence(t, cr.dir, slots)) > enters+50 })
		acked := count.acked.Load()
		await.True(t, "the counter to go on "+when, func() bool { return count.acked.Load() > acked })
		t.Logf("%s: the list was right after %s, all else after %s", when, listed.Round(time.Millisecond),
			time.Since(began).Round(time.Millisecond))
	}
	rng := rand.New(rand.NewPCG(1, 2))
	killSome := func() {
		lines := readEvidence(t, cr.dir, election)
		leader := lines[len(lines)-1].pid
		for _, a := range cr.alive("candidate") {
			if a.pid() == leader {
				cr.kill(a)
			}
		}
		for _, role := range []string{"worker", "worker", "candidate", "contender", "contender"} {
			alive := cr.alive(role)
			cr.kill(alive[rng.IntN(len(alive))])
		}
	}

	awaitAll("at first")
	killSome()
	awaitAll("after the leader and five others were killed")
	in.kill()
	in.start()
	awaitAll("after the server was killed")
	killSome()
	in.kill()
	killSome()
	in.start()
	awaitAll("after both were killed together")

	count.stop(t)
	leads, enters := readEvidence(t, cr.dir, election), readEvidence(t, cr.dir, slots)
	cr.stop()
	if err := checkElection(readEvidence(t, cr.dir, election)); err != nil {
		t.Errorf("election: %v", err)
	}
	if err := checkSlots(readEvidence(t, cr.dir, slots), numSlots); err != nil {
		t.Errorf("slots: %v", err)
	}
	terms := map[uint64]bool{}
	for _, l := range leads {
		terms[l.token] = true
	}
	if len(terms) < 3 {
		t.Errorf("only %d terms: the leaders' deaths did not happen", len(terms))
	}
	t.Logf("%d terms, %d lines of slots, counter at %d", len(terms), len(enters), count.acked.Load())
	cancel() // the watch's end
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	in.stop()
}

// livingPid reports whether a process of the workload was not killed.
func (c *workload) livingPid(pid int) bool {
	return slices.ContainsFunc(c.alive(""), func(a *actor) bool { return a.pid() == pid })
}

// watchWorkers keeps the list of workers that a watch tells, sorted.
func watchWorkers(ctx context.Context, t *testing.T, n *client.Node) func() []string {
	var mu sync.Mutex
	members := map[uint64]string{}
	go func() {
		for ev, err := range n.Service(serviceFor).Watch(ctx) {
			if err != nil {
				if ctx.Err() == nil {
					t.Errorf("watch ended: %v", err)
				}
				return
			}
			mu.Lock()
			switch ev.Kind {
			case client.MemberSnapshot:
				clear(members)
				for _, m := range ev.Members {
					members[m.Token] = string(m.Data)
				}
			case client.MemberRemoved:
				delete(members, ev.Member.Token)
			case client.MemberAdded, client.MemberChanged:
				members[ev.Member.Token] = string(ev.Member.Data)
			}
			mu.Unlock()
		}
	}()
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		var out []string
		for _, name := range members {
			out = append(out, name)
		}
		slices.Sort(out)
		return out
	}
}

// counter counts a configuration up, one acknowledged step after another.
type counter struct {
	tried, acked atomic.Uint64
	cancel       context.CancelFunc
	over         chan struct{}
	read         func(ctx context.Context) (uint64, error)
}

func startCounter(ctx context.Context, t *testing.T, c *client.Client) *counter {
	t.Helper()
	s, err := c.Session(ctx, nodePath, client.Timeout(sessionTimeout), client.Description("ledger"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	l := &counter{cancel: cancel, over: make(chan struct{})}
	cfg := s.Config("ledger")
	l.read = func(ctx context.Context) (uint64, error) {
		v, err := cfg.Get(ctx)
		if err != nil {
			return 0, err
		}
		return strconv.ParseUint(string(v.Data), 10, 64)
	}
	go func() {
		defer close(l.over)
		for n := uint64(1); ctx.Err() == nil; n++ {
			if got, err := l.read(ctx); n > 1 && err == nil && got != n-1 {
				t.Errorf("the counter reads %d, %d was acknowledged", got, n-1)
				return
			}
			l.tried.Store(n)
			version, err := cfg.Set(ctx, []byte(strconv.FormatUint(n, 10)))
			if err != nil {
				if ctx.Err() == nil {
					t.Errorf("counting to %d: %v", n, err)
				}
				return
			}
			if version != n {
				t.Errorf("counting to %d made version %d: a step was done twice or lost", n, version)
				return
			}
			l.acked.Store(n)
		}
	}()
	return l
}

// stop ends the counting and checks what the server has.
func (l *counter) stop(t *testing.T) {
	t.Helper()
	l.cancel()
	<-l.over
	got, err := l.read(t.Context())
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if got < l.acked.Load() || got > l.tried.Load() {
		t.Errorf("the counter reads %d; %d was acknowledged and %d tried", got, l.acked.Load(), l.tried.Load())
	}
}
