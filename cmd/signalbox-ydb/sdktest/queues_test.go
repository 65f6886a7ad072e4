package sdktest

import (
	"slices"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// queued waits until a session of signalbox's own SDK is in a queue.
func queued(t *testing.T, s *client.Session, name string, opts ...client.AcquireOption) (granted <-chan *client.Lease) {
	t.Helper()
	accepted, done := make(chan struct{}), make(chan *client.Lease, 1)
	go func() {
		opts = append(opts, client.OnAccepted(func(uint64) { close(accepted) }))
		l, err := s.Acquire(testContext(t), name, opts...)
		if err != nil {
			t.Error(err)
		}
		done <- l
	}()
	<-accepted
	return done
}

func released(t *testing.T, l *client.Lease) {
	t.Helper()
	if err := l.Release(testContext(t)); err != nil {
		t.Fatal(err)
	}
}

// TestSlotsAndShares: a client of YDB's protocol takes any slot, with the empty key. The order id of
// a waiter is its place, and that of an owner its token, which every grant raises.
func TestSlotsAndShares(t *testing.T) {
	t.Parallel()
	cc, path := oneGateway(t)
	own := nativeSession(t, sharedCluster(t).Addrs(), path)
	err := own.Create(testContext(t), "gpu", 2, nil, client.NumberedSlots(), client.ByKey(map[string]uint64{"batch": 3}))
	if err != nil {
		t.Fatal(err)
	}
	a, b := newSession(t, cc, path), newSession(t, cc, path)
	a.acquire(1, "gpu", 1, 0, "a", false)
	a.expect("1 acquired=true")
	l, err := own.Acquire(testContext(t), "gpu", client.Key("batch"))
	if err != nil {
		t.Fatal(err)
	}
	b.acquire(1, "gpu", 1, forever, "b", false)
	b.expect("1 pending")
	a.describe(&describeSemaphore{ReqId: 2, Name: "gpu", IncludeOwners: true, IncludeWaiters: true, WatchOwners: true})
	entries := func(s *rawStream) (orders []uint64) {
		t.Helper()
		d := s.next().GetDescribeSemaphoreResult().GetSemaphoreDescription()
		if d.GetCount() != 2 || d.GetLimit() != 2 {
			t.Fatalf("described as %v", d)
		}
		for _, e := range slices.Concat(d.GetOwners(), d.GetWaiters()) {
			orders = append(orders, e.GetOrderId())
		}
		return orders
	}
	if got := entries(a); !slices.Equal(got, []uint64{1, 2, 3}) {
		t.Errorf("owners and waiters have the order ids %v", got)
	}
	released(t, l)
	b.expect("1 acquired=true")
	a.expect("2 changed data=false owners=true")
	b.describe(&describeSemaphore{ReqId: 2, Name: "gpu", IncludeOwners: true, IncludeWaiters: true})
	if got := entries(b); !slices.Equal(got, []uint64{1, 4}) {
		t.Errorf("owners have the order ids %v", got)
	}
	a.acquire(3, "gpu", 3, 0, "", false)
	a.expect("3 acquired=false BAD_REQUEST")
}

// TestWantedIgnored: a client of YDB's protocol waits at level 5. It keeps its units when they are
// wanted.
func TestWantedIgnored(t *testing.T) {
	t.Parallel()
	cc, path := oneGateway(t)
	endpoints := sharedCluster(t).Addrs()
	high, low := nativeSession(t, endpoints, path), nativeSession(t, endpoints, path)
	err := high.Create(testContext(t), "crane", 1, nil, client.ByPriority(0), client.Wanted(client.WantedHigher), client.Grace(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	a, b := newSession(t, cc, path), newSession(t, cc, path)
	a.acquire(1, "crane", 1, 0, "a", false)
	a.expect("1 acquired=true")
	last := queued(t, low, "crane", client.Priority(1))
	b.acquire(1, "crane", 1, forever, "b", false)
	b.expect("1 pending")
	first := queued(t, high, "crane", client.Priority(9))
	await.True(t, "the end of the grace", func() bool {
		sem, err := high.Node().Describe(testContext(t), "crane", client.IncludeOwners())
		if err != nil || len(sem.Owners) != 1 {
			t.Fatal(sem, err)
		}
		return sem.Owners[0].Silent
	})
	a.describe(&describeSemaphore{ReqId: 2, Name: "crane", IncludeOwners: true, WatchOwners: true})
	a.expect(`2 described "" 1/1 ephemeral=false watch=true owner(1 "a")`)
	a.release(3, "crane")
	got := []string{text(a.next()), text(a.next())}
	if slices.Sort(got); !slices.Equal(got, []string{"2 changed data=false owners=true", "3 released=true"}) {
		t.Errorf("after the release: %q", got)
	}
	released(t, <-first)
	b.expect("1 acquired=true")
	b.release(2, "crane")
	b.expect("2 released=true")
	released(t, <-last)
}
