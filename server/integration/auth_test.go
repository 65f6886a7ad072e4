package integration

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
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
	t.Parallel()
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
	for secret, want := range map[string]uint64{"": 0, "wrong": 1} { // a console asks whether people must log in
		before := s.Metrics.AuthFailures.Get()
		err := dial(t, s).call(protocol.KindHello, 0, &protocol.Hello{
			Magic: protocol.Magic, Version: 1, Client: protocol.ConsoleClient, Token: []byte(secret),
		}, &protocol.HelloReply{})
		if n := s.Metrics.AuthFailures.Get() - before; n != want || !errors.Is(err, protocol.StatusUnauthenticated) {
			t.Errorf("console with secret %q: %v, and %d failures were counted", secret, err, n)
		}
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
		{protocol.KindNodeDelete, &protocol.NodeDelete{Path: "/a/b", Force: true, Reason: "test"}}, {protocol.KindNodeCreate, &protocol.NodeCreate{Path: "/a/c"}},
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

// TestRejectedConnectionsCount: a refused connection that waits for its answer takes no bytes, and
// is one of the bounded connections.
func TestRejectedConnectionsCount(t *testing.T) {
	t.Parallel()
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
