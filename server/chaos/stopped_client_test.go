package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest/binary"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// stoppedClientsEnv has the spec of a process with many short sessions.
const stoppedClientsEnv = "SIGNALBOX_CHAOS_STOPPED"

// stoppedClients is what such a process is told.
type stoppedClients struct {
	Endpoint string
	Sessions int
}

// stoppedTimeout is the timeout of the sessions of a process that is stopped for about as long.
const stoppedTimeout = time.Second

// maxHeap is how much such a process may have allocated. It needs a few megabytes.
const maxHeap = 512 << 20

// TestStoppedClients stops and continues a process with many short sessions, for about their timeout,
// so that it wakes up with answers in its sockets and timers that are late. Each acquire that returns
// no error has a lease of its own, and memory does not grow.
func TestStoppedClients(t *testing.T) {
	form.SkipUntil(t, form.Full, "a process is stopped for seconds")
	t.Parallel()
	sessions, acquires, stops := 50, 1_000, 4
	if form.Is(form.Long) {
		sessions, acquires, stops = 200, 400_000, 100
	}
	in := startInstance(t, binary.Signalbox(t))
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	defer in.dial(ctx).CloseWithoutRelease()
	spec, err := json.Marshal(stoppedClients{Endpoint: in.listen, Sessions: sessions})
	if err != nil {
		t.Fatal(err)
	}
	a := startActor(t, "", "sessions", "sessions", stoppedClientsEnv+"="+string(spec))
	t.Cleanup(func() {
		_ = a.cmd.Process.Kill()
		<-a.ended
		_ = a.cmd.Wait()
	})
	last := func() (counts stoppedCounts) {
		if r, ok := a.last("counts"); ok {
			if err := json.Unmarshal([]byte(r.Text), &counts); err != nil {
				t.Fatal(err)
			}
		}
		return counts
	}
	for n := 0; n < stops || last().Acquired < acquires; n++ {
		began := last()
		a.until(t, "the process to acquire", func() bool {
			return last().Acquired >= began.Acquired+10*sessions || a.isOver()
		})
		if a.isOver() {
			break
		}
		signalTo(t, a, syscall.SIGSTOP)
		time.Sleep(stoppedTimeout*7/10 + rand.N(stoppedTimeout*6/10)) // the fault is that long
		signalTo(t, a, syscall.SIGCONT)
	}
	_ = a.cmd.Process.Signal(syscall.SIGTERM)
	<-a.ended
	counts := last()
	t.Logf("%+v", counts)
	if bad, ok := a.has("bad"); ok || counts.Bad > 0 {
		t.Errorf("%d of %d acquires are bad; the first: %s", counts.Bad, counts.Acquired, bad.Text)
	}
	if failed, ok := a.has("failed"); ok {
		t.Errorf("the process gave up: %s", failed.Text)
	}
	if counts.Lost == 0 {
		t.Error("no session was lost: the process was not stopped for long enough")
	}
}

func signalTo(t *testing.T, a *actor, s syscall.Signal) {
	t.Helper()
	if err := a.cmd.Process.Signal(s); err != nil {
		t.Fatalf("%v\n%s", err, &a.errors)
	}
}

// last is the newest report of an event.
func (a *actor) last(event string) (report, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := len(a.reports) - 1; i >= 0; i-- {
		if a.reports[i].Event == event {
			return a.reports[i], true
		}
	}
	return report{}, false
}

// isOver reports whether the actor has ended.
func (a *actor) isOver() bool {
	select {
	case <-a.ended:
		return true
	default:
		return false
	}
}

// stoppedCounts is what the process has seen.
type stoppedCounts struct {
	Acquired int    // acquires without an error
	Bad      int    // of them: without a lease, or with that of another acquire
	Lost     int    // sessions
	GaveUp   int    // acquires whose caller gave up
	Heap     uint64 // bytes, now
}

// stoppedRecord counts, and knows the tokens that were given out.
type stoppedRecord struct {
	mu     sync.Mutex
	counts stoppedCounts
	newest map[string]uint64 // by name
}

// granted records a lease.
func (x *stoppedRecord) granted(name string, token uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.counts.Acquired++
	if token <= x.newest[name] {
		if x.counts.Bad++; x.counts.Bad == 1 {
			say(report{Event: "bad", Text: fmt.Sprintf("%s has token %d after %d", name, token, x.newest[name])})
		}
		return
	}
	x.newest[name] = token
}

// report prints what was counted until now.
func (x *stoppedRecord) report() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.counts.Heap = heap()
	text, err := json.Marshal(x.counts)
	if err != nil {
		panic(err)
	}
	say(report{Event: "counts", Text: string(text)})
}

// heap is how many bytes of objects the process has.
func heap() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// runStoppedClients is the main function of the process.
func runStoppedClients(text string) int {
	var spec stoppedClients
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		say(report{Event: "failed", Text: err.Error()})
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	x := &stoppedRecord{newest: map[string]uint64{}}
	var over atomic.Bool
	go func() { // beside the engine, which may be the one that grows
		for tick := time.NewTicker(20 * time.Millisecond); !over.Load(); <-tick.C {
			if n := heap(); n > maxHeap {
				say(report{Event: "failed", Text: fmt.Sprintf("%d MB are allocated", n>>20)})
				os.Exit(1)
			}
			x.report()
		}
	}()
	c, err := client.Open(ctx, client.Config{Endpoints: []string{spec.Endpoint}, Name: "stopped"})
	if err != nil {
		say(report{Event: "failed", Text: err.Error()})
		return 1
	}
	var wg sync.WaitGroup
	for i := range spec.Sessions {
		wg.Go(func() { x.use(ctx, c, fmt.Sprint("stopped-", i/2)) })
	}
	wg.Wait()
	over.Store(true)
	c.CloseWithoutRelease()
	x.report()
	return 0
}

// use acquires a lock that two sessions share, again and again, under one session after the other.
func (x *stoppedRecord) use(ctx context.Context, c *client.Client, name string) {
	for ctx.Err() == nil {
		s, err := c.Session(ctx, nodePath, client.Timeout(stoppedTimeout))
		if err != nil {
			continue
		}
		for s.Err() == nil && ctx.Err() == nil {
			x.once(ctx, s, name)
		}
		if ctx.Err() == nil {
			x.mu.Lock()
			x.counts.Lost++
			x.mu.Unlock()
		}
	}
}

// once acquires the lock and gives it back. Its patience is sometimes short.
func (x *stoppedRecord) once(ctx context.Context, s *client.Session, name string) {
	patient, cancel := ctx, context.CancelFunc(func() {})
	if rand.IntN(4) == 0 {
		patient, cancel = context.WithTimeout(ctx, rand.N(stoppedTimeout))
	}
	defer cancel()
	l, err := s.Mutex(name).Lock(patient)
	switch {
	case err != nil && patient.Err() != nil:
		x.mu.Lock()
		x.counts.GaveUp++
		x.mu.Unlock()
	case err == nil:
		x.granted(name, l.Token())
		if l.Token() == 0 {
			return // no method of such a lease works
		}
		_ = l.Release(ctx)
	}
}
