package client_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// wants makes locks of AcquireAll. queued gets the name of each that is waited for.
func wants(queued chan<- string, names ...string) (list []client.Want) {
	for _, name := range names {
		list = append(list, client.Want{Name: name, Options: []client.AcquireOption{
			client.Exclusive(), client.OnQueued(func(uint64) { queued <- name }),
		}})
	}
	return list
}

func TestAcquireAll(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	ctx := testContext(t)
	c := dial(t, srv)
	s, other, third := session(t, c), session(t, c), session(t, c)
	queued := make(chan string, 100)

	t.Run("in the order of bytes, and back", func(t *testing.T) {
		must(t, s.Create(ctx, "n", 3, nil))
		g, err := s.AcquireAll(ctx, []client.Want{{Name: "b"}, {Name: "n", Options: []client.AcquireOption{client.Count(2)}}, {Name: "B"}},
			client.CreateLimit(1))
		must(t, err)
		var names string
		for _, l := range g.Leases() {
			names += l.Name()
		}
		if names != "Bbn" || g.Lease("n").Count() != 2 || g.Lease("b").Count() != 1 || g.Lease("x") != nil || !g.Held() {
			t.Errorf("acquired %q", names)
		}
		must(t, g.Release(ctx))
		if g.Held() || !errors.Is(context.Cause(g.Context()), client.ErrReleased) {
			t.Error("held after the release:", context.Cause(g.Context()))
		}
		sem, err := s.Node().Describe(ctx, "n")
		if must(t, err); sem.Used != 0 {
			t.Error("units left:", sem.Used)
		}
	})

	t.Run("a wait while holding is bounded", func(t *testing.T) {
		held := acquire(t, other, "y", client.Exclusive())
		all := async(func() (*client.LeaseGroup, error) {
			return s.AcquireAll(ctx, wants(queued, "y", "x"), client.HoldWhileWaiting(time.Second))
		})
		if name := <-queued; name != "y" {
			t.Fatal("waits for", name)
		}
		first, _ := queue(t, third, "x", client.Exclusive())
		srv.Advance(1001 * time.Millisecond)
		x := first.must(t)
		if name := <-queued; name != "x" {
			t.Fatal("waits for", name)
		}
		release(t, x)
		release(t, held)
		g := all.must(t)
		if len(g.Leases()) != 2 {
			t.Error("it has not got both")
		}
		must(t, g.Release(ctx))
	})

	t.Run("a wait while holding keeps its place", func(t *testing.T) {
		held := acquire(t, other, "y", client.Exclusive())
		places := make(chan uint64, 1)
		all := async(func() (*client.LeaseGroup, error) {
			return s.AcquireAll(ctx, []client.Want{{Name: "x"}, {Name: "y"}}, client.Exclusive(),
				client.OnQueued(func(token uint64) { places <- token }))
		})
		place := <-places
		second, _ := queue(t, third, "y", client.Exclusive())
		srv.Advance(time.Minute)
		if l, err := third.TryAcquire(ctx, "x", client.Exclusive()); !errors.Is(err, client.ErrNotAcquired) {
			t.Error("x was given back:", l, err)
		}
		release(t, held)
		g := all.must(t)
		if g.Lease("y").Token() != place {
			t.Errorf("y has token %d, and was queued at %d", g.Lease("y").Token(), place)
		}
		must(t, g.Release(ctx))
		release(t, second.must(t))
	})

	t.Run("a try, and the end of a wait", func(t *testing.T) {
		held := acquire(t, other, "y", client.Exclusive())
		if g, err := s.AcquireAll(ctx, wants(queued, "x", "y"), client.Wait(0)); g != nil || !errors.Is(err, client.ErrNotAcquired) {
			t.Error("tried:", err)
		}
		free(t, third, "x")
		all := async(func() (*client.LeaseGroup, error) {
			return s.AcquireAll(ctx, wants(queued, "x", "y"), client.Wait(time.Second))
		})
		<-queued
		srv.Advance(1001 * time.Millisecond)
		if _, err := all.get(); !errors.Is(err, client.ErrNotAcquired) {
			t.Error("waited:", err)
		}
		free(t, third, "x")
		short, cancel := context.WithCancel(ctx)
		all = async(func() (*client.LeaseGroup, error) { return s.AcquireAll(short, wants(queued, "x", "y")) })
		<-queued
		cancel()
		if _, err := all.get(); !errors.Is(err, context.Canceled) {
			t.Error("given up:", err)
		}
		release(t, acquire(t, third, "x", client.Exclusive())) // once it is given back
		release(t, held)
		release(t, acquire(t, third, "y", client.Exclusive()))
	})

	t.Run("a name that is held already", func(t *testing.T) {
		own := acquire(t, s, "y", client.Exclusive())
		if _, err := s.AcquireAll(ctx, wants(queued, "x", "y")); !errors.Is(err, client.ErrAlreadyHeld) {
			t.Error("acquired again:", err)
		}
		free(t, third, "x")
		release(t, own)
	})

	t.Run("one is lost", func(t *testing.T) {
		held := acquire(t, other, "y", client.Exclusive())
		all := async(func() (*client.LeaseGroup, error) { return s.AcquireAll(ctx, wants(queued, "x", "y")) })
		<-queued
		force(t, s, "x")
		if _, err := all.get(); !errors.Is(err, client.ErrLeaseLost) {
			t.Error("lost while waiting:", err)
		}
		release(t, held)
		g, err := s.AcquireAll(ctx, wants(queued, "x", "y"))
		must(t, err)
		force(t, s, "x")
		<-g.Context().Done()
		if !errors.Is(context.Cause(g.Context()), client.ErrLeaseLost) || g.Held() || !g.Lease("y").Held() {
			t.Error("lost:", context.Cause(g.Context()), g.Lease("y").Lost())
		}
		if err := g.Release(ctx); !errors.Is(err, client.ErrLeaseLost) {
			t.Error("released:", err)
		}
		free(t, third, "y")
	})

	t.Run("wrong", func(t *testing.T) {
		for _, f := range []func() (*client.LeaseGroup, error){
			func() (*client.LeaseGroup, error) { return s.AcquireAll(ctx, nil) },
			func() (*client.LeaseGroup, error) { return s.AcquireAll(ctx, make([]client.Want, 17)) },
			func() (*client.LeaseGroup, error) { return s.AcquireAll(ctx, wants(queued, "x", "")) },
			func() (*client.LeaseGroup, error) { return s.AcquireAll(ctx, wants(queued, "x", "z", "x")) },
			func() (*client.LeaseGroup, error) {
				return s.AcquireAll(ctx, wants(queued, "x"), client.HoldWhileWaiting(time.Millisecond))
			},
			func() (*client.LeaseGroup, error) {
				return s.AcquireAll(ctx, []client.Want{{Name: "x", Options: []client.AcquireOption{client.Wait(0)}}})
			},
			func() (*client.LeaseGroup, error) {
				return s.AcquireAll(ctx, wants(queued, "x"), client.CreateLimit(2))
			},
		} {
			if g, err := f(); g != nil || !errors.Is(err, client.ErrBadRequest) {
				t.Errorf("acquired %v, %v", g, err)
			}
		}
		if _, err := s.Acquire(ctx, "x", client.Exclusive(),
			client.HoldWhileWaiting(time.Second)); !errors.Is(err, client.ErrBadRequest) {
			t.Error("one name:", err)
		}
		free(t, third, "x")
	})
}

