package integration

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/port"
)

const rootSecret = "root-secret-of-16-bytes-and-more"

// guarded starts a server with auth on and an administrator.
func guarded(t *testing.T, change func(*server.Config)) *instance {
	return start(t, func(c *server.Config) {
		c.Auth, c.AdminToken = true, rootSecret
		if change != nil {
			change(c)
		}
	})
}

// greet says hello with a secret.
func greet(t testing.TB, s *instance, secret string) (*raw, protocol.HelloReply, error) {
	t.Helper()
	c := dial(t, s)
	var reply protocol.HelloReply
	err := c.call(protocol.KindHello, 0, &protocol.Hello{Magic: protocol.Magic, Version: 1, Token: []byte(secret)}, &reply)
	return c, reply, err
}

func as(t testing.TB, s *instance, secret string) *raw {
	t.Helper()
	c, _, err := greet(t, s, secret)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// adminClient is a client of the SDK with a secret.
func adminClient(t testing.TB, s *instance, secret string) *admin.Client {
	t.Helper()
	c, err := client.Open(t.Context(), client.Config{Endpoints: []string{s.Addr()}, Token: []byte(secret)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return admin.New(c)
}

func issue(t testing.TB, root *admin.Client, identity string) (secret string) {
	t.Helper()
	token, err := root.CreateToken(t.Context(), "of-"+identity, identity)
	if err != nil {
		t.Fatal(err)
	}
	if len(token.Secret) < 40 {
		t.Fatalf("a secret has %d bytes", len(token.Secret))
	}
	return token.Secret
}

func grant(t testing.TB, root *admin.Client, identity, path, right string) {
	t.Helper()
	if _, err := root.Grant(t.Context(), identity, path, right); err != nil {
		t.Fatal(err)
	}
}

// TestAuth: a client without a valid token has no identity. An identity may do what was granted, at
// a path and below, at once, and no longer than it is granted.
func TestAuth(t *testing.T) {
	s := guarded(t, nil)
	for _, secret := range []string{"", "wrong", rootSecret[1:], rootSecret + "x", strings.ToUpper(rootSecret)} {
		c, _, err := greet(t, s, secret)
		if !errors.Is(err, protocol.StatusUnauthenticated) {
			t.Fatalf("secret %q was answered %v", secret, err)
		}
		if g := c.closed(); g == nil || g.Status != protocol.StatusUnauthenticated {
			t.Fatalf("goodbye is %+v", g)
		}
	}
	if n := s.Metrics.AuthFailures.Get(); n != 5 {
		t.Errorf("%d failures were counted", n)
	}
	root := adminClient(t, s, rootSecret)
	boss := as(t, s, rootSecret)
	for _, path := range []string{"/a", "/a/b", "/ab"} {
		boss.must(protocol.KindNodeCreate, 0, &protocol.NodeCreate{Path: path}, &protocol.NodeInfo{})
	}
	secret := issue(t, root, "alice")
	alice := as(t, s, secret)
	describe := func(path string) error {
		return alice.call(protocol.KindNodeDescribe, 0, &protocol.NodeDescribe{Path: path}, &protocol.NodeInfo{})
	}
	for _, path := range []string{"/a", "/a/b", "/ab", "/missing", "/default"} {
		if err := describe(path); !errors.Is(err, protocol.StatusForbidden) || strings.Contains(err.Error(), path) {
			t.Errorf("%s without a right was answered %v", path, err)
		}
	}
	grant(t, root, "alice", "/a", "read")
	for path, want := range map[string]error{"/a": nil, "/a/b": nil, "/a/missing": protocol.StatusNotFound,
		"/ab": protocol.StatusForbidden} {
		await.True(t, "the right", func() bool { err := describe(path); return errors.Is(err, want) || want == nil && err == nil })
	}
	var list protocol.NodeListReply
	alice.must(protocol.KindNodeList, 0, &protocol.NodeList{}, &list)
	if len(list.Nodes) != 2 {
		t.Errorf("alice sees the nodes %+v", list.Nodes)
	}
	node := boss.nodeInfo("/a").ID
	r := alice.session(node, 1)
	if _, err := alice.lock(node, r.Session, "x", 0); !errors.Is(err, protocol.StatusForbidden) {
		t.Errorf("acquire with the right to read: %v", err)
	}
	grant(t, root, "alice", "/a", "use")
	await.True(t, "the right to use", func() bool { _, err := alice.lock(node, r.Session, "x", 0); return err == nil })
	for _, x := range []struct {
		kind protocol.Kind
		m    protocol.Message
	}{
		{protocol.KindNodeDrop, &protocol.NodeDrop{Path: "/a/b"}}, {protocol.KindNodeCreate, &protocol.NodeCreate{Path: "/a/c"}},
		{protocol.KindNodeAlter, &protocol.NodeAlter{Path: "/a"}},
		{protocol.KindCluster, &protocol.Cluster{Method: protocol.MethodStatus, Body: []byte("{}")}},
		{protocol.KindCluster, &protocol.Cluster{Method: protocol.MethodAuth, Body: []byte("{}")}},
		{protocol.KindCluster, &protocol.Cluster{Method: protocol.MethodTokenCreate, Body: []byte(`{"identity":"admin"}`)}},
		{protocol.KindCluster, &protocol.Cluster{Method: protocol.MethodGrant, Body: []byte(`{"path":"/","identity":"alice","right":"admin"}`)}},
		{protocol.KindCluster, &protocol.Cluster{Method: protocol.MethodAuthSwitch, Body: []byte(`{"on":false}`)}},
	} {
		alice.fails(protocol.StatusForbidden, x.kind, 0, x.m)
	}
	// The longest path counts, also where it takes away.
	// Whatever was opened with it ends: the connection does.
	other := as(t, s, issue(t, root, "other"))
	grant(t, root, "alice", "/a/b", "none")
	if g := alice.closed(); g == nil || g.Status != protocol.StatusUnavailable || !strings.Contains(g.Message, "was taken away") {
		t.Errorf("goodbye of who may do less is %+v", g)
	}
	other.ping()
	alice = as(t, s, secret)
	await.True(t, "the right to be gone", func() bool { return errors.Is(describe("/a/b"), protocol.StatusForbidden) })
	if err := describe("/a"); err != nil {
		t.Error(err)
	}
	if err := root.Revoke(t.Context(), "alice", "/a/b"); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the shorter path's right", func() bool { return describe("/a/b") == nil })

	// A revoked token ends its connections, and opens none.
	if err := root.RevokeToken(t.Context(), "of-alice"); err != nil {
		t.Fatal(err)
	}
	if g := alice.closed(); g == nil || g.Status != protocol.StatusUnauthenticated {
		t.Errorf("goodbye of a revoked token is %+v", g)
	}
	if _, _, err := greet(t, s, secret); !errors.Is(err, protocol.StatusUnauthenticated) {
		t.Errorf("a revoked token was answered %v", err)
	}
	other.ping()

	// Nobody can lock everybody out.
	_, granted := root.Grant(t.Context(), "admin", "/", "use")
	for _, err := range []error{root.RevokeToken(t.Context(), "admin"), root.Revoke(t.Context(), "admin", "/"), granted} {
		if !errors.Is(err, protocol.StatusPreconditionFailed) {
			t.Errorf("the last administrator: %v", err)
		}
	}
	// The server keeps no secrets.
	state, err := root.Auth(t.Context())
	if err != nil || !state.Enabled || len(state.Tokens) != 2 || len(state.Rights) != 2 {
		t.Errorf("%+v, %v", state, err)
	}
	for _, x := range state.Tokens {
		if x.Secret != "" {
			t.Error("a secret is shown again")
		}
	}
}

// TestAuthBeforeMap: a token is revoked on an instance that still carries out an older change: it
// stops a replica.
func TestAuthBeforeMap(t *testing.T) {
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
	b.Hosting.ReplicaRemoved(d.ID(), d.Raft().Replica())
	defer close(release)
	<-stopping
	ask(protocol.MethodTokenRevoke, `{"id":"of-alice"}`, &struct{}{})
	if g := alice.closed(); g == nil || g.Status != protocol.StatusUnauthenticated {
		t.Errorf("goodbye of a revoked token is %+v", g)
	}
}

// TestRightsAtCutOffInstance: an instance that is cut off from the others refuses nobody for good.
// A right may have been granted, and a token made, since it last heard.
func TestRightsAtCutOffInstance(t *testing.T) {
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
	send("what was not granted", protocol.KindNodeDrop, 0, &protocol.NodeDrop{Path: "/known"})
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
	alice.fails(protocol.StatusForbidden, protocol.KindNodeDrop, 0, &protocol.NodeDrop{Path: "/known"})
	if _, _, err := greet(t, k.server(behind), other); err != nil {
		t.Errorf("the token is answered %v", err)
	}
	if _, _, err := greet(t, k.server(behind), "wrong"); !errors.Is(err, protocol.StatusUnauthenticated) {
		t.Errorf("a wrong token is answered %v", err)
	}
}

// TestTokenExpires: a token is good until it expires. Its connections are closed then, it is refused,
// and what is left of its time is among the metrics. Uses are noted, and not at every connection.
func TestTokenExpires(t *testing.T) {
	s := guarded(t, nil)
	root := adminClient(t, s, rootSecret)
	at := time.Now().Add(2 * time.Second)
	token, err := root.CreateToken(t.Context(), "brief", "brief", admin.Expires(at))
	if err != nil {
		t.Fatal(err)
	}
	grant(t, root, "brief", "/default", "use")
	secret := token.Secret
	brief := as(t, s, secret)
	token = tokenOf(t, root, "brief")
	if token.ExpiresAtMS != uint64(at.UnixMilli()) {
		t.Errorf("the token is %+v", token)
	}
	s.Requests.Tokens.Check(t.Context(), time.Now())
	await.True(t, "the use to be noted", func() bool { return tokenOf(t, root, "brief").UsedAtMS != 0 })
	used := tokenOf(t, root, "brief").UsedAtMS
	as(t, s, secret)
	s.Requests.Tokens.Check(t.Context(), time.Now())
	if now := tokenOf(t, root, "brief").UsedAtMS; now != used {
		t.Errorf("a use %d ms after the last was noted", now-used)
	}
	s.Requests.Tokens.Check(t.Context(), time.Now().Add(2*time.Hour))
	if g := brief.closed(); g == nil || g.Status != protocol.StatusUnauthenticated || !strings.Contains(g.Message, "has expired") {
		t.Errorf("the connection of an expired token was ended with %+v", g)
	}
	await.True(t, "the token to be refused", func() bool {
		_, _, err := greet(t, s, secret)
		return errors.Is(err, protocol.StatusUnauthenticated)
	})
	if text := scrape(s); !strings.Contains(text, "\nsignalbox_token_expiry_timestamp_seconds ") {
		t.Error("the expiry is not among the metrics")
	}
}

func tokenOf(t *testing.T, root *admin.Client, id string) *admin.Token {
	t.Helper()
	state, err := root.Auth(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range state.Tokens {
		if token.ID == id {
			return &token
		}
	}
	t.Fatalf("there is no token %s", id)
	return nil
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

// TestTokenRequests: the server takes the hash of a secret, which only the asker has, and bounds the
// id.
func TestTokenRequests(t *testing.T) {
	s := start(t, nil)
	c := connect(t, s)
	ask := func(in string) error {
		return c.call(protocol.KindCluster, 0, &protocol.Cluster{Method: protocol.MethodTokenCreate, Body: []byte(in)}, nil)
	}
	if err := ask(tokenRequest("x", "alice", "0123456789abcdef")); err != nil {
		t.Fatal(err)
	}
	as(t, s, "0123456789abcdef")
	for _, bad := range []string{`{"id":"y","identity":"alice"}`, `{"id":"y","identity":"alice","hash":"AAAA"}`} {
		if err := ask(bad); !errors.Is(err, protocol.StatusBadRequest) || !strings.Contains(err.Error(), "send its SHA-256") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if err := ask(tokenRequest(strings.Repeat("x", 64), "alice", "fedcba9876543210")); err != nil {
		t.Errorf("an id of 64 bytes: %v", err)
	}
	long := strings.Repeat("x", 65)
	if err := ask(tokenRequest(long, "alice", "another secret of mine")); !errors.Is(err, protocol.StatusBadRequest) ||
		!strings.Contains(err.Error(), "give up to 64 bytes") {
		t.Errorf("an id of 65 bytes: %v", err)
	}
	c.fails(protocol.StatusNotFound, protocol.KindCluster, 0,
		&protocol.Cluster{Method: protocol.MethodTokenRevoke, Body: []byte(`{"id":"` + long + `"}`)})
	c.fails(protocol.StatusNotFound, protocol.KindCluster, 0, &protocol.Cluster{Method: protocol.MethodRevoke,
		Body: []byte(`{"path":"/","identity":"` + strings.Repeat("x", 257) + `"}`)})
}

// TestAuthTurnedOn: in a cluster that was open, tokens can be given out before auth counts. Then
// who came in without, or may do less than before, is sent away.
func TestAuthTurnedOn(t *testing.T) {
	s := start(t, nil)
	open, turned, tried := connect(t, s), connect(t, s), connect(t, s)
	turned.must(protocol.KindCluster, 0, &protocol.Cluster{Method: protocol.MethodAuthSwitch, Body: []byte(`{"on":false}`)},
		&protocol.ClusterReply{})
	tried.fails(protocol.StatusPreconditionFailed, protocol.KindCluster, 0,
		&protocol.Cluster{Method: protocol.MethodAuthSwitch, Body: []byte(`{"on":true}`)})
	anybody := adminClient(t, s, "")
	secret := issue(t, anybody, "alice")
	grant(t, anybody, "alice", "/default", "use")
	var reply protocol.HelloReply
	await.True(t, "the token to be known", func() bool { _, reply, _ = greet(t, s, secret); return reply.Identity == "alice" })
	alice := as(t, s, secret)
	if _, err := anybody.EnableAuth(t.Context(), ""); !errors.Is(err, protocol.StatusPreconditionFailed) {
		t.Fatalf("on without an administrator: %v", err)
	}
	for _, secret := range []string{rootSecret[:15], strings.Repeat("x", 1025)} {
		if _, err := anybody.EnableAuth(t.Context(), secret); !errors.Is(err, protocol.StatusBadRequest) {
			t.Fatalf("a secret of %d bytes: %v", len(secret), err)
		}
	}
	if token, err := anybody.EnableAuth(t.Context(), rootSecret); err != nil || token.Secret != "" || token.Identity != "admin" {
		t.Fatalf("%+v, %v", token, err)
	}
	for what, c := range map[string]*raw{"asked nothing": open, "turned auth off": turned, "could not turn auth on": tried} {
		if g := c.closed(); g == nil || g.Status != protocol.StatusUnavailable {
			t.Errorf("goodbye of a client that %s is %+v", what, g)
		}
	}
	if g := alice.closed(); g == nil || g.Status != protocol.StatusUnavailable {
		t.Errorf("a client with a token that may do less now, and may have a stream open: goodbye is %+v", g)
	}
	alice = as(t, s, secret)
	mine := alice.session(alice.node(), 3)
	if _, err := alice.lock(alice.node(), mine.Session, "x", 0); err != nil {
		t.Errorf("a client that had a token and a right before: %v", err)
	}
	root := adminClient(t, s, rootSecret)
	// What is granted to the anonymous lets them in again.
	if _, _, err := greet(t, s, ""); !errors.Is(err, protocol.StatusUnauthenticated) {
		t.Errorf("without credentials: %v", err)
	}
	grant(t, root, "anonymous", "/default", "read")
	await.True(t, "the anonymous to be let in", func() bool { _, _, err := greet(t, s, ""); return err == nil })
	remote := as(t, s, "")
	g := remote.session(remote.node(), 2)
	if _, err := remote.lock(remote.node(), g.Session, "y", 0); !errors.Is(err, protocol.StatusForbidden) {
		t.Errorf("an anonymous acquire: %v", err)
	}
	// And off again: everybody may do everything.
	if err := root.DisableAuth(t.Context()); err != nil {
		t.Fatal(err)
	}
	await.True(t, "auth to be off", func() bool { _, err := remote.lock(remote.node(), g.Session, "y", 0); return err == nil })
	// And on again: who may do everything all the same keeps its connection.
	owner := as(t, s, rootSecret)
	own := owner.session(owner.node(), 4)
	if _, err := root.EnableAuth(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if g := remote.closed(); g == nil || g.Status != protocol.StatusUnavailable {
		t.Errorf("goodbye is %+v", g)
	}
	if _, err := owner.lock(owner.node(), own.Session, "z", 0); err != nil {
		t.Errorf("a client that may do everything as before: %v", err)
	}
}

// TestAdministratorWithoutRight: a token that the first administrator's would collide with keeps
// auth off, and the refusal says what to do.
func TestAdministratorWithoutRight(t *testing.T) {
	s := start(t, nil)
	c := adminClient(t, s, "")
	if _, err := c.EnableAuth(t.Context(), rootSecret); err != nil {
		t.Fatal(err)
	}
	root := adminClient(t, s, rootSecret)
	if err := root.DisableAuth(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := root.Revoke(t.Context(), "admin", "/"); err != nil {
		t.Fatal(err)
	}
	for what, secret := range map[string]string{"the former secret": rootSecret, "another secret": rootSecret + "x"} {
		if _, err := root.EnableAuth(t.Context(), secret); !errors.Is(err, protocol.StatusPreconditionFailed) ||
			!strings.Contains(err.Error(), "auth grant IDENTITY / admin") {
			t.Errorf("on again with %s: %v", what, err)
		}
	}
	grant(t, root, "admin", "/", "admin")
	if _, err := root.EnableAuth(t.Context(), ""); err != nil {
		t.Error(err)
	}
}

// TestFirstAdministrator: the token is made up once, kept in a file for its owner only, and holds
// through restarts; auth that was turned off stays so.
func TestFirstAdministrator(t *testing.T) {
	dir := t.TempDir()
	cfg := func(c *server.Config) {
		c.Memory, c.DataDir, c.Raft, c.Auth = false, dir, port.ForTest(t), true
	}
	s := start(t, cfg)
	raft := s.Config.Raft
	path := filepath.Join(dir, "admin-token")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	secret := strings.TrimSpace(string(b))
	as(t, s, secret)
	if err := shutdown(s); err != nil {
		t.Fatal(err)
	}
	again := func(c *server.Config) { cfg(c); c.Raft = raft }
	s = start(t, again)
	if _, _, err := greet(t, s, ""); !errors.Is(err, protocol.StatusUnauthenticated) {
		t.Errorf("after a restart, without credentials: %v", err)
	}
	root := adminClient(t, s, secret)
	if err := root.DisableAuth(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := shutdown(s); err != nil {
		t.Fatal(err)
	}
	s = start(t, again)
	if _, _, err := greet(t, s, ""); err != nil {
		t.Errorf("a restart has turned auth on: %v", err)
	}
}

// TestOtherIdentity: a session is of no use to another identity, whatever of it that identity has: its
// id, its key, its ticket.
func TestOtherIdentity(t *testing.T) {
	s := guarded(t, nil)
	root := adminClient(t, s, rootSecret)
	a, m := issue(t, root, "alice"), issue(t, root, "mallory")
	for _, who := range []string{"alice", "mallory"} {
		grant(t, root, who, "/default", "use")
	}
	await.True(t, "the rights", func() bool {
		c, _, err := greet(t, s, m)
		return err == nil && c.call(protocol.KindNodeDescribe, 0, &protocol.NodeDescribe{Path: "/default"}, &protocol.NodeInfo{}) == nil
	})
	alice, mallory := as(t, s, a), as(t, s, m)
	node := alice.node()
	r := alice.session(node, 1)
	if _, err := mallory.attach(node, 1, r.Session, 2); !errors.Is(err, protocol.StatusBadSession) {
		t.Errorf("attach from another identity, with the key: %v", err)
	}
	if _, err := mallory.lock(node, r.Session, "x", 0); !errors.Is(err, protocol.StatusBadSession) {
		t.Errorf("acquire from another identity: %v", err)
	}
	mallory.fails(protocol.StatusBadSession, protocol.KindSessionStop, uint64(protocol.SessionBucket(r.Session)),
		&protocol.SessionStop{Session: r.Session})
	mallory.fails(protocol.StatusBadSession, protocol.KindPresentTicket, 0, &protocol.PresentTicket{Ticket: r.Ticket})
	if _, err := alice.lock(node, r.Session, "x", 0); err != nil {
		t.Fatal(err)
	}
	// A start with the same create id and key is somebody else's too.
	again := &protocol.SessionStart{Node: node, CreateID: id16(1), Key: id16(1), Timeout: mallory.timeout(), Description: "raw", Nonce: 2}
	var other protocol.SessionReply
	if err := mallory.call(protocol.KindSessionStart, mallory.homeBucket(again.CreateID), again,
		&other); err == nil && other.Session == r.Session {
		t.Error("a start from another identity was given the session")
	}
	// Another connection of the same identity may have it, with the key; and another token of it.
	token, err := root.CreateToken(t.Context(), "", "alice")
	if err != nil {
		t.Fatal(err)
	}
	var second *raw
	await.True(t, "the second token", func() bool {
		c, _, err := greet(t, s, token.Secret)
		second = c
		return err == nil
	})
	if _, err := second.attach(node, 1, r.Session, 2); err != nil {
		t.Errorf("attach from the same identity: %v", err)
	}
}

// TestLoweredRight: an identity whose right was lowered to read acquires nothing more, and gives back
// what it holds.
func TestLoweredRight(t *testing.T) {
	s := guarded(t, nil)
	root := adminClient(t, s, rootSecret)
	secret := issue(t, root, "alice")
	grant(t, root, "alice", "/default", "use")
	boss := as(t, s, rootSecret)
	alice := as(t, s, secret)
	node := boss.node()
	var r protocol.SessionReply
	await.True(t, "the right to use", func() bool {
		return alice.call(protocol.KindNodeDescribe, 0, &protocol.NodeDescribe{Path: "/default"}, &protocol.NodeInfo{}) == nil
	})
	r = alice.session(node, 1)
	if _, err := alice.lock(node, r.Session, "x", 0); err != nil {
		t.Fatal(err)
	}
	grant(t, root, "alice", "/default", "read")
	alice.closed()
	alice = as(t, s, secret)
	if _, err := alice.attach(node, 1, r.Session, 2); err != nil {
		t.Fatal(err)
	}
	head := protocol.Head{Session: r.Session, Seq: 50, Low: 50}
	alice.fails(protocol.StatusForbidden, protocol.KindAcquire, alice.bucket(node, "y"),
		&protocol.Acquire{Head: head, Name: []byte("y"), Count: 1, Ephemeral: true})
	var released protocol.ReleaseReply
	alice.must(protocol.KindRelease, alice.bucket(node, "x"), &protocol.Release{Head: head, Name: []byte("x")}, &released)
	if d, err := boss.describe(node, "x", protocol.Strict); !released.Released || err == nil && d.NumOwners != 0 {
		t.Errorf("released %v; the lock has %d owners, %v", released.Released, d.NumOwners, err)
	}
}

// TestEveryBitOfATicket: whichever bit is flipped, and wherever it is cut, it is refused.
func TestEveryBitOfATicket(t *testing.T) {
	s := start(t, nil)
	c := connect(t, s)
	r := c.session(c.node(), 1)
	x := connect(t, s)
	refused := func(what string, ticket []byte) {
		if err := x.call(protocol.KindPresentTicket, 0, &protocol.PresentTicket{Ticket: ticket}, nil); err == nil {
			t.Fatalf("a ticket with %s was accepted", what)
		}
	}
	for i := range len(r.Ticket) * 8 {
		ticket := append([]byte(nil), r.Ticket...)
		ticket[i/8] ^= 1 << (i % 8)
		refused(fmt.Sprintf("bit %d flipped", i), ticket)
	}
	for n := range r.Ticket {
		refused(fmt.Sprintf("%d bytes", n), r.Ticket[:n])
	}
	refused("a byte more", append(append([]byte(nil), r.Ticket...), 0))
	x.must(protocol.KindPresentTicket, 0, &protocol.PresentTicket{Ticket: r.Ticket}, nil)
}

// TestRejectedConnectionsCount: a refused connection that waits for its answer takes no bytes, and
// is one of the bounded connections.
func TestRejectedConnectionsCount(t *testing.T) {
	s := guarded(t, nil)
	for range 8 { // until the answers are late
		s.Requests.AuthFailures.Delay("127.0.0.1", time.Now())
	}
	c := dial(t, s)
	id := c.send(protocol.KindHello, 0, &protocol.Hello{Magic: protocol.Magic, Version: 1, Token: []byte("wrong")})
	c.send(protocol.KindHello, 0, &protocol.Hello{Magic: protocol.Magic, Version: 1, Token: []byte(rootSecret)})
	if err := c.reply(protocol.KindHello, id, nil); !errors.Is(err, protocol.StatusUnauthenticated) {
		t.Fatal(err)
	}
	if g := c.closed(); g == nil || g.Status != protocol.StatusUnauthenticated || len(c.later) != 0 {
		t.Fatalf("a second hello on a refused connection was answered: %+v, %v", g, c.later)
	}
	as(t, s, rootSecret)
}

// tokenRequest is the body of a request for a token with a secret of the asker's.
func tokenRequest(id, identity, secret string) string {
	hash := sha256.Sum256([]byte(secret))
	return fmt.Sprintf(`{"id":%q,"identity":%q,"hash":%q}`, id, identity, base64.StdEncoding.EncodeToString(hash[:]))
}
