package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

func TestAcquireAgainstAServer(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	ctx := testContext(t)
	c := dial(t, srv)
	a, b := session(t, c, client.Description("a")), session(t, c, client.Description("b"))

	t.Run("first come first served", func(t *testing.T) {
		held := acquire(t, a, "fifo", client.CreateLimit(1))
		granted, place := queue(t, b, "fifo")
		st, err := b.Node().ExplainWait(ctx, "fifo", b.ID())
		if err != nil || !st.Waiting || st.Position != 1 || len(st.Holders) != 1 || st.Holders[0].Session != a.ID() {
			t.Fatalf("why: %+v, %v", st, err)
		}
		// What a session is called is known where the semaphore lives, its home or not.
		if st.Holders[0].Description != "a" || st.Own.Description != "b" {
			t.Fatalf("held by %q, waited for by %q", st.Holders[0].Description, st.Own.Description)
		}
		release(t, held)
		l := granted.must(t)
		if l.Token() != place || l.Token() <= held.Token() {
			t.Fatalf("token %d, accepted as %d, before it %d", l.Token(), place, held.Token())
		}
		release(t, l)
	})

	t.Run("above the limit that it would be made with", func(t *testing.T) {
		_, err := a.Acquire(ctx, "unmade", client.CreateLimit(3), client.Count(4))
		if !errors.Is(err, client.ErrBadRequest) {
			t.Errorf("acquired 4 of 3: %v", err)
		}
		if d, err := a.Node().Describe(ctx, "unmade"); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("it was made all the same: %+v, %v", d, err)
		}
		release(t, acquire(t, a, "unmade", client.CreateLimit(3), client.Count(3)))
		if _, err := a.Acquire(ctx, "unmade", client.CreateLimit(9),
			client.Count(4)); !errors.Is(err, client.ErrBadRequest) {
			t.Errorf("acquired 4 of 3 of one that exists: %v", err)
		}
	})

	t.Run("who can never be granted", func(t *testing.T) {
		if err := a.Create(ctx, "never", 3, nil); err != nil {
			t.Fatal(err)
		}
		held := acquire(t, a, "never")
		granted, place := queue(t, b, "never", client.Count(3))
		if st, err := b.Node().ExplainWait(ctx, "never", b.ID()); err != nil {
			t.Fatal(err)
		} else if w, never := st.NeverGranted(); never {
			t.Fatalf("within the limit: %+v", w)
		}
		if err := a.Resize(ctx, "never", 2); err != nil {
			t.Fatal(err)
		}
		behind := session(t, c)
		_, _ = queue(t, behind, "never")
		for _, s := range []*client.Session{b, behind} {
			st, err := s.Node().ExplainWait(ctx, "never", s.ID())
			if err != nil {
				t.Fatal(err)
			}
			if w, never := st.NeverGranted(); !never || w.Place != place || w.Count != 3 {
				t.Fatalf("beyond the limit: %+v, %v", w, never)
			}
		}
		if err := a.Resize(ctx, "never", 3); err != nil {
			t.Fatal(err)
		}
		release(t, held)
		release(t, granted.must(t))
	})

	t.Run("try", func(t *testing.T) {
		held := acquire(t, a, "try", client.Exclusive())
		l, err := b.TryAcquire(ctx, "try", client.Exclusive())
		if l != nil || !errors.Is(err, client.ErrNotAcquired) {
			t.Fatalf("try of a held lock: %v, %v", l, err)
		}
		release(t, held)
		if l, err = b.TryAcquire(ctx, "try", client.Exclusive()); err != nil || l == nil {
			t.Fatalf("try of a free lock: %v, %v", l, err)
		}
		release(t, l)
	})

	t.Run("the wait ends", func(t *testing.T) {
		held := acquire(t, a, "wait", client.Exclusive())
		waiting, _ := queue(t, b, "wait", client.Exclusive(), client.Wait(time.Minute))
		srv.Advance(61 * time.Second)
		if _, err := waiting.get(); !errors.Is(err, client.ErrNotAcquired) {
			t.Fatalf("got %v", err)
		}
		release(t, held)
	})

	t.Run("a context that ends leaves the queue", func(t *testing.T) {
		held := acquire(t, a, "leave", client.Exclusive())
		short, cancel := context.WithCancel(ctx)
		_, err := b.Acquire(short, "leave", client.Exclusive(), client.OnQueued(func(uint64) { cancel() }))
		if !errors.Is(err, context.Canceled) || errors.Is(err, client.ErrOutcomeUnknown) {
			t.Fatalf("got %v", err)
		}
		// The turn at the name is given up behind the release.
		l, err := b.TryAcquire(ctx, "elsewhere", client.Exclusive())
		if err != nil || l == nil {
			t.Fatal(l, err)
		}
		await.True(t, "the waiter to be gone", func() bool {
			sem, err := a.Node().Describe(ctx, "leave", client.IncludeWaiters(), client.ReadConsistency(client.Strict))
			return err == nil && len(sem.Waiters) == 0
		})
		release(t, held)
		release(t, acquire(t, b, "leave", client.Exclusive()))
	})

	t.Run("one lease per session and name", func(t *testing.T) {
		held := acquire(t, a, "one", client.CreateLimit(5), client.Count(2))
		if _, err := a.Acquire(ctx, "one"); !errors.Is(err, client.ErrAlreadyHeld) {
			t.Fatalf("got %v", err)
		}
		if err := held.Reduce(ctx, 1); err != nil || held.Count() != 1 {
			t.Fatal(err, held.Count())
		}
		if err := held.Reduce(ctx, 3); !errors.Is(err, client.ErrBadRequest) || held.Lost() != nil {
			t.Fatalf("raise: %v, lost %v", err, held.Lost())
		}
		if err := held.UpdateData(ctx, []byte("new")); err != nil {
			t.Fatal(err)
		}
		sem, err := a.Node().Describe(ctx, "one", client.IncludeOwners(), client.ReadConsistency(client.Strict))
		if err != nil || len(sem.Owners) != 1 || string(sem.Owners[0].Data) != "new" || sem.Owners[0].Count != 1 ||
			sem.Owners[0].Token != held.Token() {
			t.Fatalf("%+v, %v", sem, err)
		}
		release(t, held)
		if err := held.Release(ctx); err != nil {
			t.Fatal("second release:", err)
		}
		if held.Held() || held.Lost() != nil || !errors.Is(context.Cause(held.Context()), client.ErrReleased) {
			t.Fatal("released lease:", held.Held(), held.Lost(), context.Cause(held.Context()))
		}
		release(t, acquire(t, a, "one"))
	})

	t.Run("a limit lowered below what is held", func(t *testing.T) {
		other := dial(t, srv)
		owner := session(t, other)
		held := acquire(t, owner, "lowered", client.CreateLimit(5), client.Count(5))
		must(t, a.Resize(ctx, "lowered", 2))
		must(t, held.UpdateData(ctx, []byte("new")))
		must(t, held.Reduce(ctx, 4))
		heir, err := c.Restore(ctx, owner.Save())
		must(t, err)
		if _, err := heir.Acquire(ctx, "lowered", client.Count(5)); !errors.Is(err, client.ErrBadRequest) {
			t.Fatalf("more than it holds: %v", err)
		}
		again := acquire(t, heir, "lowered", client.Count(4))
		if again.Token() != held.Token() {
			t.Fatal(again.Token(), held.Token())
		}
		must(t, again.Reduce(ctx, 3))
		if _, err := b.Acquire(ctx, "lowered", client.Count(3)); !errors.Is(err, client.ErrBadRequest) {
			t.Fatalf("somebody who holds nothing: %v", err)
		}
		must(t, again.Reduce(ctx, 1))
		release(t, acquire(t, b, "lowered"))
		release(t, again)
	})

	t.Run("release with a context that ended", func(t *testing.T) {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		held := acquire(t, a, "late", client.Exclusive())
		if err := held.Release(ended); !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v", err)
		}
		release(t, acquire(t, b, "late", client.Exclusive()))
		release(t, acquire(t, a, "late", client.Exclusive()))
	})

	t.Run("bad arguments", func(t *testing.T) {
		for _, x := range []struct {
			name string
			opts []client.AcquireOption
			want error
		}{
			{"", nil, client.ErrBadRequest},
			{strings.Repeat("n", 1025), []client.AcquireOption{client.Ephemeral()}, client.ErrBadRequest},
			{"missing", nil, client.ErrNotFound},
			{"zero", []client.AcquireOption{client.Ephemeral(), client.Count(0)}, client.ErrBadRequest},
			{"big", []client.AcquireOption{client.Ephemeral(), client.Data(make([]byte, 1<<20+1))},
				client.ErrBadRequest},
			{"huge", []client.AcquireOption{client.Ephemeral(), client.Data(make([]byte, 2<<20))},
				client.ErrBadRequest},
			{"long", []client.AcquireOption{client.Ephemeral(), client.Wait(25 * time.Hour)}, client.ErrBadRequest},
			{"fifo", []client.AcquireOption{client.Ephemeral()}, client.ErrPreconditionFailed},
			{"limited", []client.AcquireOption{client.Ephemeral(), client.CreateLimit(2)}, client.ErrBadRequest},
			{"limited", []client.AcquireOption{client.CreateLimit(2), client.Shared()}, client.ErrBadRequest},
			{"fifo", []client.AcquireOption{client.Count(2)}, client.ErrBadRequest},
		} {
			if _, err := a.Acquire(ctx, x.name, x.opts...); !errors.Is(err, x.want) {
				t.Errorf("acquire %.20q: %v, want %v", x.name, err, x.want)
			}
		}
		if _, err := a.Mutex("limited").TryLock(ctx, client.CreateLimit(2)); !errors.Is(err, client.ErrBadRequest) {
			t.Errorf("a mutex with a limit: %v", err)
		}
		if a.State() != client.Attached {
			t.Error("the session did not survive bad requests:", a.Err())
		}
	})

	t.Run("taken away by force", func(t *testing.T) {
		held := acquire(t, a, "force", client.CreateLimit(1))
		waiting, _ := queue(t, b, "force")
		if err := b.Delete(ctx, "force", false); !errors.Is(err, client.ErrPreconditionFailed) {
			t.Fatalf("got %v", err)
		}
		if err := b.Delete(ctx, "force", true); err != nil {
			t.Fatal(err)
		}
		<-held.Context().Done()
		if !errors.Is(context.Cause(held.Context()), client.ErrLeaseLost) || !errors.Is(held.Lost(), client.ErrLeaseLost) || held.Held() {
			t.Fatal(context.Cause(held.Context()), held.Lost(), held.Held())
		}
		if _, err := waiting.get(); !errors.Is(err, client.ErrAborted) {
			t.Fatalf("waiter: %v", err)
		}
		if err := held.Release(ctx); !errors.Is(err, client.ErrLeaseLost) {
			t.Fatalf("release of a lost lease: %v", err)
		}
		release(t, acquire(t, a, "force", client.CreateLimit(1)))
	})
}

