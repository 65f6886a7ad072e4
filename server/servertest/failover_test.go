package servertest_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// workload is sessions that lock and unlock, wait, and watch, all the time. Each keeps one lease
// that it must not lose. A call that fails is a fault.
type workload struct {
	t       testing.TB
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup
	clients []*client.Client
	kept    []*client.Lease

	mu       sync.Mutex
	failures []error
	longest  time.Duration // between two answers of a session
	calls    atomic.Int64
	events   atomic.Int64
}

func newWorkload(t testing.TB, addrs []string, clients, sessions int, timeout time.Duration) *workload {
	ctx, stop := context.WithCancel(context.Background())
	w := &workload{t: t, ctx: ctx, stop: stop}
	for i := range clients {
		c, err := client.Dial(t.Context(), addrs[i%len(addrs)])
		if err != nil {
			t.Fatal(err)
		}
		w.clients = append(w.clients, c)
	}
	for i := range sessions {
		s, err := w.clients[i%clients].Session(t.Context(), "/default", client.Timeout(timeout))
		if err != nil {
			t.Fatal(err)
		}
		kept, err := s.Acquire(t.Context(), fmt.Sprintf("kept-%d", i), client.Exclusive())
		if err != nil {
			t.Fatal(err)
		}
		w.kept = append(w.kept, kept)
		w.running.Go(func() { w.work(s, i) })
	}
	for i, c := range w.clients {
		w.running.Go(func() { w.watch(c, i) })
	}
	return w
}

// work locks and unlocks a semaphore that few share, so that some wait.
func (w *workload) work(s *client.Session, i int) {
	last := time.Now()
	answered := func() {
		now := time.Now()
		w.mu.Lock()
		w.longest = max(w.longest, now.Sub(last))
		w.mu.Unlock()
		last = now
		w.calls.Add(1)
	}
	for w.ctx.Err() == nil {
		l, err := s.Acquire(w.ctx, fmt.Sprintf("shared-%d", i/2), client.Exclusive())
		if err == nil {
			answered()
			err = l.Release(w.ctx)
		}
		if err != nil {
			w.addFailure(fmt.Errorf("session %d: %w", i, err))
			return
		}
		answered()
	}
}

func (w *workload) watch(c *client.Client, i int) {
	n, err := c.Node(w.ctx, "/default")
	if err != nil {
		w.addFailure(err)
		return
	}
	for _, err := range n.Watch(w.ctx, fmt.Sprintf("shared-%d", i), client.Prefix()) {
		if err != nil {
			w.addFailure(fmt.Errorf("watch %d: %w", i, err))
			return
		}
		w.events.Add(1)
	}
}

func (w *workload) addFailure(err error) {
	if w.ctx.Err() != nil || errors.Is(err, context.Canceled) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failures = append(w.failures, err)
}

// takeLongestGap gives the longest time without an answer since the last call, and begins to look
// for a new one.
func (w *workload) takeLongestGap() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	d := w.longest
	w.longest = 0
	return d
}

// await waits for n more answered calls.
func (w *workload) await(n int64) {
	w.t.Helper()
	from := w.calls.Load()
	await.Seen(w.t, fmt.Sprintf("%d more answered calls", n), func() (failures []error, holds bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return slices.Clone(w.failures), w.calls.Load() >= from+n
	})
}

func (w *workload) close() {
	w.stop()
	w.running.Wait()
	for i, l := range w.kept {
		if !l.Held() {
			w.addFailure(fmt.Errorf("lease %d is lost: %v", i, l.Lost()))
			w.failures = append(w.failures, fmt.Errorf("lease %d is lost: %v", i, l.Lost()))
		}
	}
	for _, c := range w.clients {
		// Close waits for 2 s, and a busy machine may answer later: that is no failure of a call.
		if err := c.Close(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			w.failures = append(w.failures, err)
		}
	}
	for _, err := range w.failures {
		w.t.Error(err)
	}
}

var failover = flag.String("failover", "", "measure TestFailover's pauses with these settings: default or shortest")

// TestFailover: a master dies under load, again and again. No call fails, no lease of a living
// client is lost.
func TestFailover(t *testing.T) {
	t.Parallel()
	sessions, rounds := 40, 1
	opts := []servertest.Option{servertest.Shards(2)}
	switch *failover {
	case "":
	case "default":
		opts = append(opts, servertest.Config(func(c *server.Config) { c.RTT, c.OfflineAfter = 0, 0 }))
	case "shortest":
		opts = append(opts, servertest.Config(func(c *server.Config) { c.RTT, c.OfflineAfter = 20*time.Millisecond, 500*time.Millisecond }))
	default:
		t.Fatalf("-failover=%s; give default or shortest", *failover)
	}
	timeout := time.Minute // a busy machine may be silent for a while
	if *failover != "" {
		sessions, rounds, timeout = 200, 4, 10*time.Second
	}
	c := servertest.StartCluster(t, 3, opts...)
	w := newWorkload(t, c.Addrs(), 10, sessions, timeout)
	defer w.close()
	var pauses []time.Duration
	for range rounds {
		w.await(int64(4 * sessions))
		w.takeLongestGap()
		i := c.Leader(c.Shards()[0])
		c.Kill(i)
		w.await(int64(8 * sessions))
		if *failover != "" {
			time.Sleep(8 * time.Second) // some callers notice late; the longest pause is looked for
		}
		pauses = append(pauses, w.takeLongestGap())
		c.Restart(i)
		c.WaitReady()
	}
	w.await(int64(4 * sessions))
	slices.Sort(pauses)
	t.Logf("longest pauses of a caller: %v; %d calls, %d events", pauses, w.calls.Load(), w.events.Load())
}
