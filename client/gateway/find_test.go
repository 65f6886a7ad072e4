package gateway_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/gateway"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// TestFind: a session is found by the create id that its gateway chose, with what a successor
// needs, from its start to its end, and an ended one is not made again.
func TestFind(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	one, two := openNode(t, srv), openNode(t, srv)
	ctx := testContext(t)
	create, key := gateway.CreateID{7}, gateway.Key{1}
	if _, err := gateway.Find(ctx, one, create); !errors.Is(err, client.ErrSessionExpired) {
		t.Fatal(err)
	}
	s, err := gateway.StartAs(ctx, one, create, key, client.Timeout(20*time.Second), client.Description("ci run 42"))
	must(t, err)
	found, err := gateway.Find(ctx, two, create)
	must(t, err)
	if want := (gateway.Found{Session: s.ID(), Epoch: 1, Timeout: 20 * time.Second, Description: "ci run 42"}); found != want {
		t.Fatalf("found %+v, want %+v", found, want)
	}
	if _, err := gateway.StartAs(ctx, two, create, key); !errors.Is(err, client.ErrBadSession) {
		t.Fatalf("a second start by the same create id: %v", err)
	}
	if _, err := gateway.StartAs(ctx, two, create, gateway.Key{2}); !errors.Is(err, client.ErrBadSession) {
		t.Fatalf("a start with another key: %v", err)
	}
	next, err := gateway.Attach(ctx, two, gateway.Takeover{Session: found.Session, Key: key, Epoch: 1 << 32, FirstNumber: 1 << 40})
	must(t, err)
	if found, err = gateway.Find(ctx, one, create); err != nil || found.Epoch != 1<<32 {
		t.Fatal(found, err)
	}
	must(t, next.Close(ctx))
	for _, n := range []*client.Node{one, two} {
		if _, err := gateway.Find(ctx, n, create); !errors.Is(err, client.ErrSessionExpired) {
			t.Fatal(err)
		}
		if _, err := gateway.StartAs(ctx, n, create, key); !errors.Is(err, protocol.StatusSessionExpired) {
			t.Fatalf("the create id of an ended session: %v", err)
		}
	}
}

// TestIgnorePreemption: an owner that a waiter preempts is told, and keeps them beyond the
// grace that others have. Its session counts as silent.
func TestIgnorePreemption(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	n := openNode(t, srv)
	ctx := testContext(t)
	owner, err := gateway.Start(ctx, n, gateway.Key{1}, client.Timeout(time.Minute))
	must(t, err)
	waiter, err := gateway.Start(ctx, n, gateway.Key{2}, client.Timeout(time.Minute))
	must(t, err)
	must(t, owner.Create(ctx, "gpu", 1, nil, client.SemaphoreConfig{Preempt: client.PreemptAny, Grace: time.Second}))
	l, err := owner.Acquire(ctx, "gpu", gateway.IgnorePreemption())
	must(t, err)
	got := make(chan error, 1)
	go func() {
		_, err := waiter.Acquire(ctx, "gpu")
		got <- err
	}()
	<-l.Preempted()
	silent := func() bool {
		sem, err := n.Describe(ctx, "gpu", client.IncludeOwners(), client.ReadConsistency(client.Strict))
		must(t, err)
		return len(sem.Owners) == 1 && sem.Owners[0].Session == owner.ID() && sem.Owners[0].Silent
	}
	for !silent() {
		srv.Advance(500 * time.Millisecond)
	}
	if !l.Held() || !l.Until().IsZero() {
		t.Fatalf("held %t, until %s", l.Held(), l.Until())
	}
	must(t, l.Release(ctx))
	must(t, <-got)
}

// atAcquire observes a client: f is called when an acquire begins.
type atAcquire struct {
	client.Observer
	f func()
}

func (o *atAcquire) AcquireStarted(context.Context, client.AcquireStart) client.AcquireObserver {
	o.f()
	return nil
}
func (o *atAcquire) ConnectionChanged(client.ConnectionChange) {}
func (o *atAcquire) SessionChanged(client.SessionChange)       {}
func (o *atAcquire) RequestRetried(client.RequestRetry)        {}

// TestLeasesGivenUp: a session that was attached keeps what it holds, whenever the one that makes leases
// of it is given up.
func TestLeasesGivenUp(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	giveUp := func() {}
	c, err := client.Open(testContext(t), client.Config{Endpoints: []string{srv.Addr()}, Observer: &atAcquire{f: func() { giveUp() }}})
	must(t, err)
	t.Cleanup(c.CloseWithoutRelease)
	one := openNode(t, srv)
	two, err := c.Node(testContext(t), "/default")
	must(t, err)
	create, key := gateway.CreateID{7}, gateway.Key{1}
	s, err := gateway.StartAs(testContext(t), one, create, key, client.Timeout(time.Minute))
	must(t, err)
	l, err := s.Acquire(testContext(t), "lock", client.Ephemeral(), client.Count(client.Max))
	must(t, err)
	rng := rand.New(rand.NewPCG(1, 1))
	for try := range 200 {
		found, err := gateway.Find(testContext(t), two, create)
		must(t, err)
		moved, err := gateway.Attach(testContext(t), two, found.Next(key))
		must(t, err)
		ctx, cancel := context.WithCancel(testContext(t))
		giveUp = func() { time.AfterFunc(time.Duration(rng.Int64N(int64(time.Millisecond))), cancel) }
		for _, err := range gateway.Leases(ctx, moved, func(string, bool) bool { return true }) {
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		cancel()
		sem, err := one.Describe(testContext(t), "lock", client.IncludeOwners(), client.ReadConsistency(client.Strict))
		if err != nil || len(sem.Owners) != 1 || sem.Owners[0].Token != l.Token() {
			t.Fatalf("after try %d the semaphore is %+v, %v", try, sem, err)
		}
	}
}
