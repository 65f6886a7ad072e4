package servertest_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// TestAdvanceReachesEveryShard: what a session's end brings about at other shards than its home has
// happened when Advance returns: locks on all shards are free, and waiters hold them.
func TestAdvanceReachesEveryShard(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.Shards(8))
	ctx := t.Context()
	c, err := client.Dial(ctx, srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseWithoutRelease)
	reader, err := c.Session(ctx, "/default", client.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	for round := range 5 {
		lost, err := client.Dial(ctx, srv.Addr())
		if err != nil {
			t.Fatal(err)
		}
		s, err := lost.Session(ctx, "/default", client.Timeout(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 40 {
			if _, err := s.Acquire(ctx, fmt.Sprint("lock-", i), client.Exclusive()); err != nil {
				t.Fatal(err)
			}
		}
		lost.CloseWithoutRelease()
		srv.Advance(11 * time.Second)
		for i := range 40 {
			l, err := reader.TryAcquire(ctx, fmt.Sprint("lock-", i), client.Exclusive())
			if err != nil || l == nil {
				t.Fatalf("round %d: lock %d is not free: %v", round, i, err)
			}
			if err := l.Release(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestAdvanceAnHour: an hour of log time ends what is due in it, in order, while most of its steps
// cost nothing.
func TestAdvanceAnHour(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	c, err := client.Dial(t.Context(), srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseWithoutRelease)
	a, err := c.Session(t.Context(), "/default", client.Timeout(30*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	l, err := a.Acquire(t.Context(), "jobs", client.Exclusive())
	if err != nil {
		t.Fatal(err)
	}
	lost, err := client.Dial(t.Context(), srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	b, err := lost.Session(t.Context(), "/default", client.Timeout(20*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Acquire(t.Context(), "other", client.Exclusive()); err != nil {
		t.Fatal(err)
	}
	waiting, over := make(chan struct{}), make(chan error, 1)
	go func() {
		s, err := c.Session(t.Context(), "/default")
		if err == nil {
			_, err = s.Acquire(t.Context(), "jobs", client.Exclusive(), client.Wait(50*time.Minute),
				client.OnQueued(func(uint64) { close(waiting) }))
		}
		over <- err
	}()
	<-waiting
	before := srv.Now()
	lost.CloseWithoutRelease()
	srv.Advance(time.Hour)
	if passed := srv.Now().Sub(before); passed != time.Hour {
		t.Errorf("%s have passed", passed)
	}
	if err := <-over; !errors.Is(err, client.ErrNotAcquired) {
		t.Errorf("a wait of 50 minutes: %v", err)
	}
	if other, err := a.TryAcquire(t.Context(), "other", client.Exclusive()); other == nil || err != nil {
		t.Errorf("what a session of 20 minutes held: %v, %v", other, err)
	}
	if !l.Held() {
		t.Errorf("a client that was there all the time lost its lease: %v", l.Session().Err())
	}
}
