package httpapi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server/httpapi/machine"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// TestQuotedStar: a star within the tag of something else is no star.
func TestQuotedStar(t *testing.T) {
	t.Parallel()
	s := openSite(t, servertest.Start(t))
	s.ask("PUT", "/v1/config/flags", "", "mine").wants(200)
	for _, tag := range []string{`"a,*"`, `"a,*,b"`, `"a * b"`} {
		s.ask("PUT", "/v1/config/flags", "", "other", "If-Match: "+tag).wants(412, "version_mismatch")
		s.ask("GET", "/v1/config/flags", "", "", "If-None-Match: "+tag).wants(200)
	}
}

// TestSlowBody: a body may take its 30 s; the time to try the cluster begins behind it.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	form.SkipUntil(t, form.Full, "a body that takes more than 10 s")
	s := openSite(t, servertest.Start(t, servertest.RealTime()))
	s.ask("GET", "/v1/locks", "", "").wants(200)
	r, w := io.Pipe()
	go func() {
		_, _ = w.Write([]byte("da"))
		time.Sleep(answerTimeout)
		_, _ = w.Write([]byte("ta"))
		_ = w.Close()
	}()
	req, err := http.NewRequestWithContext(t.Context(), "POST", s.url+"/v1/locks/a?ttl=1m", r)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(sessionHeader, alice)
	resp, err := s.web.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); resp.StatusCode != 200 {
		t.Errorf("answered %d %s", resp.StatusCode, b)
	}
}

// TestStreamRefused: a refusal before the first event is an answer like others, also of a stream that
// would wait; and it ends no other stream.
func TestStreamRefused(t *testing.T) {
	t.Parallel()
	s := openSite(t, servertest.Start(t, servertest.RealTime()))
	ask := func(path, session string) (status int, body string) {
		resp, err := s.events(t.Context(), path, session)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := bufio.NewReader(resp.Body).ReadString('}')
		return resp.StatusCode, b
	}
	for range 20 {
		if status, body := ask("/v1/locks/none?count=1&wait=1m", ""); status != 404 {
			t.Errorf("answered %d %s", status, body)
			break
		}
	}
	older := s.stream("/v1/locks/a?mode=shared&ttl=5m", alice)
	older.wants("acquired")
	if status, body := ask("/v1/locks/a", alice); status != 400 || strings.Contains(body, "18446744073709551615") {
		t.Errorf("answered %d %s", status, body)
	}
	s.ask("DELETE", "/v1/locks/a", alice, "").wants(200)
	if code := older.ends("lost"); code != "lease_lost" {
		t.Errorf("a refused stream ends the older one with %q", code)
	}
}

// TestShownIsKept: a grant of a caller that hung up is not given back once a later request of the
// session has been answered with it.
func TestShownIsKept(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	s := openSite(t, srv)
	for i, shown := range []string{"POST /v1/session/keepalive?holding=NAME", "GET /v1/session"} {
		name, waiter := fmt.Sprint("shown-", i), fmt.Sprint("shown-session-", i)
		s.ask("POST", "/v1/locks/"+name+"?ttl=1m", alice, "").wants(200)
		ctx, hangUp := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = s.try(ctx, "POST", "/v1/locks/"+name+"?ttl=1m&wait=1m", waiter, "")
		}()
		s.awaitWaiters(name, 1)
		x := s.sessionsOf(waiter)[0]
		hangUp()
		<-ended
		await.True(t, "the hang-up", func() (absent bool) {
			x.step(func(m *machine.Session, now time.Duration) {
				absent = m.Next() != 0 && m.Next() <= now+machine.ReturnTime
			})
			return absent
		})
		s.ask("DELETE", "/v1/locks/"+name, alice, "").wants(200)
		method, path, _ := strings.Cut(strings.Replace(shown, "NAME", name, 1), " ")
		a := s.ask(method, path, waiter, "")
		for a.status == 410 || a.doc["holds"] != nil && len(a.doc["holds"].([]any)) == 0 { // the grant is on its way
			a = s.ask(method, path, waiter, "")
		}
		a.wants(200)
		x.step(func(m *machine.Session, now time.Duration) { m.Tick(now + machine.ReturnTime) })
		if l, _ := x.lease(name); l == nil {
			t.Errorf("%s was answered %s, and the grant is given back", shown, a.body)
		}
	}
}

// TestMovedPlace: what a session is granted after it moved, for a place that it took at the gateway
// before, is held.
func TestMovedPlace(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	one, two := openSite(t, srv), openSite(t, srv)
	one.ask("POST", "/v1/locks/a?ttl=1m", bob, "").wants(200)
	one.ask("POST", "/v1/locks/a?ttl=1m&wait=1ms", alice, "").wants(202)
	two.ask("POST", "/v1/session/keepalive", alice, "").wants(200)
	one.ask("DELETE", "/v1/locks/a", bob, "").wants(200)
	var token string
	await.True(t, "a grant of the place", func() bool {
		for _, h := range two.ask("GET", "/v1/session", alice, "").wants(200).doc["holds"].([]any) {
			token = fmt.Sprint(h.(map[string]any)["token"])
		}
		return token != ""
	})
	if a := two.ask("POST", "/v1/session/keepalive", alice, "").wants(200); a.number("num_holds") != 1 {
		t.Errorf("it holds a with token %s, and a keep-alive says %s", token, a.body)
	}
	if a := two.ask("POST", "/v1/session/keepalive?holding=a", alice, ""); a.status != 200 {
		t.Errorf("it holds a with token %s, and a keep-alive says %s", token, a.body)
	}
	if a := two.ask("DELETE", "/v1/locks/a?token="+token, alice, "").wants(200); a.doc["released"] != true {
		t.Errorf("the release of token %s is answered %s", token, a.body)
	}
}
