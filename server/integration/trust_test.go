package integration

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/trust/trusttest"
)

// trusted is an instance that trusts an issuer: jobs of octo are the identity ci, which may use
// /default.
func trusted(t *testing.T, change func(*server.Config)) (*instance, *admin.Client, *trusttest.Issuer) {
	t.Helper()
	s := guarded(t, change)
	root, issuer := adminClient(t, s, rootSecret), trusttest.New(t)
	if _, err := root.CreateTrust(t.Context(), admin.Trust{Name: "ci", Issuer: trusttest.Name, Audience: trusttest.Audience}); err != nil {
		t.Fatal(err)
	}
	addRule(t, root, "repository", "octo/*", "ci")
	setKeys(t, root, issuer)
	grant(t, root, "ci", "/default", "use")
	return s, root, issuer
}

func addRule(t *testing.T, root *admin.Client, claim, pattern, as string) {
	t.Helper()
	rule := admin.TrustRule{If: []admin.TrustCondition{{Claim: claim, Pattern: pattern}}, As: as}
	if _, err := root.MapTrust(t.Context(), "ci", rule); err != nil {
		t.Fatal(err)
	}
}

func setKeys(t *testing.T, root *admin.Client, issuer *trusttest.Issuer) {
	t.Helper()
	if _, err := root.SetTrustKeys(t.Context(), "ci", issuer.Keys(t)); err != nil {
		t.Fatal(err)
	}
}

var ofOcto = map[string]any{"repository": "octo/api"}

// TestPlatformToken: a token that the issuer signed is an identity. One that fails is refused like
// a wrong secret, and counted like one.
func TestPlatformToken(t *testing.T) {
	t.Parallel()
	s, root, issuer := trusted(t, nil)
	token := issuer.Token(t, "job", time.Hour, ofOcto)
	for range 2 { // checked, and remembered
		if _, reply, err := greet(t, s, token); err != nil || reply.Identity != "ci" {
			t.Errorf("a good token is %q, %v", reply.Identity, err)
		}
	}
	// What comes with a hello waits for the check.
	behind := dial(t, s)
	hello := behind.send(protocol.KindHello, 0, &protocol.Hello{Magic: protocol.Magic, Version: 1,
		Token: []byte(issuer.Token(t, "job", 2*time.Hour, ofOcto))})
	ask := behind.send(protocol.KindMap, 0, &protocol.MapRequest{})
	if err := behind.reply(protocol.KindHello, hello, &protocol.HelloReply{}); err != nil {
		t.Error(err)
	}
	if err := behind.reply(protocol.KindMap, ask, &protocol.MapReply{}); err != nil {
		t.Error(err)
	}
	stranger := trusttest.New(t)
	for name, wrong := range map[string]string{
		"of no rule": issuer.Token(t, "job", time.Hour, nil), "expired": issuer.Token(t, "job", -time.Second, ofOcto),
		"of another audience": issuer.Token(t, "job", time.Hour, map[string]any{"repository": "octo/api", "aud": "x"}),
		"of another key":      stranger.Token(t, "job", time.Hour, ofOcto), "cut": token[:len(token)-4],
	} {
		if _, _, err := greet(t, s, wrong); !errors.Is(err, protocol.StatusUnauthenticated) {
			t.Errorf("a token %s: %v", name, err)
		}
	}
	// Another trust decides for what was refused before; one that was remembered is checked again.
	addRule(t, root, "sub", "job", "jobs")
	if _, reply, err := greet(t, s, issuer.Token(t, "job", time.Hour, nil)); err != nil || reply.Identity != "jobs" {
		t.Errorf("by the new rule it is %q, %v", reply.Identity, err)
	}
	if _, reply, err := greet(t, s, token); err != nil || reply.Identity != "ci" {
		t.Errorf("by the first rule it is %q, %v", reply.Identity, err)
	}
	if text := scrape(s); !strings.Contains(text, "\nsignalbox_auth_failures_total 5\n") {
		t.Error("wrong tokens are not counted once each")
	}
}

