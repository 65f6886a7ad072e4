package integration

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/port"
)

// TestAuthTurnedOn: in a cluster that was open, tokens can be given out before auth counts. Then
// who came in without, or may do less than before, is sent away.
func TestAuthTurnedOn(t *testing.T) {
	t.Parallel()
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
	plain := issue(t, anybody, "bob") // who is granted nothing
	await.True(t, "the token to be known", func() bool { _, reply, _ = greet(t, s, plain); return reply.Identity == "bob" })
	bob := as(t, s, plain)
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
	for what, c := range map[string]*raw{"may do less now, and may have a stream open": alice, "may do nothing now": bob} {
		if g := c.closed(); g == nil || g.Status != protocol.StatusUnavailable {
			t.Errorf("goodbye of a client with a token that %s is %+v", what, g)
		}
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
	if err := root.WithReason("test").DisableAuth(t.Context(), true); err != nil {
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
	t.Parallel()
	s := start(t, nil)
	c := adminClient(t, s, "")
	if _, err := c.EnableAuth(t.Context(), rootSecret); err != nil {
		t.Fatal(err)
	}
	root := adminClient(t, s, rootSecret)
	if err := root.WithReason("test").DisableAuth(t.Context(), true); err != nil {
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
	t.Parallel()
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
	if err := root.WithReason("test").DisableAuth(t.Context(), true); err != nil {
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
