package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// TestSupervise: a service whose session is killed registers again with another session, is told
// so, and holds nothing that it did not acquire itself.
func TestSupervise(t *testing.T) {
	t.Parallel()
	node := shared.Node(t)
	ctx, stop := context.WithCancel(testContext(t))
	defer stop()
	var log await.Log
	c, err := client.Open(ctx, client.Config{Endpoints: []string{node.Addr()}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	must(t, err)
	defer c.CloseWithoutRelease()
	n, err := c.Node(ctx, node.Path())
	must(t, err)
	reader := session(t, dial(t, node))

	type key struct{}
	begun, lost, held := make(chan *client.Session), make(chan error, 8), make(chan *client.Lease, 8)
	over := make(chan error, 1)
	working := 0 // by serve alone: two at a time would be a race
	go func() {
		over <- c.Supervise(context.WithValue(ctx, key{}, "kept"), node.Path(), func(ctx context.Context, s *client.Session) error {
			if working++; working != 1 || ctx.Value(key{}) != "kept" {
				t.Errorf("%d work at a time, with %v", working, ctx.Value(key{}))
			}
			defer func() { working-- }()
			if _, err := s.Service("api").Register(ctx, []byte("10.0.0.1:80")); err != nil {
				return err
			}
			select {
			case <-held: // what the last one had
			default:
				l, err := s.Acquire(ctx, "only-once", client.Exclusive())
				if err != nil {
					return err
				}
				held <- l
			}
			begun <- s
			<-ctx.Done()
			if s.Held() && ctx.Err() == nil {
				t.Error("the session lives")
			}
			return nil
		}, client.OnStopped(func(cause error) { lost <- cause }))
	}()

	first := <-begun
	must(t, admin.OfNode(n).KillSession(ctx, first.ID(), "a test"))
	second := <-begun
	if first.ID() == second.ID() || !errors.Is(first.Err(), client.ErrSessionExpired) {
		t.Errorf("session %d after session %d, which ended with %v", second.ID(), first.ID(), first.Err())
	}
	if err := <-lost; !errors.Is(err, client.ErrSessionExpired) {
		t.Errorf("told %v", err)
	}
	if text := log.String(); !strings.Contains(text, "session lost, starting a new one") {
		t.Errorf("the log says %q", text)
	}
	members := map[uint64]bool{}
	for ev, err := range reader.Service("api").Watch(ctx) {
		must(t, err)
		for _, m := range append(ev.Members, ev.Member) {
			members[m.Session] = ev.Kind != client.MemberRemoved
		}
		if !members[first.ID()] && members[second.ID()] {
			break
		}
	}
	// The second serve did not acquire the lock, so nobody holds it once the first session's is
	// released.
	acquire(t, reader, "only-once", client.Exclusive())

	stop()
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	if second.Err() == nil {
		t.Error("the last session was not closed")
	}
}

// TestSuperviseEnds: what serve returns while its session lives ends it, and so does what a new
// session does not mend.
func TestSuperviseEnds(t *testing.T) {
	t.Parallel()
	node := shared.Node(t)
	ctx := testContext(t)
	wrong := errors.New("no such table")
	var c *client.Client
	var s *client.Session
	for what, end := range map[string]struct {
		node  string
		serve func(context.Context, *client.Session) error
		want  error
	}{
		"done":          {node.Path(), func(context.Context, *client.Session) error { return nil }, nil},
		"wrong":         {node.Path(), func(context.Context, *client.Session) error { return wrong }, wrong},
		"no node":       {"/none", nil, client.ErrNotFound},
		"closed":        {node.Path(), func(ctx context.Context, s *client.Session) error { _ = s.Close(ctx); return wrong }, wrong},
		"client closed": {node.Path(), func(context.Context, *client.Session) error { _ = c.Close(); return wrong }, client.ErrClientClosed},
		"taken": {node.Path(), func(ctx context.Context, s *client.Session) error {
			if _, err := dial(t, node).Restore(ctx, s.Save()); err != nil {
				return err
			}
			<-ctx.Done()
			if cause := context.Cause(ctx); !errors.Is(cause, client.ErrTakenOver) {
				t.Errorf("the work ended with %v", cause)
			}
			return nil
		}, client.ErrTakenOver},
	} {
		c = dial(t, node)
		err := c.Supervise(ctx, end.node, func(ctx context.Context, with *client.Session) error {
			s = with
			return end.serve(ctx, with)
		}, client.Timeout(time.Minute))
		if !errors.Is(err, end.want) || end.want == nil && err != nil {
			t.Errorf("%s: %v, want %v", what, err, end.want)
		}
		if end.serve != nil && s.Err() == nil {
			t.Errorf("%s: the session was not closed", what)
		}
	}
}

// TestSuperviseFreesItsHolds: when Supervise returns, what the service held is free, also if its
// context ended and the server is slow: the program may end next.
func TestSuperviseFreesItsHolds(t *testing.T) {
	t.Parallel()
	node := shared.Node(t)
	// Supervise waits 2 s for the server's answer. A machine may be too busy for that, and then
	// another service shows it.
	const answerLimit = 2 * time.Second
	tries := 0
	await.True(t, "a service that ends while its client waits for the server", func() bool {
		tries++
		name := fmt.Sprint("only-once-", tries)
		g := newGate()
		c, err := client.Open(testContext(t), client.Config{Endpoints: []string{node.Addr()}, Dial: g.dial})
		must(t, err)
		defer c.CloseWithoutRelease()
		ctx, stop := context.WithCancel(testContext(t))
		defer stop()
		frozen, over := make(chan func(), 1), make(chan error, 1)
		var stopped time.Time // or a little earlier
		go func() {
			over <- c.Supervise(ctx, node.Path(), func(ctx context.Context, s *client.Session) error {
				_, err := s.Mutex(name).Lock(ctx)
				stopped = time.Now()
				frozen <- g.freeze()
				stop()
				return err
			})
		}()
		thaw := <-frozen
		early := false
		select {
		case err = <-over:
			early = true
			thaw()
		case <-time.After(50 * time.Millisecond): // one that does not wait has returned by now
			thaw()
			err = <-over
		}
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if time.Since(stopped) >= answerLimit {
			return false
		}
		if early {
			t.Errorf("Supervise returned %v, and the server cannot know yet", err)
		}
		c.CloseWithoutRelease() // as if the process had ended
		l, err := session(t, dial(t, node)).Mutex(name).TryLock(testContext(t))
		if l == nil || err != nil {
			t.Errorf("the lock of a service that has ended: %v, %v", l, err)
		}
		return true
	})
}
