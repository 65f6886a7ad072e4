package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/recipes"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

func TestGate(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	ctx := testContext(t)
	c := dial(t, srv)
	s, other := session(t, c), session(t, c)
	gate := recipes.NewGate(s, "go")
	if open, err := gate.IsOpen(ctx); open || err != nil {
		t.Fatal(open, err)
	}
	must(t, gate.Close(ctx))
	const waiters = 8
	var all []outcome[bool]
	for range waiters {
		all = append(all, async(func() (bool, error) { return true, recipes.NewGate(other, "go").Wait(ctx) }))
	}
	must(t, gate.Open(ctx))
	for _, w := range all {
		w.must(t)
	}
	must(t, gate.Open(ctx)) // again changes nothing
	must(t, recipes.NewGate(other, "go").Wait(ctx))
	must(t, gate.Close(ctx))

	// Closed again: a wait that begins now does not end by the opening before.
	short, cancel := context.WithCancel(ctx)
	late := async(func() (bool, error) { return true, recipes.NewGate(other, "go").Wait(short) })
	if open, err := gate.IsOpen(ctx); open || err != nil {
		t.Fatal(open, err)
	}
	cancel()
	if _, err := late.get(); !errors.Is(err, context.Canceled) {
		t.Error("waited at a closed gate:", err)
	}

	// Opened and closed at once, it lets pass who has begun to wait: each pulse ends at least one wait
	// that was begun before, or the next one does.
	passed := async(func() (bool, error) { return true, recipes.NewGate(other, "go").Wait(ctx) })
	for done := false; !done; {
		must(t, gate.Open(ctx))
		must(t, gate.Close(ctx))
		select {
		case f := <-passed.done:
			if _, err := f(); err != nil {
				t.Fatal(err)
			}
			done = true
		default:
		}
	}
	ended := session(t, c)
	over := async(func() (bool, error) { return true, recipes.NewGate(ended, "go").Wait(ctx) })
	must(t, ended.Close(ctx))
	if _, err := over.get(); !errors.Is(err, client.ErrSessionClosed) {
		t.Error("the session ended:", err)
	}
	must(t, s.Create(ctx, "used", 1, []byte("by others")))
	if err := recipes.NewGate(s, "used").Open(ctx); !errors.Is(err, client.ErrPreconditionFailed) {
		t.Error("opened what is no gate:", err)
	}
	if err := recipes.NewLatch(s, "go", 1).CountDown(ctx, "k"); !errors.Is(err, client.ErrPreconditionFailed) {
		t.Error("counted down a gate:", err)
	}
}

// TestLatch compares with a set: each key counts once, however often and from how many sessions it comes.
func TestLatch(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	ctx := testContext(t)
	c := dial(t, srv)
	const n, sessions = 12, 6
	s := session(t, c)
	open := async(func() (bool, error) { return true, recipes.NewLatch(s, "import", n).Wait(ctx) })
	var said sync.Map
	var wg sync.WaitGroup
	for i := range sessions {
		own, r := session(t, c), rand.New(rand.NewPCG(uint64(i), 1))
		wg.Go(func() {
			for range 8 {
				key := fmt.Sprintf("part-%02d", r.IntN(n-1)) // never the last one
				said.Store(key, true)
				if err := recipes.NewLatch(own, "import", n).CountDown(ctx, key); err != nil {
					t.Error(err)
				}
			}
			if i%2 == 0 { // it dies, and what it said stays
				_ = own.Close(ctx)
			}
		})
	}
	wg.Wait()
	done, err := recipes.NewLatch(s, "import", n).Done(ctx)
	must(t, err)
	var want []string
	said.Range(func(key, _ any) bool { want = append(want, key.(string)); return true })
	slices.Sort(want)
	slices.Sort(done)
	if !slices.Equal(done, want) {
		t.Fatalf("done are %v, want %v", done, want)
	}
	for i := range n { // the last one opens it
		must(t, recipes.NewLatch(s, "import", n).CountDown(ctx, fmt.Sprintf("part-%02d", i)))
	}
	open.must(t)
	must(t, recipes.NewLatch(s, "import", n).Wait(ctx))
	must(t, recipes.NewLatch(s, "import", n).CountDown(ctx, "one too many"))
	if done, err := recipes.NewLatch(s, "import", n).Done(ctx); err != nil || len(done) != n {
		t.Error(done, err)
	}
	for _, err := range []error{
		recipes.NewLatch(s, "x", 0).CountDown(ctx, "k"),
		recipes.NewLatch(s, "x", 1001).Wait(ctx),
		recipes.NewLatch(s, "x", 1).CountDown(ctx, ""),
		recipes.NewLatch(s, "x", 1).CountDown(ctx, "\xff"),
	} {
		if !errors.Is(err, client.ErrBadRequest) {
			t.Error(err)
		}
	}
	if err := recipes.NewLatch(s, "import", 3).Wait(ctx); !errors.Is(err, client.ErrPreconditionFailed) {
		t.Error("another count:", err)
	}
}
