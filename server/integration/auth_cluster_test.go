package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// TestAuthBeforeMap: a token is revoked on an instance that still carries out an older change: it
// stops a replica.
func TestAuthBeforeMap(t *testing.T) {
	t.Parallel()
	k := newClusterKit(t, 1)
	stopping, release := make(chan struct{}), make(chan struct{})
	k.change = func(name string, c *server.Config) {
		c.Auth, c.AdminToken = true, rootSecret
		if name == "b" {
			c.Logger = slog.New(heldLog{text: "replica removed from this instance", reached: stopping, release: release})
		}
	}
	a := k.must("a")
	b := k.must("b", "a")
	k.awaitOn("b", "its shards", balanced(2, 2, 1))
	k.mapFollowed()
	boss := as(t, a, rootSecret)
	ask := func(method, in string, out any) {
		t.Helper()
		var reply protocol.ClusterReply
		boss.must(protocol.KindCluster, 0, &protocol.Cluster{Method: method, Body: []byte(in)}, &reply)
		if err := json.Unmarshal(reply.Body, out); err != nil {
			t.Fatal(err)
		}
	}
	var token protocol.AuthToken
	const secret = "a secret of alice, of many bytes"
	ask(protocol.MethodTokenCreate, tokenRequest("of-alice", "alice", secret), &token)
	var alice *raw
	k.eventually("the token on b", func() bool {
		c, reply, err := greet(t, b, secret)
		alice = c
		return err == nil && reply.Identity == "alice"
	})

	d := b.Serving.Shards.All()[0]
	b.Hosting.ReplicaRemoved(d.ID(), d.Replica().Replica())
	defer close(release)
	<-stopping
	ask(protocol.MethodTokenRevoke, `{"id":"of-alice"}`, &struct{}{})
	if g := alice.closed(); g == nil || g.Status != protocol.StatusUnauthenticated {
		t.Errorf("goodbye of a revoked token is %+v", g)
	}
}

// heldLog holds the goroutine that logs a text, until it is released.
type heldLog struct {
	slog.Handler
	text             string
	reached, release chan struct{}
}

func (h heldLog) Enabled(context.Context, slog.Level) bool { return true }
func (h heldLog) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h heldLog) WithGroup(string) slog.Handler            { return h }
func (h heldLog) Handle(_ context.Context, r slog.Record) error {
	if r.Message == h.text {
		close(h.reached)
		<-h.release
	}
	return nil
}

// TestRightsAtCutOffInstance: an instance that is cut off from the others refuses nobody for good.
// A right may have been granted, and a token made, since it last heard.
func TestRightsAtCutOffInstance(t *testing.T) {
	form.SkipUntil(t, form.Full, "an instance is cut off until its map is old")
	t.Parallel()
	k := newClusterKit(t, 3)
	k.change = func(_ string, c *server.Config) { c.Auth, c.AdminToken = true, rootSecret }
	k.startAll("a", "b", "c")
	k.awaitOn("a", "three instances that work", balanced(3, 3, 3))
	there, behind := "a", "c"
	if k.server(behind).Meta.Leading() {
		behind = "b"
	}
	root, boss := adminClient(t, k.server(there), rootSecret), as(t, k.server(there), rootSecret)
	boss.must(protocol.KindNodeCreate, 0, &protocol.NodeCreate{Path: "/known"}, &protocol.NodeInfo{})
	known := boss.nodeInfo("/known").ID
	secret := issue(t, root, "alice")
	var alice *raw
	k.eventually("the token and the node at the instance", func() bool {
		c, _, err := greet(t, k.server(behind), secret)
		alice = c
		_, ok := k.server(behind).Requests.Routes().State.Node(known)
		return err == nil && ok
	})
	alice.fails(protocol.StatusForbidden, protocol.KindNodeDescribe, 0, &protocol.NodeDescribe{Path: "/known"})

	k.partition(behind)
	grant(t, root, "alice", "/known", "use")
	other := issue(t, root, "other")
	boss.must(protocol.KindNodeCreate, 0, &protocol.NodeCreate{Path: "/known/new"}, &protocol.NodeInfo{})
	made := boss.nodeInfo("/known/new").ID
	late := dial(t, k.server(behind))
	hello := late.send(protocol.KindHello, 0, &protocol.Hello{Magic: protocol.Magic, Version: 1, Token: []byte(other)})
	asked := make(map[string]uint64)
	kinds := make(map[string]protocol.Kind)
	send := func(what string, kind protocol.Kind, bucket uint64, m protocol.Message) {
		kinds[what], asked[what] = kind, alice.send(kind, bucket, m)
	}
	shard := alice.s.shardIDs()[0]
	send("watch", protocol.KindWatch, alice.bucket(known, "x"), &protocol.Watch{Shard: shard, Node: known, Name: []byte("x")})
	send("watch in a new node", protocol.KindWatch, 0, &protocol.Watch{Shard: shard, Node: made, Name: []byte("x")})
	send("read", protocol.KindList, 0, &protocol.List{Node: known, Consistency: protocol.Relaxed})
	send("start", protocol.KindSessionStart, alice.homeBucket(id16(1)),
		&protocol.SessionStart{Node: known, CreateID: id16(1), Key: id16(1), Timeout: 10_000, Nonce: 1})
	send("start by path", protocol.KindSessionStart, alice.homeBucket(id16(2)),
		&protocol.SessionStart{Path: "/known", CreateID: id16(2), Key: id16(2), Timeout: 10_000, Nonce: 1})
	send("describe of a node", protocol.KindNodeDescribe, 0, &protocol.NodeDescribe{Path: "/known"})
	send("what was not granted", protocol.KindNodeDelete, 0, &protocol.NodeDelete{Path: "/known", Force: true, Reason: "test"})
	send("status", protocol.KindCluster, 0, &protocol.Cluster{Method: protocol.MethodStatus, Body: []byte("{}")})
	said := make(map[string]bool)
	for what, id := range asked {
		err := alice.reply(kinds[what], id, &protocol.Empty{})
		if !errors.Is(err, protocol.StatusUnavailable) {
			t.Errorf("%s is answered %v", what, err)
		}
		said[fmt.Sprint(err)] = true
	}
	if len(said) != 1 {
		t.Errorf("nodes are told apart: %v", said)
	}
	if err := late.reply(protocol.KindHello, hello, nil); !errors.Is(err, protocol.StatusUnavailable) {
		t.Errorf("a token that was made elsewhere is answered %v", err)
	}
	if g := late.closed(); g == nil || g.Status != protocol.StatusUnavailable {
		t.Errorf("its goodbye is %+v", g)
	}

	k.net.HealAll()
	k.eventually("the right, which is never denied", func() bool {
		err := alice.call(protocol.KindNodeDescribe, 0, &protocol.NodeDescribe{Path: "/known"}, &protocol.NodeInfo{})
		if errors.Is(err, protocol.StatusForbidden) {
			t.Fatal(err)
		}
		return err == nil
	})
	alice.fails(protocol.StatusForbidden, protocol.KindNodeDelete, 0, &protocol.NodeDelete{Path: "/known", Force: true, Reason: "test"})
	if _, _, err := greet(t, k.server(behind), other); err != nil {
		t.Errorf("the token is answered %v", err)
	}
	if _, _, err := greet(t, k.server(behind), "wrong"); !errors.Is(err, protocol.StatusUnauthenticated) {
		t.Errorf("a wrong token is answered %v", err)
	}
}