// TestUnknownKeysDelayNobody: while keys are fetched for tokens that name unknown ones, a good token
// of the same host is let in. A gateway's callers are one host.
func TestUnknownKeysDelayNobody(t *testing.T) {
	t.Parallel()
	issuer := trusttest.Serve(t)
	s, root, _ := trusted(t, func(c *server.Config) { c.IssuerPeriod = 100 * time.Millisecond }) // each may be a fetch
	if _, err := root.CreateTrust(t.Context(), admin.Trust{Name: "slow", Issuer: issuer.URL, Audience: trusttest.Audience,
		CA: string(issuer.CA)}); err != nil {
		t.Fatal(err)
	}
	rule := admin.TrustRule{If: []admin.TrustCondition{{Claim: "sub", Pattern: "*"}}, As: "slow"}
	if _, err := root.MapTrust(t.Context(), "slow", rule); err != nil {
		t.Fatal(err)
	}
	good := issuer.Token(t, "job", time.Hour, nil)
	as(t, s, good)
	issuer.Hangs.Store(true)
	issuer.Rotate(t)
	await.True(t, "a fetch that hangs", func() bool { return issuer.Hung.Load() > 0 })
	for i := range 60 { // one after the other they take minutes
		dial(t, s).send(protocol.KindHello, 0, &protocol.Hello{Magic: protocol.Magic, Version: 1,
			Token: []byte(issuer.Token(t, fmt.Sprint(i), time.Hour, nil))})
	}
	addRule(t, root, "sub", "other", "others") // nothing is remembered of the good one
	if _, reply, err := greet(t, s, good); err != nil || reply.Identity != "slow" {
		t.Errorf("a good token is %q, %v", reply.Identity, err)
	}
}

// TestPlatformTokenIsGone: a key, a rule or a trust that is gone takes its connections with it, and
// no others.
func TestPlatformTokenIsGone(t *testing.T) {
	t.Parallel()
	s, root, issuer := trusted(t, nil)
	static := as(t, s, issue(t, root, "somebody"))
	first := as(t, s, issuer.Token(t, "job", time.Hour, ofOcto))
	addRule(t, root, "sub", "other", "others") // behind its rule
	issuer.Rotate(t)
	setKeys(t, root, issuer)
	gone := func(c *raw) {
		t.Helper()
		if g := c.closed(); g == nil || g.Status != protocol.StatusUnauthenticated ||
			!strings.Contains(g.Message, "is not trusted any more") {
			t.Errorf("the connection was ended with %+v", g)
		}
	}
	gone(first)
	second := as(t, s, issuer.Token(t, "job", time.Hour, ofOcto))
	if err := root.DeleteTrust(t.Context(), "ci"); err != nil {
		t.Fatal(err)
	}
	gone(second)
	if _, _, err := greet(t, s, issuer.Token(t, "job", time.Hour, ofOcto)); !errors.Is(err, protocol.StatusUnauthenticated) {
		t.Errorf("a token of a deleted trust: %v", err)
	}
	static.must(protocol.KindMap, 0, &protocol.MapRequest{}, &protocol.MapReply{})
}