// TestAcquireAllOfMany: sessions that want overlapping names get all of theirs, one after the other,
// also beside sessions that nest single locks in the opposite order.
func TestAcquireAllOfMany(t *testing.T) {
	t.Parallel()
	node := shared.Node(t)
	ctx := testContext(t)
	c := dial(t, node)
	const names, sessions, rounds = 16, 24, 3
	var holders [names]atomic.Int32
	var wg sync.WaitGroup
	for i := range sessions {
		s, r := session(t, c), rand.New(rand.NewPCG(uint64(i), 1))
		wg.Go(func() {
			for range rounds {
				mine := r.Perm(names)[:1+r.IntN(6)]
				var list []client.Want
				for _, n := range mine {
					list = append(list, client.Want{Name: fmt.Sprintf("many-%02d", n)})
				}
				g, err := s.AcquireAll(ctx, list, client.Exclusive(), client.HoldWhileWaiting(time.Minute))
				if err != nil || len(g.Leases()) != len(mine) {
					t.Errorf("session %d: %v", i, err)
					return
				}
				for _, n := range mine {
					if holders[n].Add(1) != 1 {
						t.Errorf("two hold %d", n)
					}
				}
				for _, n := range mine {
					holders[n].Add(-1)
				}
				if err := g.Release(ctx); err != nil {
					t.Errorf("session %d: %v", i, err)
				}
			}
		})
	}
	wg.Wait()
}

// TestAcquireAllBesideNestedLocks: a caller that nests single locks in the other order is not
// deadlocked for longer than the bound.
func TestAcquireAllBesideNestedLocks(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	ctx := testContext(t)
	c := dial(t, srv)
	s, nests := session(t, c), session(t, c)
	queued := make(chan string, 100)
	b := acquire(t, nests, "b", client.Exclusive())
	all := async(func() (*client.LeaseGroup, error) {
		return s.AcquireAll(ctx, wants(queued, "a", "b"), client.HoldWhileWaiting(time.Second))
	})
	<-queued
	second, _ := queue(t, nests, "a", client.Exclusive())
	srv.Advance(1001 * time.Millisecond)
	release(t, second.must(t))
	release(t, b)
	must(t, all.must(t).Release(ctx))
}

// free says if nobody holds a lock.
func free(t *testing.T, s *client.Session, name string) {
	t.Helper()
	l, err := s.TryAcquire(testContext(t), name, client.Exclusive())
	if err != nil || l == nil {
		t.Fatalf("%s is not free: %v", name, err)
	}
	release(t, l)
}

// force takes a lock away from its holder.
func force(t *testing.T, s *client.Session, name string) {
	t.Helper()
	ctx := testContext(t)
	sem, err := s.Node().Describe(ctx, name, client.IncludeOwners(), client.ReadConsistency(client.Strict))
	must(t, err)
	token := sem.Owners[0].Token
	if n, err := admin.OfNode(s.Node()).ForceRelease(ctx, name, token, token, "a test"); err != nil || n != 1 {
		t.Fatal(n, err)
	}
}
