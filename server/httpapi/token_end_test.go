package httpapi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
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

// TestTokenEnds: over three tokens of a platform, each of seconds, a named session keeps its lock,
// its fencing token and its place in a queue. A stream is told closing at its token's end, and a
// wait is over. No token is shown to the cluster again and again behind its end.
func TestTokenEnds(t *testing.T) {
	t.Parallel()
	const root = "the administrator's secret"
	srv := servertest.Start(t, servertest.RealTime(), servertest.Config(func(c *server.Config) {
		c.Auth, c.AdminToken = true, root
	}))
	s := openSite(t, srv)
	c, err := client.Open(t.Context(), client.Config{Endpoints: []string{srv.Addr()}, Token: []byte(root)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseWithoutRelease()
	issuer := trusttest.New(t)
	trusttest.Trust(t, admin.New(c), issuer)
	n := 0
	bearer := func(life time.Duration) string {
		n++ // each token is another one
		return "Authorization: Bearer " + issuer.Token(t, "job", life, map[string]any{"jti": fmt.Sprint(n)})
	}
	// refused asks with a token that expires soon, and later if that was before its answer: the
	// machine is slow.
	asked := 0
	refused := func(ask func(bearer string) bool) {
		t.Helper()
		for life := 3 * time.Second; ; life *= 2 {
			if asked++; !ask(bearer(life)) {
				return
			}
			if life > time.Minute {
				t.Fatalf("a token that is valid for %s is refused", life)
			}
		}
	}
	const carol = "carol-session"
	// The sessions have the longest ttl there is, 25 minutes: no loop below ends one of them.
	const long = time.Hour
	first := s.ask("POST", "/v1/locks/a?ttl=25m", alice, "", bearer(long)).wants(200).number("token")
	s.ask("POST", "/v1/locks/busy?ttl=25m", alice, "", bearer(long)).wants(200)
	s.ask("PUT", "/v1/config/flags", "", "x", bearer(long)).wants(200)
	refused(func(bearer string) bool { // a read that waits
		got, err := s.try(t.Context(), "GET", "/v1/config/flags?wait=5m", "", "", `If-None-Match: "1"`, bearer)
		if err != nil {
			t.Fatal(err)
		}
		return got.wants(401).doc["detail"] != errTokenEnds.detail
	})
	for range 3 {
		// A stream, and a wait, end with their token.
		var held *events
		var got document
		refused(func(bearer string) bool {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			t.Cleanup(cancel)
			resp, err := s.events(ctx, "/v1/locks/a?ttl=25m", alice, bearer)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = resp.Body.Close() })
			held = &events{t: t, lines: bufio.NewScanner(resp.Body), close: cancel}
			event := ""
			for event, got = held.next(); event == "queued"; event, got = held.next() {
			}
			return event != "acquired"
		})
		if token := (&answer{t: t, doc: got}).number("token"); token != first {
			t.Errorf("the stream has token %d, not %d", token, first)
		}
		if code := held.ends("closing"); code != "unauthenticated" {
			t.Errorf("the stream ends with %q", code)
		}
		refused(func(bearer string) bool {
			got, err := s.try(t.Context(), "POST", "/v1/locks/busy?ttl=25m&wait=5m", bob, "", bearer)
			if err != nil {
				t.Fatal(err)
			}
			return got.status == 401 || got.wants(202).doc["state"] != "waiting"
		})
		s.ask("POST", "/v1/locks/busy?ttl=25m&wait=1ms", carol, "", bearer(long)).wants(202) // behind bob
		if got := s.ask("POST", "/v1/locks/a?ttl=25m", alice, "", bearer(long)).wants(200).number("token"); got != first {
			t.Errorf("with the next token the session has token %d, not %d", got, first)
		}
		await.True(t, "its place, the first, with the next token", func() bool { // it may be left out of an answer
			got := s.ask("POST", "/v1/locks/busy?ttl=25m&wait=1ms", bob, "", bearer(long)).wants(202)
			return got.doc["position"] != nil && got.number("position") == 1
		})
	}
	// Connections are closed before that: a token that is shown again and again delays all callers
	// of the gateway.
	r, err := http.Get("http://" + srv.AdminAddr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	text, err := io.ReadAll(r.Body)
	_, line, _ := strings.Cut(string(text), "\nsignalbox_auth_failures_total ")
	line, _, _ = strings.Cut(line, "\n")
	if failures, bad := strconv.Atoi(line); bad != nil || err != nil || failures > asked {
		t.Errorf("%d tokens that expire were refused %s times, %v", asked, line, err)
	}
}
