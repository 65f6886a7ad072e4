package client_test

import (
	"context"
	"errors"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// TestCloseEndsCalls closes a client whose server answers nothing any more. Every call that is under
// way returns, whatever its context, and none says that it has succeeded.
func TestCloseEndsCalls(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	ctx, g := testContext(t), newGate()
	c, err := client.Open(ctx, client.Config{Endpoints: []string{srv.Addr()}, Dial: g.dial})
	must(t, err)
	s := session(t, c)
	held := acquire(t, s, "released", client.Exclusive())
	changed := acquire(t, s, "changed", client.Exclusive())
	rival := acquire(t, session(t, dial(t, srv)), "taken", client.Exclusive())
	thaw := g.freeze()
	defer thaw()
	never := context.Background()
	calls := map[string]func() error{
		"session": func() error { _, err := c.Session(never, "/default"); return err },
		"acquire": func() error { _, err := s.Acquire(never, "other", client.Exclusive()); return err },
		"wait":    func() error { _, err := s.Acquire(never, "taken", client.Exclusive()); return err },
		"release": func() error { return held.Release(never) },
		"update":  func() error { return changed.UpdateData(never, []byte("x")) },
		"describe": func() error {
			_, err := s.Node().Describe(never, "other")
			return err
		},
		"info": func() error { _, err := admin.Nodes(c).Describe(never, "/default"); return err },
	}
	type result struct {
		call string
		err  error
	}
	results, begun := make(chan result), make(chan struct{})
	for name, call := range calls {
		go func() {
			begun <- struct{}{}
			results <- result{name, call()}
		}()
	}
	for range calls {
		<-begun
	}
	if err := c.Close(); err == nil {
		t.Error("the session's stop was not answered, and Close says nothing of it")
	}
	for range calls {
		r := <-results
		switch {
		case r.err == nil:
			t.Errorf("%s has succeeded, and nothing was answered", r.call)
		case !errors.Is(r.err, client.ErrClientClosed) && !errors.Is(r.err, client.ErrSessionClosed):
			t.Errorf("%s: %v", r.call, r.err)
		case r.call == "release" && held.Lost() == nil && !errors.Is(r.err, client.ErrOutcomeUnknown):
			t.Errorf("%s: %v, which does not say that the outcome is unknown", r.call, r.err)
		}
	}
	if rival.Lost() != nil {
		t.Error(rival.Lost())
	}
}
