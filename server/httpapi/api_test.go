package httpapi

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/gateway"
	"github.com/signalbox-dev/signalbox/client/ratelimit"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

const (
	alice = "alice-session"
	bob   = "bob-session-1"
)

// TestLock: a lock from its acquire to its release, with what each answer promises.
func TestLock(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	s := openSite(t, srv)
	s.ask("GET", "/v1/ready", "", "").wants(200)
	s.ask("GET", "/v1/openapi.json", "", "").wants(200)
	s.ask("POST", "/v1/locks/tf/prod", alice, "").wants(410, "session_expired") // without ttl none begins
	got := s.ask("POST", "/v1/locks/tf/prod?ttl=30s&holder=ci+run+42", alice, "10.0.0.7:80").wants(200)
	token := got.number("token")
	if got.doc["state"] != "acquired" || got.doc["name"] != "tf/prod" || got.doc["node"] != "/default" || got.doc["holder"] != "ci run 42" ||
		got.doc["count"] != "max" || got.header.Get("Signalbox-Token") != fmt.Sprint(token) {
		t.Errorf("answered %s", got.body)
	}
	if left := got.number("expires_in_ms"); left < 1 || left > 30_000 || got.number("waited_ms") < 0 {
		t.Errorf("answered %s", got.body)
	}
	again := s.ask("POST", "/v1/locks/tf%2Fprod?ttl=30s&holder=ci+run+42", alice, "10.0.0.8:80").wants(200)
	if again.number("token") != token {
		t.Errorf("the repeat has token %d, not %d", again.number("token"), token)
	}
	refused := s.until("holders", "POST", "/v1/locks/tf/prod?ttl=20s", bob).wants(409, "not_acquired")
	holders, _ := refused.doc["holders"].([]any)
	if len(holders) != 1 || holders[0].(map[string]any)["holder"] != "ci run 42" {
		t.Errorf("refused with %s", refused.body)
	}
	seen := s.ask("GET", "/v1/locks/tf/prod", "", "").wants(200)
	owners, _ := seen.doc["owners"].([]any)
	if len(owners) != 1 || owners[0].(map[string]any)["data"] != "10.0.0.8:80" || seen.doc["limit"] != "max" {
		t.Errorf("described as %s", seen.body)
	}
	s.ask("POST", "/v1/session/keepalive?holding=tf/prod", alice, "").wants(200)
	s.ask("POST", "/v1/session/keepalive?holding=tf/prod", bob, "").wants(410, "lease_lost")
	s.ask("POST", "/v1/locks/tf/prod?ttl=10s", alice, "").wants(400, "bad_request")
	s.ask("POST", "/v1/locks/tf/prod?ttl=30s&holder=other", alice, "").wants(400, "bad_request")
	s.ask("POST", "/v1/locks/tf/prod?count=3&ttl=30s", alice, "").wants(400, "bad_request")
	holds, _ := s.ask("GET", "/v1/session", alice, "").wants(200).doc["holds"].([]any)
	if len(holds) != 1 {
		t.Errorf("the session holds %v", holds)
	}
	for _, released := range []bool{true, false} {
		if got := s.ask("DELETE", "/v1/locks/tf/prod", alice, "").wants(200); got.doc["released"] != released {
			t.Errorf("released: %s", got.body)
		}
	}
	if next := s.ask("POST", "/v1/locks/tf/prod", bob, "").wants(200); next.number("token") <= token {
		t.Errorf("the next token is %d, after %d", next.number("token"), token)
	}
	if got := s.ask("GET", "/v1/locks/free", "", "").wants(200); got.doc["exists"] != false {
		t.Errorf("a free lock is %s", got.body)
	}
	s.ask("DELETE", "/v1/session", bob, "").wants(200)
	s.ask("GET", "/v1/session", bob, "").wants(410, "session_expired")
	s.ask("POST", "/v1/locks/other?ttl=20s", bob, "").wants(410, "session_expired") // for ten minutes
}

