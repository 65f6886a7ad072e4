package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
)

// TestRun: work has a context that ends with the caller's and with the lease, and the units are free
// when Run returns.
func TestRun(t *testing.T) {
	t.Parallel()
	node := shared.Node(t)
	c := dial(t, node)
	s, other := session(t, c), session(t, c)
	type key struct{}
	ctx := context.WithValue(testContext(t), key{}, "kept")
	free := func(what string) {
		t.Helper()
		l, err := other.Mutex("m").TryLock(ctx)
		if l == nil || err != nil {
			t.Fatalf("%s: the lock is not free: %v %v", what, l, err)
		}
		release(t, l)
	}

	wrong := errors.New("no such table")
	err := s.Mutex("m").Run(ctx, func(ctx context.Context, l *client.Lease) error {
		if !l.Held() || l.Token() == 0 || ctx.Value(key{}) != "kept" || ctx.Err() != nil {
			t.Errorf("held %t, token %d, value %v, %v", l.Held(), l.Token(), ctx.Value(key{}), ctx.Err())
		}
		return wrong
	})
	if err != wrong {
		t.Errorf("ended with %v", err)
	}
	free("an error")

	soon, cancelSoon := context.WithTimeout(ctx, time.Minute)
	defer cancelSoon()
	err = s.Mutex("m").Run(soon, func(ctx context.Context, _ *client.Lease) error {
		want, _ := soon.Deadline()
		if at, ok := ctx.Deadline(); !ok || !at.Equal(want) {
			t.Errorf("deadline %v, not %v", at, want)
		}
		return nil
	})
	must(t, err)

	short, cancel := context.WithCancelCause(ctx)
	over := errors.New("the program ends")
	err = s.Mutex("m").Run(short, func(ctx context.Context, _ *client.Lease) error {
		cancel(over)
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if err != over {
		t.Errorf("ended with %v", err)
	}
	free("the caller's end")

	for _, own := range []error{nil, context.Canceled, wrong} {
		err = s.Run(ctx, "m", func(ctx context.Context, l *client.Lease) error {
			if _, err := admin.OfNode(s.Node()).ForceRelease(ctx, "m", l.Token(), l.Token(), "a test"); err != nil {
				return err
			}
			<-ctx.Done()
			if cause := context.Cause(ctx); !errors.Is(cause, client.ErrLeaseLost) || l.Held() {
				t.Errorf("the work ended with %v, held %t", cause, l.Held())
			}
			return own
		}, client.Exclusive())
		if !errors.Is(err, client.ErrLeaseLost) || own == wrong && !errors.Is(err, wrong) {
			t.Errorf("lost, with %v of the work: %v", own, err)
		}
	}

	held := acquire(t, other, "m", client.Exclusive())
	err = s.Mutex("m").Run(ctx, func(context.Context, *client.Lease) error {
		t.Error("it works without the lock")
		return nil
	}, client.Wait(0))
	if !errors.Is(err, client.ErrNotAcquired) {
		t.Errorf("not acquired: %v", err)
	}
	release(t, held)
	func() {
		defer func() { _ = recover() }()
		_ = s.Mutex("m").Run(ctx, func(context.Context, *client.Lease) error { panic("a mistake") })
	}()
	free("a panic")
}

// TestExactLimit: programs that disagree about a limit notice.
func TestExactLimit(t *testing.T) {
	t.Parallel()
	node := shared.Node(t)
	ctx := testContext(t)
	c := dial(t, node)
	s, other := session(t, c), session(t, c)
	release(t, acquire(t, s, "slots", client.ExactLimit(3)))
	_, err := other.Acquire(ctx, "slots", client.ExactLimit(5))
	if !errors.Is(err, client.ErrPreconditionFailed) || !strings.Contains(err.Error(), "the limit 3, not 5") {
		t.Errorf("another limit: %v", err)
	}
	release(t, acquire(t, other, "slots", client.CreateLimit(5)))
	release(t, acquire(t, other, "slots", client.ExactLimit(3), client.Count(3)))

	acquire(t, s, "lock", client.Exclusive())
	if _, err := other.Acquire(ctx, "lock", client.ExactLimit(3)); !errors.Is(err, client.ErrPreconditionFailed) {
		t.Errorf("an ephemeral semaphore: %v", err)
	}
	if _, err := s.Acquire(ctx, "x", client.ExactLimit(3), client.Shared()); !errors.Is(err, client.ErrBadRequest) {
		t.Errorf("an ephemeral one with a limit: %v", err)
	}
	for i := range 20 { // in the same moment
		name := fmt.Sprint("race-", i)
		two := async(func() (*client.Lease, error) { return s.Acquire(ctx, name, client.ExactLimit(2)) })
		_, three := other.Acquire(ctx, name, client.ExactLimit(3))
		_, err := two.get()
		if (err == nil) == (three == nil) || err != nil && !errors.Is(err, client.ErrPreconditionFailed) ||
			three != nil && !errors.Is(three, client.ErrPreconditionFailed) {
			t.Errorf("a limit of 2: %v, of 3: %v", err, three)
		}
	}
}