// TestPlatformTokenExpires: at its token's end a connection is sent away. A client that shows
// another one of the same identity keeps session, lease and fencing token.
func TestPlatformTokenExpires(t *testing.T) {
	t.Parallel()
	s, _, issuer := trusted(t, nil)
	end := as(t, s, issuer.Token(t, "job", 2*time.Second, ofOcto)).closed()
	if end == nil || end.Status != protocol.StatusUnauthenticated || !strings.HasSuffix(end.Message, "has expired; get a new one") {
		t.Errorf("the connection was ended with %+v", end)
	}
	var shown atomic.Int32
	c, err := client.Open(t.Context(), client.Config{Endpoints: []string{s.Addr()},
		GetToken: func(context.Context) ([]byte, error) {
			shown.Add(1)
			return []byte(issuer.Token(t, "job", 2*time.Second, ofOcto)), nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	session, err := c.Session(t.Context(), "/default")
	if err != nil {
		t.Fatal(err)
	}
	lease, err := session.Mutex("deploy").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	await.True(t, "three tokens to expire", func() bool { return shown.Load() > 3 })
	if err := lease.Context().Err(); err != nil {
		t.Errorf("the lease ended: %v", context.Cause(lease.Context()))
	}
	d, err := session.Node().Describe(t.Context(), "deploy", client.IncludeOwners())
	if err != nil || len(d.Owners) != 1 || d.Owners[0].Token != lease.Token() || d.Owners[0].Session != session.ID() {
		t.Errorf("the owners are %+v, %v", d, err)
	}
}

// TestNothingOfATokenIsSaid: tokens that pass, that are wrong in many ways, and that are refused by
// themselves or by their rules, are nowhere in logs, errors, metrics, histories or the audit log,
// and nor are their claims. The audit log has trust and subject.
func TestNothingOfATokenIsSaid(t *testing.T) {
	t.Parallel()
	var said logLines
	file := filepath.Join(t.TempDir(), "audit")
	s, root, issuer := trusted(t, func(c *server.Config) {
		c.Audit, c.Logger = file, slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	const secret = "a-claim-of-nobody-else"
	claims := func(more ...any) map[string]any {
		m := map[string]any{"repository": "octo/" + secret, "jti": "jti-" + secret}
		for i := 0; i < len(more); i += 2 {
			m[more[i].(string)] = more[i+1]
		}
		return m
	}
	good := issuer.Token(t, "job", time.Hour, claims())
	tokens := []string{good}
	for _, wrong := range []string{
		issuer.Token(t, "job", -time.Second, claims()),
		issuer.Token(t, "job", time.Hour, claims("aud", secret)),
		issuer.Token(t, "job", time.Hour, claims("iss", "https://"+secret)),
		issuer.Token(t, "job", time.Hour, claims("repository", secret)),
		issuer.Token(t, "job", time.Hour, claims("exp", secret)),
		trusttest.New(t).Token(t, "job", time.Hour, claims()),
		good[:len(good)-4], good + strings.Repeat("x", 8<<10), good[5:],
	} {
		_, _, err := greet(t, s, wrong)
		if !errors.Is(err, protocol.StatusUnauthenticated) && !errors.Is(err, protocol.StatusBadRequest) {
			t.Errorf("a wrong token is answered with %v", err)
		}
		_, _ = fmt.Fprintln(&said, err)
		tokens = append(tokens, wrong)
	}
	c, err := client.Open(t.Context(), client.Config{Endpoints: []string{s.Addr()}, Token: []byte(good)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseWithoutRelease)
	session, err := c.Session(t.Context(), "/default")
	if err != nil {
		t.Fatal(err)
	}
	node := session.Node()
	if err := session.Create(t.Context(), "x", 1, nil, client.SemaphoreConfig{History: 4}, client.Reason("because")); err != nil {
		t.Fatal(err)
	}
	lease, err := session.Acquire(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	holds, err := node.History(t.Context(), "x")
	if err != nil || len(holds) != 1 {
		t.Fatalf("%+v, %v", holds, err)
	}
	points, err := root.History(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	state, err := root.Auth(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var audit string
	await.True(t, "the line", func() bool {
		b, err := os.ReadFile(file)
		if audit = string(b); err != nil {
			t.Fatal(err)
		}
		return strings.Contains(audit, `"initiator":"ci"`)
	})
	for _, want := range []string{`"trust":"ci"`, `"subject":"job"`, `\"as\":\"ci\"`, `\"pattern\":\"octo/*\"`} {
		if !strings.Contains(audit, want) {
			t.Errorf("the audit log lacks %s:\n%s", want, audit)
		}
	}
	said.mu.Lock()
	defer said.mu.Unlock()
	for where, text := range map[string]string{
		"the audit log": audit, "the log or an error": said.b.String(), "a metric": scrape(s), "the history of a semaphore": fmt.Sprintf("%+v", holds),
		"the history of the cluster": fmt.Sprintf("%+v", points), "the list of tokens": fmt.Sprintf("%+v", state),
	} {
		for _, token := range tokens {
			for _, part := range append(strings.Split(token, "."), secret) {
				if len(part) > 8 && strings.Contains(text, part) {
					t.Errorf("%s has %q of a token", where, part)
				}
			}
		}
	}
}

// TestTrustsComeWithTheUpgrade: a cluster that may have an instance without trusts has none, and
// says so. Its data is read by this version, which then has them.
func TestTrustsComeWithTheUpgrade(t *testing.T) {
	t.Parallel()
	cfg := folderConfig(t, filepath.Join(t.TempDir(), "data"))
	cfg.Auth, cfg.AdminToken, cfg.Version = true, rootSecret, "0.2.0"
	of := admin.Trust{Name: "ci", Issuer: trusttest.Name, Audience: trusttest.Audience}
	s := serveFolder(t, cfg)
	_, err := adminClient(t, s, rootSecret).CreateTrust(t.Context(), of)
	if !errors.Is(err, protocol.StatusPreconditionFailed) || !strings.Contains(err.Error(), "0.3") {
		t.Errorf("in version 0.2 a trust is made: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	cfg.Version = ""
	s = serveFolder(t, cfg)
	t.Cleanup(func() { _ = s.Close() })
	root := adminClient(t, s, rootSecret)
	await.True(t, "the cluster to be of this version", func() bool {
		_, err = root.CreateTrust(t.Context(), of)
		return err == nil || !errors.Is(err, protocol.StatusPreconditionFailed)
	})
	if err != nil {
		t.Error(err)
	}
}
