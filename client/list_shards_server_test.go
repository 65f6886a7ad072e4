package client_test

import (
	"fmt"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// shardsChanger changes the number of data shards, and waits until all is done and the client knows
// it: refresh may have the client look for a newer map, which it does every half a minute else.
func shardsChanger(t *testing.T, c *client.Client, refresh func()) func(shards uint32) error {
	ctx, operator := testContext(t), admin.New(c)
	return func(shards uint32) error {
		if _, err := operator.SetShards(ctx, "", shards); err != nil {
			return err
		}
		for {
			x, err := operator.Shards(ctx, "", 0)
			if err != nil {
				return err
			}
			// The list goes by the client's map, which may be a moment older than what is done.
			owners := map[uint64]bool{}
			if m, err := operator.Map(ctx); err == nil {
				for _, run := range m.Tiers[0].Runs {
					owners[run.Shard] = true
				}
			}
			if x.Done && len(owners) == int(shards) {
				return nil
			}
			if x.Done {
				refresh()
			}
		}
	}
}

// createNames creates so many semaphores, in whose order they are listed.
func createNames(t *testing.T, s *client.Session, names int) {
	t.Helper()
	calls := make(chan error, names)
	for i := range names {
		go func() { calls <- s.Create(testContext(t), fmt.Sprintf("name/%04d", i), 1, nil) }()
	}
	for range names {
		if err := <-calls; err != nil {
			t.Fatal(err)
		}
	}
}

// TestListWhileBucketsMove: every list has every name once and in order, and every session, however
// often buckets move meanwhile.
func TestListWhileBucketsMove(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime(), servertest.Shards(2), servertest.Config(func(c *server.Config) { c.Buckets = 64 }))
	ctx := testContext(t)
	c := dial(t, srv)
	const names, sessions = 200, 20
	for range sessions {
		session(t, c)
	}
	createNames(t, session(t, c), names)
	change := shardsChanger(t, c, func() {})
	done := make(chan error, 1)
	go func() {
		for _, shards := range []uint32{3, 1, 3, 1, 3, 1, 2} {
			if err := change(shards); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	n, err := c.Node(ctx, "/default")
	if err != nil {
		t.Fatal(err)
	}
	for lists := 0; ; lists++ {
		at, found := 0, 0
		for x, err := range n.List(ctx, "name/", client.ReadConsistency(client.Strict)) {
			if want := fmt.Sprintf("name/%04d", at); err != nil || x.Name != want {
				t.Fatalf("list %d has %q where %s is due: %v", lists, x.Name, want, err)
			}
			at++
		}
		for _, err := range admin.OfNode(n).Sessions(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			found++
		}
		if at != names || found != sessions+1 {
			t.Fatalf("list %d has %d names of %d, and %d sessions of %d", lists, at, names, found, sessions+1)
		}
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			return
		default:
		}
	}
}

// TestListWhileShardsChange: a list that began before shards went, and others came, has every name
// once and in order, and ends.
func TestListWhileShardsChange(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime(), servertest.Shards(2), servertest.Config(func(c *server.Config) { c.Buckets = 16 }))
	ctx := testContext(t)
	c := dial(t, srv)
	s := session(t, c)
	const names = 2600 // more than a page of each shard
	createNames(t, s, names)
	change := shardsChanger(t, c, srv.DropConnections)
	n, err := c.Node(ctx, "/default")
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for x, err := range n.List(ctx, "name/", client.ReadConsistency(client.Strict)) {
		if err != nil {
			t.Fatalf("after %d names: %v", at, err)
		}
		if want := fmt.Sprintf("name/%04d", at); x.Name != want {
			t.Fatalf("%s comes where %s is due", x.Name, want)
		}
		switch at++; at {
		case 10:
			err = change(1)
		case 1990:
			err = change(3)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if at != names {
		t.Errorf("%d names of %d", at, names)
	}
}
