package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/trust/trusttest"
)

// TestLockOutlivesItsTokens: a command runs under a lock while the platform replaces the token in
// the file three times, and the lock keeps its owner and its fencing token.
func TestLockOutlivesItsTokens(t *testing.T) {
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
	issuer := trusttest.New(t)
	trusttest.Trust(t, admin.New(c), issuer)
	file, tokens := filepath.Join(t.TempDir(), "token"), 0
	const life = 2 * time.Second
	replace := func() (end time.Time) {
		tokens++
		token := issuer.Token(t, "job", life, map[string]any{"jti": fmt.Sprint(tokens)})
		if err := os.WriteFile(file+".new", []byte(token), 0o600); err == nil {
			err = os.Rename(file+".new", file)
			if err != nil {
				t.Fatal(err)
			}
		}
		return time.Now().Add(life)
	}
	replace()
	lock := start(t, []string{"SIGNALBOX_ENDPOINTS=" + srv.Addr(), "SIGNALBOX_TOKEN_FILE=" + file}, "signalbox", "lock", "deploy",
		"--session-timeout", "1m", "--", "sleep", "600")
	n, err := c.Node(t.Context(), "/default")
	if err != nil {
		t.Fatal(err)
	}
	owner := func() client.Owner {
		d, err := n.Describe(t.Context(), "deploy", client.IncludeOwners())
		if err != nil || len(d.Owners) != 1 {
			return client.Owner{}
		}
		return d.Owners[0]
	}
	await.True(t, "the lock", func() bool { replace(); return owner().Token != 0 })
	first := owner()
	for range 3 {
		end := replace()
		await.True(t, "the token to expire", func() bool { return time.Now().After(end) })
		replace()
		if o := owner(); o.Token != first.Token || o.Session != first.Session {
			t.Errorf("the owner was %+v and is %+v", first, o)
		}
	}
	lock.signal(syscall.SIGINT)
	if code := lock.code(); code != 128+int(syscall.SIGINT) {
		t.Errorf("exit code %d\n%s", code, lock.output.String())
	}
}
