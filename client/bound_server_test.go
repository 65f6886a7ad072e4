package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// ended waits for the end of a lease, and is its cause.
func ended(t *testing.T, l *client.Lease) error {
	t.Helper()
	select {
	case <-l.Context().Done():
	case <-testContext(t).Done():
		t.Fatal("the lease does not end")
	}
	return context.Cause(l.Context())
}

// TestBoundsAgainstAServer: the clock of the server stands still, so only clients end holds.
func TestBoundsAgainstAServer(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	ctx := testContext(t)
	c := dial(t, srv)
	a, b := session(t, c), session(t, c)

	t.Run("a lease ends by itself and is given back", func(t *testing.T) {
		l := acquire(t, a, "lock", client.Exclusive(), client.MaxHold(time.Second))
		if left := time.Until(l.Until()); left >= 990*time.Millisecond || l.TimeToStop() > 50*time.Millisecond {
			t.Errorf("%s are left, and %s to stop", left, l.TimeToStop())
		}
		ending := l.Ending()
		if cause := ended(t, l); !errors.Is(cause, client.ErrMaxHold) || !errors.Is(cause, client.ErrLeaseLost) || l.Held() {
			t.Errorf("it ended with %v, held: %v", cause, l.Held())
		}
		select {
		case <-ending:
		default:
			t.Error("it ended without a word before")
		}
		if err := l.Release(ctx); !errors.Is(err, client.ErrMaxHold) {
			t.Errorf("released: %v", err)
		}
		release(t, acquire(t, b, "lock", client.Exclusive()))
	})

	t.Run("a semaphore's longest hold is learned", func(t *testing.T) {
		if err := a.Create(ctx, "job", 1, nil, client.SemaphoreConfig{MaxHold: time.Hour}); err != nil {
			t.Fatal(err)
		}
		l := acquire(t, b, "job")
		if left := time.Until(l.Until()); left < 50*time.Minute || left >= time.Hour {
			t.Errorf("%s are left", left)
		}
		if err := l.Extend(ctx, time.Hour); !errors.Is(err, client.ErrPreconditionFailed) {
			t.Errorf("extended: %v", err)
		}
		if err := a.Alter(ctx, "job", func(c *client.SemaphoreConfig) { c.Extend = true }); err != nil {
			t.Fatal(err)
		}
		srv.Advance(time.Minute)
		if err := l.Extend(ctx, 2*time.Hour); err != nil {
			t.Errorf("extended: %v", err)
		}
		if err := l.UpdateData(ctx, []byte("x")); err != nil {
			t.Errorf("changed: %v", err)
		}
		sem, err := a.Node().Describe(ctx, "job", client.IncludeOwners())
		if err != nil || sem.Config.MaxHold != time.Hour || !sem.Config.Extend || sem.Owners[0].Left != time.Hour {
			t.Errorf("described as %+v, %v", sem, err)
		}
		if err := l.Extend(ctx, 0); !errors.Is(err, client.ErrBadRequest) {
			t.Errorf("extended by nothing: %v", err)
		}
		saved := b.Save()
		saved.Version = client.SavedVersion + 1
		if _, err := c.Restore(ctx, saved); err == nil {
			t.Error("a session of a newer client was restored")
		}
		release(t, l)
	})

	t.Run("more time where there is no longest hold", func(t *testing.T) {
		l := acquire(t, a, "short", client.Exclusive(), client.MaxHold(time.Minute))
		sem, err := a.Node().Describe(ctx, "short", client.IncludeOwners())
		if err != nil || len(sem.Owners) != 1 || sem.Owners[0].Left != time.Minute {
			t.Errorf("described as %+v, %v", sem, err)
		}
		if err := l.Extend(ctx, time.Hour); err != nil {
			t.Fatal(err)
		}
		if left := time.Until(l.Until()); left < 50*time.Minute {
			t.Errorf("%s are left", left)
		}
		select {
		case <-l.Ending():
			t.Error("an hour is little")
		default:
		}
		release(t, l)
	})

	t.Run("who is preempted yields within the grace", func(t *testing.T) {
		err := a.Create(ctx, "crane", 1, nil, client.SemaphoreConfig{Policy: client.PolicyPriority,
			Preempt: client.PreemptLower, Grace: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		low := acquire(t, a, "crane", client.Priority(2))
		if !low.Until().IsZero() {
			t.Error("it ends without being preempted")
		}
		high, _ := queue(t, b, "crane", client.Priority(7))
		if cause := ended(t, low); !errors.Is(cause, client.ErrPreempted) || !errors.Is(cause, client.ErrLeaseLost) {
			t.Errorf("it ended with %v", cause)
		}
		release(t, high.must(t))
	})
}

// TestFrozenHolderAtItsBound: the server ends the hold of a client that it does not hear of, and that
// client does not believe in it any more.
func TestFrozenHolderAtItsBound(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	g := newGate()
	frozen, err := client.Open(testContext(t), client.Config{Endpoints: []string{srv.Addr()}, Dial: g.dial})
	must(t, err)
	t.Cleanup(frozen.CloseWithoutRelease)
	a := session(t, frozen, client.Timeout(10*time.Minute))
	b := session(t, dial(t, srv))
	l := acquire(t, a, "frozen", client.Exclusive(), client.MaxHold(time.Second))
	thaw := g.freeze()
	next := acquire(t, b, "frozen", client.Exclusive())
	if l.Held() || !errors.Is(l.Lost(), client.ErrMaxHold) {
		t.Errorf("granted on, and believed in; lost: %v", l.Lost())
	}
	thaw()
	release(t, next)
	release(t, acquire(t, a, "frozen", client.Exclusive()))
}
