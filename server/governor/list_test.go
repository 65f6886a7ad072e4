package governor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// listGovernor has a world with nodes, and does not run.
func listGovernor(paths ...string) *Governor {
	c := newFakeCluster()
	c.state = newFakeState(8, 1)
	var refs []meta.NodeRef
	for _, p := range paths {
		c.state.create(p, protocol.DefaultGracePeriod)
	}
	for n := range c.state.meta.Pending() {
		refs = append(refs, meta.NodeRef{Node: n.ID, Revision: n.Revision})
	}
	for chunk := range slices.Chunk(refs, meta.MaxCommit) {
		c.state.apply(&meta.NodeCommit{Nodes: chunk})
	}
	return New(Config{Meta: replica{c, 0}, Shards: fakeShards{c}, Clock: c})
}

// pages follows the cursor to the end.
func pages(t *testing.T, g *Governor, req protocol.NodeList, visible func(string) bool) (paths []string, sizes []int) {
	t.Helper()
	for {
		reply, err := g.ListNodes(&req, visible)
		must(t, err)
		sizes = append(sizes, len(reply.Nodes))
		for _, n := range reply.Nodes {
			paths = append(paths, n.Path)
		}
		if len(reply.Cursor) == 0 {
			return paths, sizes
		}
		req.Cursor = reply.Cursor
	}
}

func TestListPages(t *testing.T) {
	g := listGovernor("/a/b", "/a/c", "/ab", "/b", "/b/x/y")
	all := []string{"/a", "/a/b", "/a/c", "/ab", "/b", "/b/x", "/b/x/y", "/default"}
	for limit := range uint32(10) {
		if got, sizes := pages(t, g, protocol.NodeList{Limit: limit}, nil); !slices.Equal(got, all) {
			t.Errorf("limit %d: %v in pages of %v", limit, got, sizes)
		}
	}
	if _, sizes := pages(t, g, protocol.NodeList{Limit: 4}, nil); !slices.Equal(sizes, []int{4, 4}) {
		t.Errorf("pages of %v, want no empty one at the end", sizes)
	}
	for prefix, want := range map[string][]string{
		"/": all, "/a": all[:4], "/a/": all[1:3], "/b/x": all[5:7], "/c": nil, "/default/": nil,
	} {
		if got, _ := pages(t, g, protocol.NodeList{Prefix: prefix, Limit: 2}, nil); !slices.Equal(got, want) {
			t.Errorf("prefix %s: %v, want %v", prefix, got, want)
		}
	}
	under := func(p string) bool { return strings.HasPrefix(p, "/b") }
	if got, _ := pages(t, g, protocol.NodeList{Limit: 1}, under); !slices.Equal(got, all[4:7]) {
		t.Errorf("visible: %v", got)
	}
	if got, _ := pages(t, g, protocol.NodeList{Prefix: "/a", Cursor: []byte("/b")}, nil); got != nil {
		t.Errorf("a cursor behind the prefix: %v", got)
	}
	if got, _ := pages(t, g, protocol.NodeList{Prefix: "/a", Cursor: []byte("/")}, nil); !slices.Equal(got, all[:4]) {
		t.Errorf("a cursor before the prefix: %v", got)
	}
	_, err := g.ListNodes(&protocol.NodeList{Prefix: strings.Repeat("/", 2000)}, nil)
	wants(t, err, protocol.StatusBadRequest)
}

// TestListIsBounded: neither long paths nor invisible nodes make a page large or slow.
func TestListIsBounded(t *testing.T) {
	long := "/" + strings.Repeat("x", 900)
	var paths []string
	for i := range 2 * MaxPage {
		paths = append(paths, fmt.Sprintf("%s%04d", long, i))
	}
	g := listGovernor(paths...)
	got, sizes := pages(t, g, protocol.NodeList{Limit: 1 << 30}, nil)
	if len(got) != len(paths)+1 {
		t.Errorf("%d nodes, want %d", len(got), len(paths)+1)
	}
	if most := slices.Max(sizes); most > pageBytes/900+1 {
		t.Errorf("a page has %d nodes of 900 bytes", most)
	}
}

func TestPendingNodesAreNotListed(t *testing.T) {
	inCluster(t, func(t *testing.T, ctx context.Context, c *fakeCluster, g *Governor) {
		_, err := g.CreateNode(ctx, create("/gone"))
		must(t, err)
		c.with(func(w *fakeState) {
			w.shards[1].down = true
			w.create("/coming", protocol.DefaultGracePeriod)
			w.drop("/gone")
			w.alter(meta.DefaultPath, 12_000)
		})
		if got, _ := pages(t, g, protocol.NodeList{}, nil); !slices.Equal(got, []string{meta.DefaultPath}) {
			t.Errorf("listed %v", got)
		}
	})
}

func TestMapReply(t *testing.T) {
	w := newFakeState(9, 3, 5)
	full := MapReply(&w.meta.State, 0, nil)
	want := protocol.MapReply{
		Version: 1, Cluster: "c",
		Instances: []protocol.MapInstance{{ID: 1, Name: "one", Address: "one:7070"}},
		Shards:    []protocol.MapShard{{ID: 3, Master: 1, Replicas: []uint64{1}}, {ID: 5, Master: 1, Replicas: []uint64{1}}},
		Tiers:     []protocol.MapTier{{Name: "default", Buckets: 9, Runs: []protocol.MapRun{{Count: 5, Shard: 3}, {Count: 4, Shard: 5}}}},
	}
	if got, want := fmt.Sprintf("%+v", full), fmt.Sprintf("%+v", want); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	led := MapReply(&w.meta.State, 7, func(shard uint64) (uint64, uint64) { return shard - 3, 0 })
	if led.Shards[0].Master != 1 || led.Shards[1].Master != 2 {
		t.Errorf("masters %+v", led.Shards)
	}
	if known := MapReply(&w.meta.State, 1, nil); known.Version != 1 || known.Shards != nil || known.Instances != nil || known.Tiers != nil {
		t.Errorf("a known version is answered with %+v", known)
	}
}
