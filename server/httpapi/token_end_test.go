package httpapi

import (
	"fmt"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/trust/trusttest"
)

// TestTokenEnds: over three tokens of a platform, each of seconds, a named session keeps its
// lock, its fencing token and its place in a queue. A stream is told closing at its token's end.
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
	const carol = "carol-session"
	const short, long = 3 * time.Second, time.Hour
	first := s.ask("POST", "/v1/locks/a?ttl=60s", alice, "", bearer(short)).wants(200).number("token")
	s.ask("POST", "/v1/locks/busy?ttl=60s", alice, "", bearer(long)).wants(200)
	for range 3 {
		// A stream, and a wait, end with their token.
		held := s.stream("/v1/locks/a?ttl=60s", alice, bearer(short))
		if got := held.wants("acquired").number("token"); got != first {
			t.Errorf("the stream has token %d, not %d", got, first)
		}
		waiting := make(chan *answer, 1)
		token := bearer(short)
		go func() {
			got, err := s.try(t.Context(), "POST", "/v1/locks/busy?ttl=60s&wait=1m", bob, "", token)
			if err != nil {
				t.Error(err)
			}
			waiting <- got
		}()
		if code := held.ends("closing"); code != "unauthenticated" {
			t.Errorf("the stream ends with %q", code)
		}
		(<-waiting).wants(401, "unauthenticated")
		s.ask("POST", "/v1/locks/busy?ttl=60s&wait=1ms", carol, "", bearer(long)).wants(202) // behind bob
		if got := s.ask("POST", "/v1/locks/a?ttl=60s", alice, "", bearer(long)).wants(200).number("token"); got != first {
			t.Errorf("with the next token the session has token %d, not %d", got, first)
		}
		await.True(t, "its place, the first, with the next token", func() bool { // it may be left out of an answer
			got := s.ask("POST", "/v1/locks/busy?ttl=60s&wait=1ms", bob, "", bearer(long)).wants(202)
			return got.doc["position"] != nil && got.number("position") == 1
		})
	}
}
