package integration

import (
	"errors"
	"maps"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// queueClient is a client with a session, for one semaphore. A plain one knows nothing of queues: it
// asks for nothing of them, and its hello does not say that it understands their events.
type queueClient struct {
	*raw
	node, session uint64
	sem           string
}

func newQueueClient(t *testing.T, s *instance, sem string, n uint64) *queueClient {
	c := connect(t, s)
	node := c.node()
	return &queueClient{c, node, c.session(node, n).Session, sem}
}

// acquire asks for a unit. One that waits has no bound but the session's end.
func (c *queueClient) acquire(waits bool, o *protocol.AcquireOptions) (r protocol.AcquireReply, err error) {
	c.t.Helper()
	m := &protocol.Acquire{Head: c.head(c.session), Name: []byte(c.sem), Count: 1, Options: o}
	if waits {
		m.Timeout = protocol.Forever
	}
	err = c.call(protocol.KindAcquire, c.bucket(c.node, c.sem), m, &r)
	return r, err
}

func (c *queueClient) queue(o *protocol.AcquireOptions) {
	c.t.Helper()
	if r, err := c.acquire(true, o); err != nil || r.State != protocol.Queued {
		c.t.Fatalf("%s: asked to wait: %+v, %v", c.sem, r, err)
	}
}

// granted waits for the grant.
func (c *queueClient) granted() (token uint64) {
	c.t.Helper()
	var r protocol.AcquireResult
	if c.event(protocol.KindAcquireResult, &r); r.Status != protocol.StatusOK || r.State != protocol.Acquired {
		c.t.Fatalf("%s: the wait ended with %+v", c.sem, r)
	}
	return r.OrderID
}

func (c *queueClient) release(token uint64) {
	c.t.Helper()
	m := &protocol.Release{Head: c.head(c.session), Name: []byte(c.sem), OrderID: token}
	var r protocol.ReleaseReply
	if c.must(protocol.KindRelease, c.bucket(c.node, c.sem), m, &r); !r.Released {
		c.t.Fatalf("%s: token %d was not released", c.sem, token)
	}
}

// wasSentNothing checks that no event came but those that were waited for, and preemptions, which a
// plain client passes over.
func (c *queueClient) wasSentNothing() {
	c.t.Helper()
	c.ping() // behind all events so far
	for _, h := range c.later {
		if h.Kind == protocol.KindLeasePreempted {
			continue
		}
		c.t.Errorf("%s: a plain client was sent %v", c.sem, h.Kind)
	}
}

func (c *queueClient) owner() (o protocol.Owner) {
	c.t.Helper()
	d, err := c.describe(c.node, c.sem, protocol.Strict)
	if err != nil || len(d.Owners) != 1 {
		c.t.Fatalf("%s: described as %+v, %v", c.sem, d, err)
	}
	return d.Owners[0]
}

// watched is a plain client's copy of the owners of a semaphore. It skips changes that it does not know.
type watched struct {
	*queueClient
	owners map[uint64]uint64 // session by order id
}

func (c *queueClient) watch() *watched {
	c.t.Helper()
	w := &watched{c, map[uint64]uint64{}}
	b := c.bucket(c.node, c.sem)
	c.must(protocol.KindWatch, b, &protocol.Watch{Shard: c.s.shardAt(0, b).ID(), Node: c.node, Name: []byte(c.sem)}, nil)
	for {
		var page protocol.Snapshot
		c.event(protocol.KindSnapshot, &page)
		for _, x := range page.Semaphores {
			for _, o := range x.Owners {
				w.owners[o.OrderID] = o.Session
			}
		}
		if page.Last {
			return w
		}
	}
}

// sees follows the stream until the only owner is this one.
func (w *watched) sees(token uint64, owner *queueClient) {
	w.t.Helper()
	want := map[uint64]uint64{token: owner.session}
	for !maps.Equal(w.owners, want) {
		var delta protocol.Delta
		w.event(protocol.KindDelta, &delta)
		for _, x := range delta.Changes {
			switch x.Kind {
			case protocol.ChangeOwnerAdded:
				w.owners[x.Owner.OrderID] = x.Owner.Session
			case protocol.ChangeOwnerRemoved:
				delete(w.owners, x.Owner.OrderID)
			}
		}
	}
}

// TestPlainClientOnQueues: clients that know nothing of queues use semaphores of each kind beside those
// that do. They have level 5, the empty key and any slot, they learn tokens and owners as of plain
// semaphores, and keep what is wanted of them.
func TestPlainClientOnQueues(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	level := func(n uint8) *protocol.AcquireOptions { return &protocol.AcquireOptions{Priority: n + 1} }
	key := func(k string) *protocol.AcquireOptions { return &protocol.AcquireOptions{Key: []byte(k)} }
	for n, x := range []struct {
		name        string
		options     protocol.SemaphoreOptions
		low, high   *protocol.AcquireOptions // of those that know queues and wait before a plain one, and behind it
		order       []int                    // in which the three are served
		silentOwner bool
	}{
		{"slots", protocol.SemaphoreOptions{Slots: []protocol.Slot{{Name: "g0", Labels: []string{"big"}}}},
			&protocol.AcquireOptions{Labels: []string{"big"}}, &protocol.AcquireOptions{Names: []string{"g0"}},
			[]int{0, 1, 2}, false},
		{"priority", protocol.SemaphoreOptions{Policy: protocol.PolicyPriority}, level(1), level(9), []int{2, 1, 0}, false},
		{"fair", protocol.SemaphoreOptions{Policy: protocol.PolicyFair,
			Weights: []protocol.Weight{{Key: []byte("a"), Weight: 3}}}, key("b"), key("a"), []int{2, 0, 1}, false},
		{"preempted", protocol.SemaphoreOptions{Policy: protocol.PolicyPriority, Preempt: protocol.PreemptLower, Grace: 1_000},
			level(1), level(9), []int{2, 1, 0}, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			client := func(i uint64) *queueClient { return newQueueClient(t, s, x.name, uint64(n)*10+i) }
			first, waits := client(0), []*queueClient{client(1), client(2), client(3)}
			first.must(protocol.KindCreate, first.bucket(first.node, x.name),
				&protocol.Create{Head: first.head(first.session), Name: []byte(x.name), Limit: 1, Options: &x.options}, nil)
			copied := client(4).watch()
			r, err := first.acquire(false, nil)
			if err != nil || r.State != protocol.Acquired {
				t.Fatalf("a plain client is answered %+v, %v", r, err)
			}
			last := r.OrderID
			copied.sees(last, first)
			for i, o := range []*protocol.AcquireOptions{x.low, nil, x.high} {
				waits[i].queue(o)
			}
			if x.silentOwner {
				await.True(t, "the end of the grace", func() bool {
					o := first.owner().Options
					return o != nil && o.Silent
				})
			}
			first.wasSentNothing()
			first.release(last)
			for _, i := range x.order {
				token := waits[i].granted()
				if token <= last {
					t.Errorf("token %d after %d", token, last)
				}
				last = token
				copied.sees(last, waits[i])
				if o := waits[i].owner(); o.OrderID != last || o.Session != waits[i].session {
					t.Errorf("the owner is %+v, want token %d of session %d", o, last, waits[i].session)
				}
				waits[i].release(last)
			}
		})
	}
}