// TestWait: the place in the queue is kept between requests, a newer set ends the older request,
// and leaving the queue gives the place up.
func TestWait(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	s := openSite(t, srv)
	first := s.ask("POST", "/v1/locks/jobs?ttl=60s", alice, "").wants(200).number("token")
	got := s.until("position", "POST", "/v1/locks/jobs?ttl=60s&wait=50ms", bob).wants(202)
	if got.doc["state"] != "waiting" || got.number("position") != 1 {
		t.Errorf("answered %s", got.body)
	}
	waiters := func() (n int) {
		for _, x := range s.sessionsOf(bob) {
			x.mu.Lock()
			defer x.mu.Unlock()
			return len(x.replies)
		}
		return 0
	}
	older := s.begin("POST", "/v1/locks/jobs?wait=1m", bob, "")
	await.True(t, "a request that waits", func() bool { return waiters() > 0 })
	newer := s.begin("POST", "/v1/locks/jobs?wait=1m", bob, "other data")
	(<-older).wants(409, "aborted")
	s.ask("DELETE", "/v1/locks/jobs", alice, "").wants(200)
	if a := (<-newer).wants(200); a.number("token") <= first {
		t.Errorf("token %d after %d", a.number("token"), first)
	}
	s.ask("POST", "/v1/locks/jobs?wait=10ms", alice, "").wants(202)
	if a := s.ask("DELETE", "/v1/locks/jobs", alice, "").wants(200); a.doc["released"] != true {
		t.Errorf("leaving the queue is answered %s", a.body)
	}
	s.ask("POST", "/v1/locks/jobs?wait=1ms&leave=true", alice, "").wants(409, "not_acquired")
	s.ask("POST", "/v1/locks/jobs?leave=true", alice, "").wants(400, "bad_request")
	s.awaitWaiters("jobs", 0)
	s.ask("DELETE", "/v1/locks/jobs", bob, "").wants(200)
	if a := s.ask("GET", "/v1/locks/jobs", "", "").wants(200); a.doc["exists"] != false {
		t.Errorf("it is still held: %s", a.body)
	}
}

// sessionsOf are the sessions of a caller's name here.
func (s *site) sessionsOf(name string) (list []*session) {
	s.api.mu.Lock()
	defer s.api.mu.Unlock()
	if x := s.api.sessions[sessionName{"anonymous", "/default", name}]; x != nil {
		list = append(list, x)
	}
	return list
}

// TestMoves: a session goes on at another gateway, with its token, its bound and its place in the
// queue, however its gateway ended; and the waits that are left behind end.
func TestMoves(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	one, two := openSite(t, srv), openSite(t, srv)
	token := one.ask("POST", "/v1/locks/a?ttl=60s&hold=1h", alice, "data").wants(200).number("token")
	one.ask("POST", "/v1/locks/b?ttl=60s", bob, "").wants(200)
	left := one.begin("POST", "/v1/locks/b?wait=1m", alice, "")
	one.awaitWaiters("b", 1)
	alive := two.ask("POST", "/v1/session/keepalive?holding=a", alice, "").wants(200)
	(<-left).wants(503, "session_moved")
	if ms := alive.number("expires_in_ms"); ms < 1 || ms > 60_000 {
		t.Errorf("answered %s", alive.body)
	}
	moved := two.ask("POST", "/v1/locks/a", alice, "data").wants(200)
	if moved.number("token") != token || moved.number("ends_in_ms") > 3_600_000 {
		t.Errorf("after the move: %s", moved.body)
	}
	waiting := two.begin("POST", "/v1/locks/b?wait=1m", alice, "")
	one.ask("DELETE", "/v1/session", bob, "").wants(200)
	(<-waiting).wants(200)
	// Repeats at once, at both.
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			a, err := []*site{one, two}[i%2].repeat("POST", "/v1/locks/a?ttl=60s", alice, "data")
			if err != nil {
				t.Error(err)
			} else if a.wants(200).number("token") != token {
				t.Errorf("a repeat has token %d", a.number("token"))
			}
		})
	}
	all.Wait()
	one.api.Close() // leaves its sessions to the cluster
	if a := two.ask("POST", "/v1/session/keepalive?holding=a&holding=b", alice, "").wants(200); a.doc["state"] != "alive" {
		t.Errorf("answered %s", a.body)
	}
	one.ask("GET", "/v1/locks", "", "").wants(503, "closing")
}

