package servertest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
)

// TestAdvanceSkipsIdleTime: an hour with ten deadlines takes few looks at the clock, not one
// each 250 ms.
func TestAdvanceSkipsIdleTime(t *testing.T) {
	t.Parallel()
	srv := Start(t)
	c, err := client.Dial(t.Context(), srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseWithoutRelease)
	s, err := c.Session(t.Context(), "/default")
	if err != nil {
		t.Fatal(err)
	}
	const waiters = 10
	begun := srv.clock.Now()
	ended := make(chan string, waiters)
	for i := range waiters {
		name := fmt.Sprint("job-", i)
		holder, err := c.Session(t.Context(), "/default")
		if err == nil {
			_, err = holder.Acquire(t.Context(), name, client.Exclusive())
		}
		if err != nil {
			t.Fatal(err)
		}
		waiting := make(chan struct{})
		go func() {
			_, err := s.Acquire(t.Context(), name, client.Exclusive(), client.Wait(time.Duration(i+1)*5*time.Minute),
				client.OnQueued(func(uint64) { close(waiting) }))
			if !errors.Is(err, client.ErrNotAcquired) {
				name += fmt.Sprintf(": %v", err)
			}
			ended <- name
		}()
		<-waiting
	}
	ticks := 0
	remove := srv.clock.OnTick(func(bool) { ticks++ })
	srv.Advance(54 * time.Minute)
	remove()
	got := map[string]bool{}
	for range waiters {
		got[<-ended] = true
	}
	for i := range waiters {
		if !got[fmt.Sprint("job-", i)] {
			t.Errorf("waiter %d did not end, or otherwise: %v", i, got)
		}
	}
	if passed := srv.clock.Now() - begun; passed != 54*time.Minute {
		t.Errorf("%s have passed", passed)
	}
	if ticks > 20*(waiters+1) { // 12,960 steps of 250 ms
		t.Errorf("the server looked at its clock %d times", ticks)
	}
}

// TestAdvanceStopsAtDeadlines: a waiter is granted by the end of a session in the middle of an
// Advance, and the one behind it, whose time is over a moment later, is not: the deadlines fire in
// order, each at its time.
func TestAdvanceStopsAtDeadlines(t *testing.T) {
	t.Parallel()
	srv := Start(t)
	dial := func() *client.Client {
		c, err := client.Dial(t.Context(), srv.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.CloseWithoutRelease)
		return c
	}
	c, lost := dial(), dial()
	dead, err := lost.Session(t.Context(), "/default", client.Timeout(20*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	results := make([]chan error, 2)
	for i := range results {
		results[i] = make(chan error, 1)
	}
	for i, wait := range []time.Duration{20*time.Minute + 2*time.Second, 20*time.Minute - 2*time.Second} {
		name := fmt.Sprint("lock-", i)
		if _, err := dead.Acquire(t.Context(), name, client.Exclusive()); err != nil {
			t.Fatal(err)
		}
		s, err := c.Session(t.Context(), "/default")
		if err != nil {
			t.Fatal(err)
		}
		waiting := make(chan struct{})
		go func() {
			_, err := s.Acquire(t.Context(), name, client.Exclusive(), client.Wait(wait),
				client.OnQueued(func(uint64) { close(waiting) }))
			results[i] <- err
		}()
		<-waiting
	}
	lost.CloseWithoutRelease()
	srv.Advance(time.Hour)
	if err := <-results[0]; err != nil {
		t.Errorf("a waiter with 2 s more than the session lives: %v", err)
	}
	if err := <-results[1]; !errors.Is(err, client.ErrNotAcquired) {
		t.Errorf("a waiter with 2 s less: %v", err)
	}
}

// TestAdvanceIsInTheLog: time that was left out is not lost when the server dies: a session that
// has nearly ended does not begin its timeout again.
func TestAdvanceIsInTheLog(t *testing.T) {
	t.Parallel()
	srv := Start(t)
	c, err := client.Dial(t.Context(), srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.Session(t.Context(), "/default", client.Timeout(30*time.Minute))
	if err == nil {
		_, err = s.Acquire(t.Context(), "lock", client.Exclusive())
	}
	if err != nil {
		t.Fatal(err)
	}
	c.CloseWithoutRelease()
	srv.Advance(29 * time.Minute)
	srv.Kill()
	srv.Restart()
	srv.Advance(2 * time.Minute)
	c, err = client.Dial(t.Context(), srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseWithoutRelease)
	if s, err = c.Session(t.Context(), "/default"); err != nil {
		t.Fatal(err)
	}
	if l, err := s.TryAcquire(t.Context(), "lock", client.Exclusive()); err != nil || l == nil {
		t.Errorf("the lock of a session that is over: %v", err)
	}
}
