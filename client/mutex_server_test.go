package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
)

func TestMutex(t *testing.T) {
	t.Parallel()
	node := shared.Node(t)
	ctx := testContext(t)
	s := session(t, dial(t, node))
	m := s.Mutex("m")
	l, err := m.Lock(ctx)
	must(t, err)
	if other, err := m.TryLock(ctx); other != nil || !errors.Is(err, client.ErrAlreadyHeld) {
		t.Fatal(other, err)
	}
	// A second goroutine of the session queues behind the first.
	second := async(func() (*client.Lease, error) { return m.Lock(ctx, client.Data("second")) })
	release(t, l)
	l = second.must(t)
	short, cancel := context.WithCancel(ctx)
	third := async(func() (*client.Lease, error) { return m.Lock(short) })
	cancel()
	if _, err := third.get(); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	release(t, l)
}

func TestRWMutex(t *testing.T) {
	t.Parallel()
	node := shared.Node(t)
	ctx := testContext(t)
	c := dial(t, node)
	r1, r2, w := session(t, c).RWMutex("rw"), session(t, c).RWMutex("rw"), session(t, c).RWMutex("rw")
	a, err := r1.RLock(ctx)
	must(t, err)
	b, err := r2.RLock(ctx)
	must(t, err)
	if l, err := w.TryLock(ctx); l != nil || !errors.Is(err, client.ErrNotAcquired) {
		t.Fatal("write lock beside readers:", l, err)
	}
	writing := async(func() (*client.Lease, error) { return w.Lock(ctx) })
	release(t, a)
	release(t, b)
	l := writing.must(t)
	if l, err := r1.TryRLock(ctx); l != nil || !errors.Is(err, client.ErrNotAcquired) {
		t.Fatal("read lock beside a writer:", l, err)
	}
	release(t, l)
	l, err = r1.TryRLock(ctx)
	if l == nil || err != nil {
		t.Fatal(l, err)
	}
	release(t, l)
}

// TestOneNameForTwoKinds: a member of a service is no leader of an election of the same name, and
// the leader is no member. Neither waits for the other: both are told what the name is.
func TestOneNameForTwoKinds(t *testing.T) {
	t.Parallel()
	node := shared.Node(t)
	ctx := testContext(t)
	c := dial(t, node)
	s := session(t, c)
	n, err := c.Node(ctx, node.Path())
	must(t, err)
	term, err := s.Election("both").Campaign(ctx)
	must(t, err)
	if list, err := n.Service("both").List(ctx); err != nil || len(list) != 0 {
		t.Errorf("members beside a leader: %+v, %v", list, err)
	}
	if l, err := n.Election("both").Leader(ctx); err != nil || l.Token != term.Token {
		t.Errorf("the leader: %+v, %v", l, err)
	}
	other := session(t, dial(t, node))
	refused := func(err error, kind string) {
		t.Helper()
		if !errors.Is(err, client.ErrPreconditionFailed) || !strings.Contains(err.Error(), kind) {
			t.Errorf("got %v, want one with %q", err, kind)
		}
	}
	_, err = other.Service("both").Register(ctx, nil)
	refused(err, "an election or a lock")
	release(t, term.Lease)
	_, err = s.Service("both").Register(ctx, []byte("10.0.0.1:80"))
	must(t, err)
	_, err = other.Election("both").Campaign(ctx)
	refused(err, "sessions that hold units of it: 1")
	refused(other.Election("both").Run(ctx, nil), "a service or a shared lock")
	_, err = other.Service("both").Register(ctx, []byte("10.0.0.2:80"))
	must(t, err)
	if l, err := n.Election("both").Leader(ctx); err != nil || l.Exists {
		t.Errorf("a leader beside a member: %+v, %v", l, err)
	}
	if list, err := n.Service("both").List(ctx); err != nil || len(list) != 2 {
		t.Errorf("members: %+v, %v", list, err)
	}
}