// TestHangUp: a caller that hangs up in the queue and does not come again leaves its place, and a
// grant that came meanwhile is given back.
func TestHangUp(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	s := openSite(t, srv)
	s.ask("POST", "/v1/locks/jobs?ttl=60s", alice, "").wants(200)
	ctx, hangUp := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if a, err := s.try(ctx, "POST", "/v1/locks/jobs?ttl=60s&wait=1m", bob, ""); err == nil {
			t.Errorf("answered %s", a.body)
		}
	}()
	s.awaitWaiters("jobs", 1)
	hangUp()
	<-ended
	s.ask("DELETE", "/v1/locks/jobs", alice, "").wants(200) // it is granted to nobody
	await.True(t, "the end of the grant", func() bool { return s.ask("GET", "/v1/locks/jobs", "", "").doc["exists"] == false })
}

// TestBelief: callers of both gateways take turns at one lock, and stop when their belief ends: no
// two believe at once, and tokens rise. A session whose caller is gone ends by itself.
func TestBelief(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	sites := []*site{openSite(t, srv), openSite(t, srv)}
	type belief struct {
		who   int
		token int64
		until time.Time
	}
	var mu sync.Mutex
	var last belief
	var all sync.WaitGroup
	for who := range 6 {
		all.Go(func() {
			name := fmt.Sprintf("caller-%d-session", who)
			for turn := range 4 {
				sent := time.Now()
				a, err := sites[(who+turn)%2].try(t.Context(), "POST", "/v1/locks/turns?ttl=2s&wait=1m", name, "")
				if err != nil {
					t.Error(err)
					return
				}
				if a.status == 410 || a.status >= 500 {
					return // the machine is so slow that the session has ended, or cannot be relied on
				}
				got := a.wants(200)
				now := belief{who, got.number("token"), sent.Add(time.Duration(got.number("waited_ms")+got.number("expires_in_ms")) * time.Millisecond)}
				mu.Lock()
				if sent.Before(last.until) && time.Now().Before(last.until) {
					t.Errorf("%+v while %+v believes", now, last)
				}
				if now.token <= last.token {
					t.Errorf("token %d of %d after %d", now.token, who, last.token)
				}
				last = now
				mu.Unlock()
				if turn == 3 && who%2 == 0 {
					return // gone: the session ends by itself
				}
				mu.Lock()
				if last == now {
					last.until = time.Now() // it stops before it releases
				}
				mu.Unlock()
				if a, err := sites[(who+turn+who/2)%2].try(t.Context(), "DELETE", "/v1/locks/turns", name, ""); err != nil {
					t.Error(err)
				} else if a.status != 410 && a.status < 500 {
					a.wants(200)
				}
			}
		})
	}
	all.Wait()
	if last.token == 0 {
		t.Error("nobody has believed anything")
	}
}

