package bench

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/loadgen"
)

// TestAcquireGivenUp: an acquire that its caller gives up while another holds the one lock of the
// limit still gets it, and hands it on to who waits behind it.
func TestAcquireGivenUp(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server")
	}
	t.Parallel()
	s, err := (&LoggedEchoLimit{Binary: self(t)}).Start(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	plan, err := s.Plan(Handoffs)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := plan.Target.Open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	session, err := conn.Session(ctx)
	if err != nil {
		t.Fatal(err)
	}
	a := session.(loadgen.CanAcquire).Acquirer(loadgen.AcquireOptions{})
	lease, err := a.Acquire(ctx, "lock")
	if err != nil {
		t.Fatal(err)
	}
	gone, giveUp := context.WithCancel(ctx)
	giveUp()
	for range 3 {
		if _, err := a.Acquire(gone, "lock"); !errors.Is(err, context.Canceled) {
			t.Fatalf("an acquire that is given up while another holds the lock: %v", err)
		}
	}
	if err := lease.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if lease, err = a.Acquire(ctx, "lock"); err != nil {
		t.Fatalf("the lock was not handed on: %v", err)
	}
	if err := lease.Release(ctx); err != nil {
		t.Fatal(err)
	}
}
