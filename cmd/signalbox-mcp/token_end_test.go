package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/trust/trusttest"
)

// TestTokensEnd: an agent keeps its lock and its fencing token while the platform replaces the
// token in the file three times.
func TestTokensEnd(t *testing.T) {
	t.Parallel()
	const root, life = "the administrator's secret", 2 * time.Second
	srv := servertest.Start(t, servertest.RealTime(), servertest.Config(func(c *server.Config) {
		c.Auth, c.AdminToken = true, root
	}))
	c, err := client.Open(t.Context(), client.Config{Endpoints: []string{srv.Addr()}, Token: []byte(root)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseWithoutRelease)
	issuer := trusttest.New(t)
	trusttest.Trust(t, admin.New(c), issuer)
	file, tokens := filepath.Join(t.TempDir(), "token"), 0
	replace := func() (end time.Time) {
		t.Helper()
		tokens++
		token := issuer.Token(t, "agent", life, map[string]any{"jti": fmt.Sprint(tokens)})
		if err := os.WriteFile(file+".new", []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
		return time.Now().Add(life)
	}
	replace()
	cmd := command(t, srv.Addr())
	cmd.Env = append(cmd.Env, "SIGNALBOX_TOKEN_FILE="+file)
	h := connect(t, cmd, "")
	var first uint64
	await.True(t, "the lock", func() bool {
		replace()
		if s := h.call("lock", args{"names": []string{"a"}}); s.State == "held" {
			first = s.Names[0].Token
		}
		return first != 0
	})
	for range 3 {
		end := replace()
		await.True(t, "the token to expire", func() bool { return time.Now().After(end) })
		replace()
		if s := h.call("lock", args{"names": []string{"a"}}); s.State != "held" || s.Names[0].Token != first || len(s.Notices) > 0 {
			t.Errorf("the agent had token %d, and is told %+v", first, s.reply)
		}
	}
}

// TestTokenRevoked: an agent whose token was revoked is notified that this is why it lost its lock.
func TestTokenRevoked(t *testing.T) {
	t.Parallel()
	const root = "the administrator's secret"
	srv := servertest.Start(t, servertest.RealTime(), servertest.Config(func(c *server.Config) {
		c.Auth, c.AdminToken = true, root
	}))
	c, err := client.Open(t.Context(), client.Config{Endpoints: []string{srv.Addr()}, Token: []byte(root)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseWithoutRelease)
	a := admin.New(c)
	token, err := a.CreateToken(t.Context(), "one", "agent")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Grant(t.Context(), "agent", "/default", "use"); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token.Secret), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := command(t, srv.Addr())
	cmd.Env = append(cmd.Env, "SIGNALBOX_TOKEN_FILE="+file)
	h := connect(t, cmd, "")
	h.lock(args{"names": []string{"a"}})
	if err := a.RevokeToken(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	if s := h.awaitText("list_locks", args{}, "You lost"); !strings.Contains(s.text, "it was refused for ") ||
		!strings.Contains(s.text, "was revoked") || !strings.Contains(s.text, "give the client credentials that are valid") {
		t.Error(s.text)
	}
}
