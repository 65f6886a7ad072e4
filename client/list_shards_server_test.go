package client_test

import (
	"fmt"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// TestListWhileShardsChange: a list that began before shards went, and others came, has every name
// once and in order, and ends.
func TestListWhileShardsChange(t *testing.T) {
	srv := servertest.Start(t, servertest.RealTime(), servertest.Shards(2), servertest.Config(func(c *server.Config) { c.Buckets = 16 }))
	ctx := testContext(t)
	c := dial(t, srv)
	s := session(t, c)
	const names = 2600 // more than a page of each shard
	calls := make(chan error, names)
	for i := range names {
		go func() { calls <- s.Create(ctx, fmt.Sprintf("name/%04d", i), 1, nil) }()
	}
	for range names {
		if err := <-calls; err != nil {
			t.Fatal(err)
		}
	}
	operator := admin.New(c)
	change := func(shards uint32) {
		t.Helper()
		if _, err := operator.SetShards(ctx, "", shards); err != nil {
			t.Fatal(err)
		}
		for {
			x, err := operator.Shards(ctx, "", 0)
			if err != nil {
				t.Fatal(err)
			}
			// The list goes by the client's map, which may be a moment older than what is done.
			owners := map[uint64]bool{}
			if m, err := operator.Map(ctx); err == nil {
				for _, run := range m.Tiers[0].Runs {
					owners[run.Shard] = true
				}
			}
			if x.Done && len(owners) == int(shards) {
				return
			}
		}
	}
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
			change(1)
		case 1990:
			change(3)
		}
	}
	if at != names {
		t.Errorf("%d names of %d", at, names)
	}
}
