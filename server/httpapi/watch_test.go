package httpapi

import (
	"fmt"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// TestWatchLock: an ETag changes with what is shown, and a caller that waits with one is answered
// at each change: of the holder, of its data and of the queue.
func TestWatchLock(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	s := openSite(t, srv)
	known := s.ask("GET", "/v1/locks/a", "", "").wants(200).header.Get("ETag")
	for _, step := range []struct {
		method, path, session, body string
		status                      int
	}{
		{"POST", "/v1/locks/a?ttl=1m", alice, "", 200},
		{"POST", "/v1/locks/a?ttl=1m", alice, "data", 200},
		{"POST", "/v1/locks/a?ttl=1m&wait=1ms", bob, "", 202},
		{"DELETE", "/v1/session", alice, "", 200},
		{"DELETE", "/v1/session", bob, "", 200},
	} {
		s.ask("GET", "/v1/locks/a?wait=1ms", "", "", "If-None-Match: "+known).wants(304)
		s.ask("GET", "/v1/locks/a", "", "", "If-None-Match: \"x\", W/"+known).wants(304) // as a proxy that compresses makes it
		s.ask("GET", "/v1/locks/a", "", "", "If-None-Match: *").wants(304)
		changed := s.begin("GET", "/v1/locks/a?wait=1m", "", "", "If-None-Match: "+known)
		s.ask(step.method, step.path, step.session, step.body).wants(step.status)
		if known = (<-changed).wants(200).header.Get("ETag"); !strings.HasPrefix(known, `"`) {
			t.Fatalf("the ETag is %q", known)
		}
		// What changes in several steps may be answered at the first one.
		if now := s.ask("GET", "/v1/locks/a", "", "", "If-None-Match: "+known); now.status == 200 {
			known = now.header.Get("ETag")
		}
	}
	s.ask("GET", "/v1/locks/a?wait=1m", "", "").wants(400, "bad_request")
	waiting := s.begin("GET", "/v1/locks/a?wait=1m", "", "", "If-None-Match: "+known)
	await.True(t, "the request at the gateway", func() bool { return s.api.held.Load() > 0 })
	s.api.Stop()
	(<-waiting).wants(503, "closing")
}

// TestWhy: a session that waits learns why, and nobody else does.
func TestWhy(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	s := openSite(t, srv)
	s.ask("POST", "/v1/locks/a?ttl=1m&holder=the+first", alice, "its data").wants(200)
	s.ask("POST", "/v1/locks/a?ttl=1m&wait=1ms", bob, "").wants(202)
	var lines []any
	await.True(t, "the reason", func() bool { // each of its reads may be late, and is then named
		lines, _ = s.ask("GET", "/v1/locks/a", bob, "").wants(200).doc["why"].([]any)
		return !strings.Contains(fmt.Sprint(lines), "Not read")
	})
	if len(lines) != 2 || !strings.Contains(lines[0].(string), "at place 1") ||
		!strings.Contains(lines[1].(string), "the first") {
		t.Errorf("why: %q", lines)
	}
	for _, session := range []string{alice, ""} {
		if got := s.ask("GET", "/v1/locks/a", session, "").wants(200); got.doc["why"] != nil {
			t.Errorf("%q is told %v", session, got.doc["why"])
		}
	}
	s.ask("GET", "/v1/locks/a", "another-session", "").wants(410, "session_expired")
}

// TestLargeDocument: data beyond the bound of a document is left out, and its length stays.
func TestLargeDocument(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	s := openSite(t, srv)
	large := strings.Repeat("x", maxBody-1000)
	for i := range 5 {
		s.ask("POST", "/v1/locks/a?mode=shared&ttl=1m", strings.Repeat(string(rune('a'+i)), 8), large).wants(200)
	}
	shown := 0
	list := s.ask("GET", "/v1/locks/a", "", "").wants(200).doc["owners"].([]any)
	for _, o := range list {
		o := o.(map[string]any)
		if o["data_len"] == nil {
			t.Errorf("an owner has no data_len")
		}
		if o["data"] != nil {
			shown++
		}
	}
	if len(list) != 5 || shown != 4 {
		t.Errorf("%d owners are shown, %d with their data", len(list), shown)
	}
}

// TestPollOfManyTags: a long poll whose caller knows several states lasts while it is one of these, and
// says in the end which; it is answered with the first other one.
func TestPollOfManyTags(t *testing.T) {
	t.Parallel()
	s := openSite(t, servertest.Start(t, servertest.RealTime()))
	put := func(data string) string {
		return s.ask("PUT", "/v1/config/a", "", data).wants(200).header.Get("ETag")
	}
	first := put("x")
	version := s.ask("PUT", "/v1/config/a", "", "y").wants(200).number("version")
	known := fmt.Sprintf(`%s, "%d", "%d"`, first, version, version+1)
	poll := func(wait string) <-chan *answer {
		polled := s.begin("GET", "/v1/config/a?wait="+wait, "", "", "If-None-Match: "+known)
		await.True(t, "the request at the gateway", func() bool { return s.api.held.Load() > 0 })
		return polled
	}
	polled := poll("500ms")
	put("known")
	if tag := (<-polled).wants(304).header.Get("ETag"); !strings.Contains(known, tag) {
		t.Errorf("%s are known, and not %s", known, tag)
	}
	polled = poll("1m")
	tag := put("unknown")
	if got := (<-polled).wants(200).header.Get("ETag"); got != tag {
		t.Errorf("the newest is %s, and the answer has %s", tag, got)
	}
}

// TestTimesOfAnswers: the bound of a lease bounds what answers of its session say, and a long poll
// without a change lasts for its wait. Each answer is checked for that.
func TestTimesOfAnswers(t *testing.T) {
	t.Parallel()
	s := openSite(t, servertest.Start(t, servertest.RealTime()))
	s.ask("POST", "/v1/locks/a?ttl=5m&hold=1m", alice, "").wants(200)
	s.ask("POST", "/v1/session/keepalive?holding=a", alice, "").wants(200)
	tag := s.ask("PUT", "/v1/config/a", "", "x").wants(200).header.Get("ETag")
	s.ask("GET", "/v1/config/a?wait=200ms", "", "", "If-None-Match: "+tag).wants(304)
}
