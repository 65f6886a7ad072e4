package httpapi

import (
	"bytes"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// logBuffer is a log that many write to.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// TestIdentities: rights are those of the token that is shown, two identities never share a
// session, two tokens of one do, a token that is revoked ends waits, and no secret is in the log.
func TestIdentities(t *testing.T) {
	t.Parallel()
	const root = "the administrator's secret"
	srv := servertest.Start(t, servertest.RealTime(), servertest.Config(func(c *server.Config) {
		c.Auth, c.AdminToken, c.Audit = true, root, filepath.Join(t.TempDir(), "audit")
	}))
	log := new(logBuffer)
	s := openSite(t, srv, func(c *Config) {
		c.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	c, err := client.Open(t.Context(), client.Config{Endpoints: []string{srv.Addr()}, Token: []byte(root)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseWithoutRelease()
	a := admin.New(c)
	bearer := make(map[string]string)
	for id, identity := range map[string]string{"one": "ci", "two": "ci", "three": "cron", "four": "guest",
		"reader": "reader"} {
		token, err := a.CreateToken(t.Context(), id, identity)
		if err != nil {
			t.Fatal(err)
		}
		bearer[id] = "Authorization: Bearer " + token.Secret
	}
	for identity, right := range map[string]string{"ci": "use", "cron": "use", "guest": "use", "reader": "read"} {
		if _, err := a.Grant(t.Context(), identity, "/default", right); err != nil {
			t.Fatal(err)
		}
	}
	if no := s.ask("POST", "/v1/locks/a?ttl=60s", alice, "").wants(401, "unauthenticated"); no.header.Get("WWW-Authenticate") == "" {
		t.Errorf("refused with %v", no.header)
	}
	s.ask("POST", "/v1/locks/a?ttl=60s", alice, "", "Authorization: Bearer wrong").wants(401, "unauthenticated")
	s.ask("POST", "/v1/locks/a?ttl=60s", alice, "", bearer["reader"]).wants(403, "forbidden")
	s.ask("GET", "/v1/locks/a", "", "", bearer["reader"]).wants(200)
	s.ask("GET", "/v1/ready", "", "").wants(200)

	token := s.ask("POST", "/v1/locks/a?ttl=60s", alice, "", bearer["one"]).wants(200).number("token")
	for range 2 { // by the second token of the identity, and by the first one again
		for _, id := range []string{"two", "one"} {
			if got := s.ask("POST", "/v1/locks/a", alice, "", bearer[id]).wants(200); got.number("token") != token {
				t.Errorf("by %s the session has token %d, not %d", id, got.number("token"), token)
			}
		}
	}
	s.ask("POST", "/v1/session/keepalive", alice, "", bearer["three"]).wants(410, "session_expired")
	waiting := s.begin("POST", "/v1/locks/a?ttl=60s&wait=1m", alice, "", bearer["three"])
	s.awaitWaiters("a", 1, bearer["reader"])
	held := s.stream("/v1/locks/b", "", bearer["three"])
	held.wants("acquired")
	if err := a.RevokeToken(t.Context(), "three"); err != nil {
		t.Fatal(err)
	}
	(<-waiting).wants(401, "unauthenticated")
	refused := func(a *answer) bool {
		loss, _ := a.doc["loss"].(map[string]any)
		return a.doc["code"] == "unauthenticated" && loss["cause"] == "refused" && fmt.Sprint(loss["since_ms"]) != "0"
	}
	if a := held.wants("lost"); !refused(a) {
		t.Errorf("the stream of a revoked token ends with %v", a.doc)
	}
	if a := s.ask("POST", "/v1/session/keepalive", alice, "", bearer["three"]).wants(401); !refused(a) {
		t.Errorf("a renewal with a revoked token is answered %v", a.doc)
	}
	held = s.stream("/v1/locks/c", "", bearer["four"])
	held.wants("acquired")
	if err := a.Revoke(t.Context(), "guest", "/default"); err != nil {
		t.Fatal(err)
	}
	if code := held.ends("lost"); code != "forbidden" {
		t.Errorf("the stream of an identity without rights ends with %q", code)
	}
	s.ask("GET", "/v1/locks/a", "", "", bearer["three"]).wants(401, "unauthenticated")
	s.ask("POST", "/v1/session/keepalive?holding=a", alice, "", bearer["one"]).wants(200)
	s.ask("PUT", "/v1/config/flags", "", "on", bearer["one"]).wants(200)
	await.True(t, "a line of the audit log that is of the change by HTTP", func() bool {
		lines, err := a.AuditLog(t.Context(), 100) // an instance has a second to answer
		return err == nil && slices.ContainsFunc(lines.Events, func(e admin.AuditEvent) bool {
			return e.Initiator == "ci" && slices.Contains(e.Fields, admin.AuditField{Key: "via", Value: "http"})
		})
	})
	for id, header := range bearer {
		if secret := strings.TrimPrefix(header, "Authorization: Bearer "); strings.Contains(log.String(), secret) {
			t.Errorf("the token %s is in the log", id)
		}
	}
	if log.String() == "" {
		t.Error("the log is empty, so it proves nothing")
	}
	if strings.Contains(log.String(), alice) {
		t.Error("the session's name is in the log")
	}
}
