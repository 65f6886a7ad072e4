package client_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
)

// TestCloseReleasesAll: what a session held is free for others when its Close has returned,
// wherever it was at home.
func TestCloseReleasesAll(t *testing.T) {
	t.Parallel()
	node := shared.Node(t)
	ctx := context.Background()
	c, err := client.Dial(ctx, node.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	next, err := c.Session(ctx, node.Path())
	if err != nil {
		t.Fatal(err)
	}
	for round := range 8 { // homes and names all over the shards
		s, err := c.Session(ctx, node.Path())
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for i := range 8 {
			name := fmt.Sprintf("lock-%d-%d", round, i)
			names = append(names, name)
			if _, err := s.Acquire(ctx, name, client.Exclusive()); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(ctx); err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if l, err := next.TryAcquire(ctx, name, client.Exclusive()); err != nil || l == nil {
				t.Fatalf("%s is not free after its holder closed: %v", name, err)
			}
		}
	}
}
