package admin_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// TestEnsureWithoutAnswer: if a request was sent and not answered before the context ends, the node
// may have been created, and the error says so. A request that was never sent has no such outcome.
func TestEnsureWithoutAnswer(t *testing.T) {
	t.Parallel()
	s := servertest.Start(t, servertest.RealTime())
	c, err := client.Dial(t.Context(), s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseWithoutRelease)
	ensure := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := admin.Nodes(c).Ensure(ctx, "/a", admin.NodeConfig{})
		return err
	}
	s.Pause()
	if err := ensure(); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, client.ErrOutcomeUnknown) {
		t.Errorf("not answered: %v", err)
	}
	s.Resume()
	detached := make(chan struct{}, 1)
	if _, err := c.Session(t.Context(), "/default", client.OnState(func(now client.State) {
		if now == client.Detached {
			detached <- struct{}{}
		}
	})); err != nil {
		t.Fatal(err)
	}
	s.Unreachable()
	s.DropConnections()
	<-detached
	if err := ensure(); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, client.ErrOutcomeUnknown) {
		t.Errorf("not sent: %v", err)
	}
}

// TestEnsureWithoutMajority: a creation that waits for a majority may still happen. Create says so
// when the server does; Ensure goes on until its context ends.
func TestEnsureWithoutMajority(t *testing.T) {
	t.Parallel()
	form.SkipUntil(t, form.Full, "the server says after some seconds that it has no majority")
	cluster := servertest.StartCluster(t, 3)
	c, err := client.Dial(t.Context(), cluster.Addrs()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseWithoutRelease)
	if _, err := admin.Nodes(c).Ensure(t.Context(), "/a", admin.NodeConfig{}); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		cluster.Kill(i)
	}
	// A busy server answers later, and Ensure then knows no reason yet.
	for patience := 12 * time.Second; ; patience *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		_, err := admin.Nodes(c).Ensure(ctx, "/b", admin.NodeConfig{})
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, client.ErrOutcomeUnknown) {
			t.Fatalf("without a majority: %v", err)
		}
		if errors.Is(err, client.ErrUnavailable) {
			return
		}
		if patience > await.Limit {
			t.Fatalf("the server does not say that it has no majority: %v", err)
		}
	}
}
