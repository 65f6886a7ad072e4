package recipes_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/client/recipes"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// TestPool: over two processes, no more units are used than there are, each lease has a session of
// its own, and sessions are used again and closed.
func TestPool(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	ctx := testContext(t)
	watching := dial(t, srv)
	n, err := watching.Node(ctx, "/default")
	must(t, err)
	const limit, tasks = 4, 12
	var used, most atomic.Int64
	var all []*recipes.Pool
	var working sync.WaitGroup
	full := make(chan struct{}) // once, as many units were in use as there can be
	var fill sync.Once
	for range 2 {
		pool := recipes.NewPool(dial(t, srv), "/default", "convert", client.Description("converter"))
		all = append(all, pool)
		for i := range tasks {
			count := uint64(1 + i%2)
			working.Go(func() {
				err := pool.Run(ctx, func(ctx context.Context, l *client.Lease) error {
					now := used.Add(int64(count))
					defer used.Add(-int64(count))
					for before := most.Load(); now > before && !most.CompareAndSwap(before, now); before = most.Load() {
					}
					if now >= limit-1 { // the next in the queue may want two
						fill.Do(func() { close(full) })
					}
					select {
					case <-full:
						return nil
					case <-ctx.Done():
						return context.Cause(ctx)
					}
				}, client.Count(count), client.CreateLimit(limit))
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
	working.Wait()
	if n := most.Load(); n < limit-1 || n > limit {
		t.Errorf("%d of %d units were used at once", n, limit)
	}
	sessions := func() (n_ int) {
		for _, err := range admin.OfNode(n).Sessions(ctx) {
			must(t, err)
			n_++
		}
		return n_
	}
	if n := sessions(); n > 2*tasks {
		t.Errorf("%d sessions for %d tasks", n, 2*tasks)
	}
	before := sessions()
	for range 100 { // one after the other: the same session
		l, err := all[0].TryAcquire(ctx)
		if l == nil || err != nil {
			t.Fatal(l, err)
		}
		release(t, l)
	}
	if after := sessions(); after > before+1 {
		t.Errorf("%d sessions after a hundred tasks in turn, %d before", after, before)
	}
	held, err := all[0].Acquire(ctx, client.Count(limit))
	must(t, err)
	for range 3 {
		if l, err := all[1].TryAcquire(ctx); l != nil || !errors.Is(err, client.ErrNotAcquired) {
			t.Errorf("beside one that has all: %v %v", l, err)
		}
	}
	if _, err := all[1].Acquire(ctx, client.Wait(time.Millisecond)); !errors.Is(err, client.ErrNotAcquired) {
		t.Errorf("beside one that has all: %v", err)
	}
	for _, x := range all {
		must(t, x.Close(ctx))
	}
	if !held.Held() {
		t.Errorf("a lease ended with the pool: %v", held.Lost())
	}
	if _, err := all[0].Acquire(ctx); err == nil {
		t.Error("acquired from a closed pool")
	}
	release(t, held)
	await.True(t, "the end of all sessions", func() bool { return sessions() == 0 })
}