// TestConfig: a value is bytes, with versions as conditions.
func TestConfig(t *testing.T) {
	t.Parallel()
	s := openSite(t, servertest.Start(t))
	s.ask("GET", "/v1/config/flags", "", "").wants(404, "not_found")
	made := s.ask("PUT", "/v1/config/flags", "", "a\xff<b>", "If-None-Match: *").wants(200)
	if made.number("version") != 1 || made.header.Get("ETag") != `"1"` {
		t.Errorf("answered %v %s", made.header, made.body)
	}
	if again := s.ask("PUT", "/v1/config/flags", "", "x", "If-None-Match: *").wants(412, "version_mismatch"); again.number("version") != 1 {
		t.Errorf("refused with %s", again.body)
	}
	got := s.ask("GET", "/v1/config/flags", "", "").wants(200)
	if string(got.body) != "a\xff<b>" || got.header.Get("Content-Type") != "application/octet-stream" ||
		got.header.Get("X-Content-Type-Options") != "nosniff" || got.header.Get("Content-Disposition") != "attachment" {
		t.Errorf("answered %v %q", got.header, got.body)
	}
	s.ask("GET", "/v1/config/flags", "", "", `If-None-Match: "1"`).wants(304)
	s.ask("PUT", "/v1/config/flags", "", "c", `If-Match: "7"`).wants(412, "version_mismatch")
	for _, none := range []string{`W/"1"`, `"0"`, `1`, `"7", W/"1"`, `""`} {
		s.ask("PUT", "/v1/config/flags", "", "c", "If-Match: "+none).wants(412, "version_mismatch")
	}
	s.ask("PUT", "/v1/config/flags", "", "c", "If-Match: ").wants(400, "bad_request")
	s.ask("PUT", "/v1/config/none", "", "c", "If-Match: *").wants(412, "version_mismatch")
	if two := s.ask("PUT", "/v1/config/flags", "", "c", `If-Match: "1"`).wants(200); two.number("version") != 2 {
		t.Errorf("answered %s", two.body)
	}
	three := s.ask("PUT", "/v1/config/flags", "", "b", "If-Match: *").wants(200).header.Get("ETag")
	four := s.ask("PUT", "/v1/config/flags", "", "c", `If-Match: "1", `+three).wants(200).header.Get("ETag")
	if a := s.ask("HEAD", "/v1/config/flags", "", "").wants(200); len(a.body) > 0 || a.header.Get("ETag") != four {
		t.Errorf("HEAD is answered %v %q", a.header, a.body)
	}
	s.ask("GET", "/v1/config/flags?wait=1m", "", "").wants(400, "bad_request")
	s.ask("GET", "/v1/config/flags?wait=1ms", "", "", "If-None-Match: "+four).wants(304)
	s.ask("GET", "/v1/config/flags?wait=1ms", "", "", `If-None-Match: "1", W/`+four).wants(304)
	if now := s.ask("GET", "/v1/config/flags?wait=1m", "", "", `If-None-Match: "1"`).wants(200); string(now.body) != "c" {
		t.Errorf("a change that has come already is answered %q", now.body)
	}
	s.ask("POST", "/v1/locks/$config/flags?ttl=10s", alice, "").wants(400, "bad_request")
	s.ask("DELETE", "/v1/config/flags", "", "").wants(200)
	s.ask("DELETE", "/v1/config/flags", "", "").wants(404, "not_found")
	// A version never repeats, so that of a deleted value guards no later one.
	if again := s.ask("PUT", "/v1/config/flags", "", "d").wants(200); again.number("version") != 5 {
		t.Errorf("set again as %s", again.body)
	}
	for _, former := range []string{`"1"`, `"4"`} {
		s.ask("PUT", "/v1/config/flags", "", "lost", "If-Match: "+former).wants(412, "version_mismatch")
		s.ask("DELETE", "/v1/config/flags", "", "", "If-Match: "+former).wants(412, "version_mismatch")
		if now := s.ask("GET", "/v1/config/flags?wait=1m", "", "", "If-None-Match: "+former).wants(200); string(now.body) != "d" {
			t.Errorf("behind %s comes %q", former, now.body)
		}
	}
}

// TestWatchConfig: callers that wait for the change behind the one that they know miss none, at
// either gateway, over lost connections; the end is a change too.
func TestWatchConfig(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	sites := []*site{openSite(t, srv), openSite(t, srv)}
	sites[0].ask("PUT", "/v1/config/flags", "", "1").wants(200)
	const last = 20
	var watching, reached sync.WaitGroup
	for i := range 4 {
		reached.Add(1)
		watching.Go(func() {
			there := sync.OnceFunc(reached.Done)
			defer there()
			known := int64(1)
			for known < last {
				a, err := again(func() (*answer, error) {
					return sites[i%2].try(t.Context(), "GET", "/v1/config/flags?wait=1m", "", "", fmt.Sprintf(`If-None-Match: "%d"`, known))
				}, func(a *answer) bool { return a.status != 503 })
				if err != nil {
					t.Error(err)
					return
				}
				version := strings.Trim(a.wants(200).header.Get("ETag"), `"`)
				if string(a.body) != version || version <= fmt.Sprint(known) && len(version) <= len(fmt.Sprint(known)) {
					t.Errorf("after %d came %s, %q", known, version, a.body)
					return
				}
				if _, err := fmt.Sscan(version, &known); err != nil {
					t.Error(err)
					return
				}
			}
			there()
			if a, err := sites[i%2].try(t.Context(), "GET", "/v1/config/flags?wait=1m", "", "", fmt.Sprintf(`If-None-Match: "%d"`, known)); err != nil {
				t.Error(err)
			} else if a.status != 404 {
				t.Errorf("the end is answered %d %s", a.status, a.body)
			}
		})
	}
	for version := 2; version <= last; version++ {
		// While the cluster is away it is sent again; 412 says that one without an answer took effect.
		if _, err := again(func() (*answer, error) {
			return sites[0].ask("PUT", "/v1/config/flags", "", fmt.Sprint(version), fmt.Sprintf(`If-Match: "%d"`, version-1)), nil
		}, func(a *answer) bool { return a.status == 200 || a.status == 412 }); err != nil {
			t.Fatal(err)
		}
		if version == last/2 {
			srv.DropConnections()
		}
	}
	reached.Wait()
	sites[0].ask("DELETE", "/v1/config/flags", "", "").wants(200)
	watching.Wait()
}

