package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/recipes"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// atGrant is an Observer that calls a function before an acquire returns.
type atGrant struct{ f func() }

func (a *atGrant) AcquireStarted(context.Context, client.AcquireStart) client.AcquireObserver {
	return a
}
func (a *atGrant) ConnectionChanged(client.ConnectionChange) {}
func (a *atGrant) SessionChanged(client.SessionChange)       {}
func (a *atGrant) RequestRetried(client.RequestRetry)        {}
func (a *atGrant) HoldEnded(client.HoldEnd)                  {}

func (a *atGrant) AcquireEnded(client.AcquireEnd) {
	if a.f != nil {
		a.f()
	}
}

// TestNotHeldAtCall: work is not called if the session is over once its lease is granted.
func TestNotHeldAtCall(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	ctx := testContext(t)
	observer := new(atGrant)
	c, err := client.Open(ctx, client.Config{Endpoints: []string{srv.Addr()}, Observer: observer})
	must(t, err)
	t.Cleanup(c.CloseWithoutRelease)
	pool := recipes.NewPool(c, "/default", "pool")
	called := func(context.Context, *client.Lease) error {
		t.Error("it is called")
		return nil
	}
	for name, run := range map[string]func(s *client.Session) error{
		"run":   func(s *client.Session) error { return s.Run(ctx, "a", called, client.Exclusive()) },
		"mutex": func(s *client.Session) error { return s.Mutex("b").Run(ctx, called) },
		"election": func(s *client.Session) error {
			return s.Election("c").Run(ctx, func(ctx context.Context, _ client.Term) error { return called(ctx, nil) })
		},
		"once": func(s *client.Session) error {
			ran, err := recipes.NewOnce(s, "d", time.Hour).Run(ctx, func(ctx context.Context, _ recipes.Period) error {
				return called(ctx, nil)
			})
			if ran {
				t.Error("it says that it ran")
			}
			return err
		},
		"supervise": func(s *client.Session) error {
			must(t, s.Close(ctx))
			return client.ServeSession(ctx, s, func(ctx context.Context, _ *client.Session) error { return called(ctx, nil) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := session(t, c)
			observer.f = func() { must(t, s.Close(ctx)) }
			if err := run(s); !errors.Is(err, client.ErrSessionClosed) {
				t.Errorf("ended with %v", err)
			}
		})
	}
	observer.f = func() { must(t, c.Close()) }
	if err := pool.Run(ctx, called, client.CreateLimit(1)); !errors.Is(err, client.ErrClientClosed) {
		t.Errorf("pool: ended with %v", err)
	}
}