// TestManySessionsOneSemaphore has many goroutines on one connection take turns at few locks; the
// tokens of a name rise with every grant.
func TestManySessionsOneSemaphore(t *testing.T) {
	t.Parallel()
	node := shared.Node(t)
	ctx := testContext(t)
	c := dial(t, node)
	const workers, rounds, names = 32, 10, 3
	var mu sync.Mutex
	last := map[string]uint64{}
	inside := map[string]int{}
	var wg sync.WaitGroup
	for w := range workers {
		s := session(t, c)
		wg.Go(func() {
			for r := range rounds {
				name := fmt.Sprint("crowd", (w+r)%names)
				l, err := s.Mutex(name).Lock(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				inside[name]++
				if inside[name] != 1 || l.Token() <= last[name] {
					t.Errorf("%s: %d inside, token %d after %d", name, inside[name], l.Token(), last[name])
				}
				last[name] = l.Token()
				mu.Unlock()
				mu.Lock()
				inside[name]--
				mu.Unlock()
				if err := l.Release(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func acquire(t testing.TB, s *client.Session, name string, opts ...client.AcquireOption) *client.Lease {
	t.Helper()
	l, err := s.Acquire(testContext(t), name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func release(t testing.TB, l *client.Lease) {
	t.Helper()
	if err := l.Release(testContext(t)); err != nil {
		t.Fatal(err)
	}
}

// queue acquires what is not free, and comes back when the request is queued; orderID is its place.
func queue(t testing.TB, s *client.Session, name string, opts ...client.AcquireOption) (granted outcome[*client.Lease], orderID uint64) {
	t.Helper()
	accepted := make(chan uint64, 1)
	granted = async(func() (*client.Lease, error) {
		return s.Acquire(testContext(t), name, append(opts, client.OnQueued(func(id uint64) { accepted <- id }))...)
	})
	select {
	case id := <-accepted:
		return granted, id
	case f := <-granted.done:
		l, err := f()
		t.Fatalf("not queued: %v, %v", l, err)
		return granted, 0
	}
}

type outcome[T any] struct{ done chan func() (T, error) }

// async runs f and keeps what it returns.
func async[T any](f func() (T, error)) outcome[T] {
	o := outcome[T]{make(chan func() (T, error), 1)}
	go func() {
		v, err := f()
		o.done <- func() (T, error) { return v, err }
	}()
	return o
}

func (o outcome[T]) get() (T, error) { return (<-o.done)() }

func (o outcome[T]) must(t testing.TB) T {
	t.Helper()
	v, err := o.get()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// while gets the outcome, and does something again and again until it is there.
func (o outcome[T]) while(t testing.TB, again func()) T {
	t.Helper()
	for {
		select {
		case f := <-o.done:
			v, err := f()
			if err != nil {
				t.Fatal(err)
			}
			return v
		case <-time.After(time.Millisecond):
			again()
		}
	}
}
