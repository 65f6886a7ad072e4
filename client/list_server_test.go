package client_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

func TestNodes(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	ctx := testContext(t)
	c := dial(t, srv)
	grace := 20 * time.Second
	info, err := admin.Nodes(c).Create(ctx, "/a/b", admin.NodeConfig{GracePeriod: &grace})
	must(t, err)
	if *info.Config.GracePeriod != grace || *info.Config.SelfCheckPeriod != time.Second || info.Path != "/a/b" {
		t.Fatalf("%+v", info)
	}
	if _, err := admin.Nodes(c).Create(ctx, "/a/b", admin.NodeConfig{}); !errors.Is(err, client.ErrAlreadyExists) {
		t.Fatal(err)
	}
	again, err := admin.Nodes(c).Ensure(ctx, "/a/b", admin.NodeConfig{})
	if err != nil || again.ID != info.ID {
		t.Fatal(again, err)
	}
	var fallback time.Duration
	altered, err := admin.Nodes(c).Alter(ctx, "/a/b", admin.NodeConfig{GracePeriod: &fallback})
	if err != nil || *altered.Config.GracePeriod != 10*time.Second {
		t.Fatal(altered, err)
	}
	var paths []string
	for n, err := range admin.Nodes(c).List(ctx, "") {
		must(t, err)
		paths = append(paths, n.Path)
	}
	if !slices.Equal(paths, []string{"/a", "/a/b", client.DefaultNode}) {
		t.Fatal(paths)
	}
	for _, path := range []string{"", "a", "/", "/a b", "/a/../b"} {
		if _, err := admin.Nodes(c).Create(ctx, path, admin.NodeConfig{}); !errors.Is(err, client.ErrBadRequest) {
			t.Errorf("%q: %v", path, err)
		}
	}
	if _, err := c.Session(ctx, "/nowhere"); !errors.Is(err, client.ErrNotFound) {
		t.Fatal(err)
	}
	deleteNode(t, c, "/a/b")
	if _, err := admin.Nodes(c).Delete(ctx, "/a/b", admin.DeleteOptions{Force: true, Reason: "test"}); !errors.Is(err, client.ErrNotFound) {
		t.Fatal(err)
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	node := shared.Node(t)
	ctx := testContext(t)
	c := dial(t, node)
	s, other := session(t, c), session(t, c)
	var want []string
	for i := range 100 {
		name := fmt.Sprintf("list/%03d", i)
		want = append(want, name)
		must(t, s.Create(ctx, name, 2, nil))
	}
	must(t, s.Create(ctx, "other", 1, nil))
	var got []string
	for sem, err := range s.Node().List(ctx, "list/", client.ReadConsistency(client.Strict)) {
		must(t, err)
		got = append(got, sem.Name)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%d names: %v", len(got), got)
	}
	acquire(t, other, "list/007", client.Count(2))
	acquire(t, other, "list/050")
	got = nil
	for sem, err := range s.Node().List(ctx, "", client.OfSession(other.ID()), client.ReadConsistency(client.Strict)) {
		must(t, err)
		got = append(got, fmt.Sprint(sem.Name, " ", sem.Count, " ", sem.Waiting))
	}
	if !slices.Equal(got, []string{"list/007 2 false", "list/050 1 false"}) {
		t.Fatal(got)
	}
	for range s.Node().List(ctx, "list/") {
		break // a consumer may stop anywhere
	}
}

// TestPages: a description that is larger than a frame comes in pages.
func TestPages(t *testing.T) {
	t.Parallel()
	node := shared.Node(t)
	ctx := testContext(t)
	c := dial(t, node)
	s := session(t, c)
	must(t, s.Create(ctx, "pages", client.Max, []byte("d")))
	const count = 12
	for range count {
		acquire(t, session(t, c), "pages", client.Data(make([]byte, 200<<10)))
	}
	sem, err := s.Node().Describe(ctx, "pages", client.IncludeOwners(), client.ReadConsistency(client.Strict))
	must(t, err)
	if sem.Torn || len(sem.Owners) != count || sem.NumOwners != count || string(sem.Data) != "d" || sem.Limit != client.Max {
		t.Fatal(sem.Torn, len(sem.Owners), sem.NumOwners, sem.Data)
	}
	for i, o := range sem.Owners {
		if len(o.Data) != 200<<10 || i > 0 && o.Token <= sem.Owners[i-1].Token {
			t.Fatal(i, len(o.Data), o.Token)
		}
	}
	// A watch carries as much, in pages too.
	for ev, err := range s.Node().Watch(ctx, "pages") {
		must(t, err)
		if ev.Kind == client.EventChanged && len(ev.Added) == count {
			break
		}
	}
}

// deleteNode deletes a node, whatever it has.
func deleteNode(t *testing.T, c *client.Client, path string) {
	t.Helper()
	if _, err := admin.Nodes(c).Delete(t.Context(), path, admin.DeleteOptions{Force: true, Reason: "test"}); err != nil {
		t.Fatal(err)
	}
}