// TestPlainClientAtBounds: a client that does not know bounds gets no hold that has one: it is refused,
// and told why. One that has waited since before has no bound.
func TestPlainClientAtBounds(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	const name = "bounded"
	holder, plain, other := newQueueClient(t, s, name, 1), newQueueClient(t, s, name, 2), newQueueClient(t, s, name, 3)
	at := holder.bucket(holder.node, name)
	create := &protocol.Create{Head: holder.head(holder.session), Name: []byte(name), Limit: 1}
	holder.must(protocol.KindCreate, at, create, nil)
	copied := other.watch()
	r, err := holder.acquire(false, nil)
	if err != nil || r.State != protocol.Acquired {
		t.Fatalf("%+v, %v", r, err)
	}
	plain.queue(nil)
	holder.must(protocol.KindAlter, at, &protocol.Alter{Head: holder.head(holder.session), Name: []byte(name),
		Fields: protocol.AlterMaxHold, Options: protocol.SemaphoreOptions{MaxHold: protocol.MinHold}}, nil)
	for _, waits := range []bool{false, true} {
		_, err := other.acquire(waits, nil)
		refused, ok := errors.AsType[*protocol.Error](err)
		if !ok || refused.Refusal != protocol.RefusalBound {
			t.Errorf("a hold that would have a bound, of a plain client that waits: %t: %v", waits, err)
		}
	}
	if o := holder.owner(); o.Options != nil && o.Options.Left != 0 {
		t.Errorf("an owner from before the alter has %d ms left", o.Options.Left)
	}
	holder.release(r.OrderID)
	token := plain.granted()
	copied.sees(token, plain)
	if o := plain.owner(); o.OrderID != token || o.Options != nil && o.Options.Left != 0 {
		t.Errorf("a waiter from before the alter is the owner %+v", o)
	}
	knows := &protocol.AcquireOptions{Flags: protocol.KnowsBounds}
	other.queue(knows)
	plain.release(token)
	token = other.granted()
	if o := other.owner(); o.Options == nil || o.Options.Left == 0 {
		t.Error("who knows bounds has none")
	}
	var lost protocol.LeaseLost
	if other.event(protocol.KindLeaseLost, &lost); lost.OrderID != token || lost.Cause != protocol.HoldMaxHold {
		t.Errorf("the hold that has a bound ends with %+v", lost)
	}
	plain.wasSentNothing()
}