// TestSemaphoreAndList: units of a semaphore with a limit, and lists by pages.
func TestSemaphoreAndList(t *testing.T) {
	t.Parallel()
	s := openSite(t, servertest.Start(t))
	s.ask("POST", "/v1/locks/gpu?count=2", alice, "").wants(410, "session_expired")
	s.ask("POST", "/v1/locks/gpu?count=2&ttl=60s", "refused-session", "").wants(404, "not_found")
	if list := s.sessions(); len(list) != 0 {
		t.Errorf("a refused acquire has started %d sessions", len(list))
	}
	if a := s.ask("POST", "/v1/locks/gpu?count=2&limit=3&ttl=60s", alice, "").wants(200); a.number("count") != 2 {
		t.Errorf("answered %s", a.body)
	}
	s.ask("POST", "/v1/locks/gpu?count=2&ttl=60s", bob, "").wants(409, "not_acquired")
	s.ask("POST", "/v1/locks/gpu?count=1", alice, "").wants(200)
	s.ask("POST", "/v1/locks/gpu?count=2", bob, "").wants(200)
	s.ask("POST", "/v1/locks/?ttl=60s&name64="+base64.RawURLEncoding.EncodeToString([]byte("x\xffy")), alice, "").wants(200)
	page := s.ask("GET", "/v1/locks?limit=1", "", "").wants(200)
	if page.doc["next"] != "gpu" {
		t.Fatalf("listed %s", page.body)
	}
	rest, _ := s.ask("GET", "/v1/locks?after=gpu", "", "").wants(200).doc["locks"].([]any)
	if len(rest) != 1 || rest[0].(map[string]any)["name_base64"] != base64.StdEncoding.EncodeToString([]byte("x\xffy")) {
		t.Errorf("listed %v", rest)
	}
}

