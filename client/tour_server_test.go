package client_test

import (
	"testing"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// TestTourAfterTours: the README's code runs where its commands, and itself, have run before.
func TestTourAfterTours(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	ctx := testContext(t)
	s := session(t, dial(t, srv))
	if err := s.Create(ctx, "slots", 5, []byte("three at a time")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Config("flags").Set(ctx, []byte("on")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := tour(ctx, srv.Addr()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSmoke(t *testing.T) {
	t.Parallel()
	node := shared.Node(t)
	ctx := testContext(t)
	c := dial(t, node)
	s := session(t, c, client.Description("smoke"))
	if err := s.Create(ctx, "jobs", 3, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	l, err := s.Acquire(ctx, "jobs", client.Count(2), client.Data("x"))
	if err != nil {
		t.Fatal(err)
	}
	if !l.Held() || l.Token() == 0 {
		t.Fatal("lease is not held", l.Held(), l.Token())
	}
	sem, err := s.Node().Describe(ctx, "jobs", client.IncludeOwners(), client.IncludeWaiters())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", sem)
	if err := l.Reduce(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if err := l.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}
