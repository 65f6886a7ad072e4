package sdktest

import (
	"slices"
	"testing"
	"time"

	"github.com/ydb-platform/ydb-go-sdk/v3/coordination"
	"github.com/ydb-platform/ydb-go-sdk/v3/coordination/options"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// queued waits until a session of signalbox's own SDK is in a queue.
func queued(t *testing.T, s *client.Session, name string, opts ...client.AcquireOption) (granted <-chan *client.Lease) {
	t.Helper()
	accepted, done := make(chan struct{}), make(chan *client.Lease, 1)
	go func() {
		opts = append(opts, client.OnQueued(func(uint64) { close(accepted) }))
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
	err := own.Create(testContext(t), "gpu", 2, nil, client.SemaphoreConfig{Numbered: true,
		Policy: client.PolicyFair, Weights: map[string]uint64{"batch": 3}})
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
	// A node's order ids begin above those of nodes that were deleted before it.
	first := entries(a)
	if len(first) != 3 || first[1] != first[0]+1 || first[2] != first[0]+2 {
		t.Fatalf("owners and waiters have the order ids %v", first)
	}
	released(t, l)
	b.expect("1 acquired=true")
	a.expect("2 changed data=false owners=true")
	b.describe(&describeSemaphore{ReqId: 2, Name: "gpu", IncludeOwners: true, IncludeWaiters: true})
	if got := entries(b); !slices.Equal(got, []uint64{first[0], first[0] + 3}) {
		t.Errorf("owners have the order ids %v, after %v", got, first)
	}
	a.acquire(3, "gpu", 3, 0, "", false)
	a.expect("3 acquired=false BAD_REQUEST")
}

// TestPreemptionIgnored: a client of YDB's protocol waits at level 5. It keeps its units when they
// are preempted.
func TestPreemptionIgnored(t *testing.T) {
	t.Parallel()
	cc, path := oneGateway(t)
	endpoints := sharedCluster(t).Addrs()
	high, low := nativeSession(t, endpoints, path), nativeSession(t, endpoints, path)
	err := high.Create(testContext(t), "crane", 1, nil, client.SemaphoreConfig{Policy: client.PolicyPriority,
		Preempt: client.PreemptLower, Grace: time.Second})
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

// TestSDKOnQueues: the Go SDK holds, waits and watches on each kind of semaphore, beside sessions of
// signalbox's own SDK that wait before it and behind it. Where holds have a bound it is refused.
func TestSDKOnQueues(t *testing.T) {
	t.Parallel()
	endpoints := sharedCluster(t).Addrs()
	address, _ := startGateway(t, endpoints)
	db := openSDK(t, address)
	path := sdkNode(t, db)
	ctx := testContext(t)
	holds, waits, watches := sdkSession(t, db, path), sdkSession(t, db, path), sdkSession(t, db, path)
	low, high := nativeSession(t, endpoints, path), nativeSession(t, endpoints, path)
	big := client.Slot{Name: "g0", Labels: []string{"big"}}
	for _, x := range []struct {
		name        string
		config      client.SemaphoreConfig
		first, last client.AcquireOption // of those that wait before the Go SDK, and behind it
		order       string               // in which they are served: f, l, and s for the SDK
		bounded     bool
	}{
		{"slots", client.SemaphoreConfig{Slots: []client.Slot{big}}, client.Labels("big"), client.Slots("g0"),
			"fsl", false},
		{"priority", client.SemaphoreConfig{Policy: client.PolicyPriority}, client.Priority(1), client.Priority(9), "lsf", false},
		{"fair", client.SemaphoreConfig{Policy: client.PolicyFair, Weights: map[string]uint64{"a": 3}},
			client.Key("b"), client.Key("a"), "lfs", false},
		{"preempted", client.SemaphoreConfig{Preempt: client.PreemptAny, Grace: time.Minute},
			client.Priority(1), client.Priority(9), "fsl", false},
		{"bounded", client.SemaphoreConfig{MaxHold: time.Hour}, nil, nil, "", true},
	} {
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s: %v", x.name, err)
			}
		}
		changed := make(chan options.SemaphoreWatchEvent, 1)
		last := uint64(0)
		// watch checks the only owner, and arms a watch.
		watch := func(owner uint64) {
			t.Helper()
			notify := func(e options.SemaphoreWatchEvent) { changed <- e }
			d, err := watches.DescribeSemaphore(ctx, x.name,
				options.WithDescribeOwners(true), options.WithSemaphoreWatch(options.WatchOwners, notify))
			if must(err); len(d.Owners) != 1 || d.Owners[0].SessionID != owner || d.Owners[0].OrderID <= last || d.Limit != 1 {
				t.Fatalf("%s: described as %+v, with %+v; want an owner %d after token %d", x.name, d, d.Owners, owner, last)
			}
			last = d.Owners[0].OrderID
		}
		fires := func() {
			t.Helper()
			select {
			case e := <-changed:
				if !e.OwnersChanged {
					t.Fatalf("%s: the watch says %+v", x.name, e)
				}
			case <-ctx.Done():
				t.Fatalf("%s: the watch does not fire", x.name)
			}
		}
		must(low.Create(ctx, x.name, 1, nil, x.config))
		lease, err := holds.AcquireSemaphore(ctx, x.name, 1)
		if x.bounded {
			if err != coordination.ErrAcquireTimeout { // which is what the Go SDK makes of any refusal
				t.Errorf("the Go SDK makes %v of the refusal of a hold that would have a bound", err)
			}
			raw := newSession(t, dialRaw(t, address), path)
			raw.acquire(1, x.name, 1, forever, "", false)
			raw.expect("1 acquired=false PRECONDITION_FAILED")
			l, err := low.Acquire(ctx, x.name)
			must(err)
			watch(low.ID())
			released(t, l)
			fires()
			continue
		}
		must(err)
		watch(holds.SessionID())
		first := queued(t, low, x.name, x.first)
		second := make(chan coordination.Lease, 1)
		go func() {
			l, err := waits.AcquireSemaphore(ctx, x.name, 1)
			if err != nil {
				t.Error(err)
			}
			second <- l
		}()
		await.True(t, "the Go SDK to wait", func() bool {
			sem, err := low.Node().Describe(ctx, x.name, client.IncludeWaiters())
			return err == nil && len(sem.Waiters) == 2
		})
		third := queued(t, high, x.name, x.last)
		must(lease.Release())
		fires()
		for _, who := range x.order {
			switch who {
			case 's':
				l := <-second
				if l == nil {
					t.FailNow()
				}
				watch(waits.SessionID())
				must(l.Release())
			case 'f':
				l := <-first
				watch(low.ID())
				released(t, l)
			case 'l':
				l := <-third
				watch(high.ID())
				released(t, l)
			}
			fires()
		}
	}
}