// TestRateLimit: a decision at the gateway, and a refusal that says when.
func TestRateLimit(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	s := openSite(t, srv)
	c, err := client.Dial(t.Context(), srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseWithoutRelease()
	own, err := c.Session(t.Context(), "/default")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ratelimit.Create(t.Context(), own, "api", ratelimit.Config{Rate: ratelimit.PerSecond(5)}); err != nil {
		t.Fatal(err)
	}
	s.ask("POST", "/v1/limits/none", "", "").wants(404, "not_found")
	s.ask("POST", "/v1/limits/api?units=8", "", "").wants(400, "bad_request")
	s.ask("POST", "/v1/limits/api?units=5&wait=1m", "", "").wants(200)
	refused := s.ask("POST", "/v1/limits/api?units=5", "", "")
	for refused.status == 200 { // a slow machine had the time to fill it again
		refused = s.ask("POST", "/v1/limits/api?units=5", "", "")
	}
	refused.wants(429, "limited")
	if refused.number("retry_after_ms") < 1 || refused.header.Get("Retry-After") == "" {
		t.Errorf("refused with %v %s", refused.header, refused.body)
	}
}

// TestService: the members as the SDK finds them, also while the cluster is away.
func TestService(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	s := openSite(t, srv)
	if none := s.ask("GET", "/v1/services/api", "", "").wants(200); len(none.doc["endpoints"].([]any)) != 0 {
		t.Errorf("an unknown service is %s", none.body)
	}
	c, err := client.Dial(t.Context(), srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseWithoutRelease()
	own, err := c.Session(t.Context(), "/default", client.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	for _, data := range []string{`{"addr":"10.0.0.1:80","zone":"a","weight":7,"meta":{"build":"42"}}`, "no endpoint"} {
		if _, err := own.Service("api").Register(t.Context(), []byte(data)); err != nil {
			t.Fatal(err)
		}
		if own, err = c.Session(t.Context(), "/default", client.Timeout(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	check := func(live bool) {
		t.Helper()
		await.True(t, fmt.Sprint("the member, with live ", live), func() bool {
			got := s.ask("GET", "/v1/services/api?zone=a", "", "").wants(200)
			list := got.doc["endpoints"].([]any)
			if len(list) == 0 && !live {
				t.Fatalf("the list is empty while the cluster is away: %s", got.body)
			}
			if len(list) != 1 || got.doc["live"] != live || got.number("ignored") != 1 {
				return false // the copy does not have it yet
			}
			m := list[0].(map[string]any)
			if m["addr"] != "10.0.0.1:80" || m["used"] != true || m["weight"] != json.Number("7") || m["meta"].(map[string]any)["build"] != "42" {
				t.Errorf("listed %s", got.body)
			}
			return true
		})
	}
	check(true)
	known := "If-None-Match: " + s.ask("GET", "/v1/services/api?zone=a", "", "").header.Get("ETag")
	s.ask("GET", "/v1/services/api?zone=a&wait=1ms", "", "", known).wants(304)
	changed := s.begin("GET", "/v1/services/api?zone=a&wait=1m", "", "", known)
	srv.Unreachable()
	srv.DropConnections()
	if got := <-changed; got.wants(200).doc["live"] != false {
		t.Errorf("who watches it is answered %s", got.body)
	}
	check(false)
	srv.Reachable()
	check(true)
}

// TestRefusals: what no route takes, with the code that callers see.
func TestRefusals(t *testing.T) {
	t.Parallel()
	s := openSite(t, servertest.Start(t))
	for _, c := range []struct {
		method, path string
		header       []string
		body         string
		status       int
		code         string
	}{
		{"GET", "/v1/locks/a", []string{"Host: evil.example.com"}, "", 421, "misdirected"},
		{"GET", "/v1/locks/a", []string{"Host: localhost:evil"}, "", 421, "misdirected"},
		{"GET", "/v1/locks/a", []string{"Origin: http://localhost"}, "", 403, "browser"},
		{"GET", "/v1/locks/a", []string{"Sec-Fetch-Site: cross-site"}, "", 403, "browser"},
		{"GET", "/v1/locks/" + strings.Repeat("a", maxURL), nil, "", 414, "uri_too_long"},
		{"POST", "/v1/locks/a", []string{"Content-Encoding: gzip"}, "", 415, "unsupported_media_type"},
		{"LOCK", "/v1/locks/a", nil, `{"ID":"1"}`, 405, "method_not_allowed"},
		{"UNLOCK", "/anything", nil, `{"ID":"1"}`, 405, "method_not_allowed"},
		{"OPTIONS", "/v1/locks", nil, "", 405, "method_not_allowed"},
		{"PUT", "/v1/locks/a", nil, "", 405, "method_not_allowed"},
		{"POST", "/terraform/state", nil, "{}", 404, "not_found"},
		{"GET", "/", nil, "", 404, "not_found"},
		{"POST", "/v1/locks/a?ID=1", nil, "{}", 400, "bad_request"},
		{"POST", "/v1/locks/a?ttl=30", nil, "", 400, "bad_request"},
		{"POST", "/v1/locks/a?ttl=", nil, "", 400, "bad_request"},
		{"POST", "/v1/locks/a?ttl=1s&ttl=1s", nil, "", 400, "bad_request"},
		{"POST", "/v1/locks/a?ttl=26m", nil, "", 400, "bad_request"},
		{"POST", "/v1/locks/a?ttl=1500ms", nil, "", 400, "bad_request"},
		{"POST", "/v1/locks/a?wait=6m", nil, "", 400, "bad_request"},
		{"POST", "/v1/locks/a?mode=both", nil, "", 400, "bad_request"},
		{"POST", "/v1/locks/a?mode=shared&count=1", nil, "", 400, "bad_request"},
		{"POST", "/v1/locks/a?limit=1", nil, "", 400, "bad_request"},
		{"POST", "/v1/locks/a/../b?ttl=10s", nil, "", 400, "bad_request"},
		{"POST", "/v1/locks/a%2F%2E%2E%2Fb?ttl=10s", nil, "", 400, "bad_request"},
		{"POST", "/v1/locks//b?ttl=10s", nil, "", 400, "bad_request"},
		{"POST", "/v1/locks/", nil, "", 400, "bad_request"},
		{"POST", "/v1/locks/a?ttl=10s", nil, "", 400, "bad_request"},                                       // no session
		{"POST", "/v1/locks/a?ttl=10s", []string{"Signalbox-Session: short"[:24]}, "", 400, "bad_request"}, // 7 characters
		{"POST", "/v1/locks/a?ttl=10s", []string{"Signalbox-Session: " + alice, "Signalbox-Session: " + bob}, "", 400, "bad_request"},
		{"POST", "/v1/locks/a?ttl=10s", []string{"Signalbox-Session: " + alice}, strings.Repeat("x", maxBody+1), 413, "content_too_large"},
		{"GET", "/v1/locks/a", nil, "data", 400, "bad_request"},
		{"GET", "/v1/locks/a?node=/none", nil, "", 404, "not_found"},
		{"GET", "/v1/locks/a?node=none", nil, "", 400, "bad_request"},
		{"GET", "/v1/locks/a", []string{"Authorization: Digest x"}, "", 401, "unauthenticated"},
	} {
		a := s.ask(c.method, c.path, "", c.body, c.header...)
		if a.status != c.status || a.doc["code"] != c.code {
			t.Errorf("%s %.40s %.60v: answered %d %s, want %d %s", c.method, c.path, c.header, a.status, a.body, c.status, c.code)
		}
		if a.status == 405 && a.header.Get("Allow") == "" {
			t.Errorf("%s %s: no Allow", c.method, c.path)
		}
	}
	if a := s.ask("GET", "/v1/locks", "", "").wants(200); len(a.doc["locks"].([]any)) != 0 {
		t.Errorf("a refused request has left %s", a.body)
	}
}

// TestNameTwice: a program that takes another one's session by mistake is refused, and does not keep it
// alive. Sessions are looked at after each answer.
func TestNameTwice(t *testing.T) {
	t.Parallel()
	s := openSite(t, servertest.Start(t))
	s.ask("POST", "/v1/locks/b?ttl=10s&holder=mine", alice, "").wants(200)
	for _, other := range []string{"ttl=20s", "ttl=10s&holder=yours"} {
		s.ask("POST", "/v1/locks/b?"+other, alice, "").wants(400, "bad_request")
	}
}

// TestTTL: the ttl that follows from a session's timeout is that which it was started with.
func TestTTL(t *testing.T) {
	t.Parallel()
	for ttl := minTTL; ttl <= gateway.MaxTimeout; ttl += minTTL {
		if got := gateway.Timeout(gateway.NativeTimeout(ttl)); got != ttl {
			t.Fatalf("a ttl of %s comes back as %s", ttl, got)
		}
	}
}

// TestIDs: identity, node and name are told apart, however they are put together.
func TestIDs(t *testing.T) {
	t.Parallel()
	seen := map[gateway.CreateID]string{}
	for _, x := range []sessionName{{"a", "/b", "c"}, {"a/b", "", "c"}, {"a", "/bc", ""}, {"", "a/b", "c"}, {"a", "/b", "d"}} {
		create, key := x.ids()
		if before, ok := seen[create]; ok || gateway.Key(create) == key {
			t.Errorf("%q has the ids of %s, or its key is its create id", x, before)
		}
		seen[create] = fmt.Sprint(x)
	}
}

// FuzzPath: no path, query or name of a session is a panic or an answer that is not JSON.
func FuzzPath(f *testing.F) {
	for _, seed := range []string{"/v1/locks/a?ttl=10s", "/v1/locks/%zz", "/v1/config/a//b", "/v1/session/keepalive?holding=%00", "/v1/locks?after=%ff"} {
		f.Add(seed, "a-session-name")
	}
	api, err := New(Config{Client: client.Config{Endpoints: []string{"127.0.0.1:1"}}, TokenRequired: true})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(api.Close)
	f.Fuzz(func(t *testing.T, target, name string) {
		w, r, ok := fuzzRequest(target, name)
		if !ok {
			return
		}
		api.ServeHTTP(w, r)
		var doc document
		if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil || w.Code < 400 {
			t.Errorf("%q is answered %d %q", target, w.Code, w.Body)
		}
	})
}
