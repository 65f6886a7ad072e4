package httpapi

import (
	"encoding/base64"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/ratelimit"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// openSession is a session with the SDK.
func openSession(t *testing.T, srv *servertest.Server) *client.Session {
	t.Helper()
	s, err := client.OpenSession(t.Context(), client.Config{Endpoints: []string{srv.Addr()}}, client.DefaultNode)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Client().CloseWithoutRelease)
	return s
}

// TestQueueOptions: slots by name and by label, of which a repeat has the same, and the order that
// priorities make.
func TestQueueOptions(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	own := openSession(t, srv)
	one, two := openSite(t, srv), openSite(t, srv)
	if err := own.Create(t.Context(), "gpu", 3, nil, client.SemaphoreConfig{Slots: []client.Slot{{Name: "g0", Labels: []string{"small"}},
		{Name: "g1", Labels: []string{"large"}}, {Name: "g2"}}}); err != nil {
		t.Fatal(err)
	}
	slots := func(s *site, session, query string) string {
		t.Helper()
		return fmt.Sprint(s.ask("POST", "/v1/locks/gpu?ttl=1m&"+query, session, "").wants(200).doc["slots"])
	}
	for _, s := range []*site{one, one, two} { // a repeat, here and elsewhere
		if got := slots(s, alice, "count=1&label=large"); got != "[g1]" {
			t.Errorf("with the label large it has %s", got)
		}
	}
	if got := slots(one, bob, "count=2&slot=g0&slot=g2"); got != "[g0 g2]" {
		t.Errorf("by name it has %s", got)
	}
	one.ask("POST", "/v1/locks/gpu?ttl=1m&count=1&slot=g1&slot=g2", "carol-session", "").wants(400, "bad_request")
	one.ask("POST", "/v1/locks/gpu?ttl=1m&count=1", "carol-session", "").wants(409, "not_acquired")

	if err := own.Create(t.Context(), "jobs", 1, nil, client.SemaphoreConfig{Policy: client.PolicyPriority}); err != nil {
		t.Fatal(err)
	}
	l, err := own.Acquire(t.Context(), "jobs")
	if err != nil {
		t.Fatal(err)
	}
	for i, priority := range []int{2, 7} { // the second one is served first
		one.ask("POST", fmt.Sprintf("/v1/locks/jobs?ttl=1m&count=1&wait=1ms&priority=%d&key=team", priority),
			[]string{alice, bob}[i], "").wants(202)
		one.awaitWaiters("jobs", i+1)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	one.ask("POST", "/v1/locks/jobs?count=1&wait=1m&priority=7&key=team", bob, "").wants(200)
	one.ask("POST", "/v1/locks/jobs?count=1&wait=1ms&priority=2&key=team", alice, "").wants(202)
}

// TestForms: what can be given and shown in more than one form.
func TestForms(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	own := openSession(t, srv)
	s := openSite(t, srv, func(c *Config) { c.Hosts = []string{"locks.example.com"} })
	basic := "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("anyone:a token"))
	s.ask("GET", "/v1/locks", "", "", "Host: locks.example.com:7074", basic).wants(200)
	s.ask("GET", "/v1/locks", "", "", "Host: other.example.com").wants(421, "misdirected")

	for name, limit := range map[string]uint64{"a/small": 7, "a/large": 1 << 60, "b/whole": client.Max} {
		if err := own.Create(t.Context(), name, limit, nil); err != nil {
			t.Fatal(err)
		}
	}
	s.ask("POST", "/v1/locks/a/large?ttl=1m&count=9007199254740993", alice, "a\xffb").wants(200)
	list := s.ask("GET", "/v1/locks?prefix=a/&consistency=strict", "", "").wants(200).doc["locks"].([]any)
	var limits []string
	for _, item := range list {
		limits = append(limits, fmt.Sprintf("%v %T", item.(map[string]any)["limit"], item.(map[string]any)["limit"]))
	}
	if slices.Sort(limits); fmt.Sprint(limits) != "[1152921504606846976 string 7 json.Number]" {
		t.Errorf("the limits are %v", limits)
	}
	large := s.ask("GET", "/v1/locks/a/large?consistency=strict", "", "").wants(200).doc
	owner := large["owners"].([]any)[0].(map[string]any)
	if owner["count"] != "9007199254740993" || owner["data_base64"] != "Yf9i" || owner["data"] != nil {
		t.Errorf("its owner is %v", owner)
	}
	if got := s.ask("GET", "/v1/locks/b/whole?consistency=strict", "", "").wants(200); got.doc["limit"] != "max" {
		t.Errorf("it is %s", got.body)
	}
	s.ask("GET", "/v1/locks?consistency=relaxed", "", "").wants(400, "bad_request")

	shadow := ratelimit.Config{Rate: ratelimit.PerSecond(1), Shadow: true}
	if _, err := ratelimit.Create(t.Context(), own, "shadow", shadow); err != nil {
		t.Fatal(err)
	}
	for range 5 { // it admits what it would refuse
		s.ask("POST", "/v1/limits/shadow?wait=1m", "", "").wants(200)
	}
}

// noSession takes a place of a gateway's sessions.
var noSession = new(session)

// TestBounds: a gateway refuses more requests, and more sessions, of an identity and of all, than it
// may have, and goes on with those that it has.
func TestBounds(t *testing.T) {
	t.Parallel()
	s := openSite(t, servertest.Start(t))
	s.ask("POST", "/v1/locks/a?ttl=1m", alice, "").wants(200)
	s.api.held.Add(maxHeld)
	for range 50 { // each answer is checked: its Retry-After is random, and never 0
		s.ask("GET", "/v1/locks", "", "").wants(503, "overloaded")
	}
	s.api.held.Add(-maxHeld)
	identity := s.sessions()[0].identity
	set := func(n int) {
		s.api.mu.Lock()
		defer s.api.mu.Unlock()
		s.api.own[identity] += n
	}
	set(maxOwn)
	s.ask("POST", "/v1/locks/b?ttl=1m", bob, "").wants(429, "overloaded")
	s.ask("POST", "/v1/locks/b", alice, "").wants(200)
	set(-maxOwn)
	s.ask("POST", "/v1/locks/c?ttl=1m", bob, "").wants(200)

	s.api.mu.Lock()
	for i := range maxSessions - len(s.api.sessions) {
		s.api.sessions[sessionName{name: fmt.Sprint(i)}] = noSession
	}
	s.api.mu.Unlock()
	s.ask("POST", "/v1/locks/d?ttl=1m", "carol-session", "").wants(503, "overloaded")
	s.ask("POST", "/v1/locks/b", alice, "").wants(200)
}

// TestPreempted: a preemption is told, by events and answers, and never ends a lease: its owner
// counts as silent when its grace is over.
func TestPreempted(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	own := openSession(t, srv)
	s := openSite(t, srv)
	if err := own.Create(t.Context(), "gpu", 1, nil,
		client.SemaphoreConfig{Preempt: client.PreemptAny, Grace: time.Second}); err != nil {
		t.Fatal(err)
	}
	held := s.stream("/v1/locks/gpu?ttl=1m&count=1", alice)
	token := held.wants("acquired").number("token")
	s.ask("POST", "/v1/locks/gpu?ttl=1m&count=1&wait=1ms", bob, "").wants(202)
	if got := held.wants("preempt").number("token"); got != token {
		t.Errorf("the event is of token %d, not %d", got, token)
	}
	await.True(t, "a silent owner", func() bool {
		sem, err := own.Node().Describe(t.Context(), "gpu", client.IncludeOwners(), client.ReadConsistency(client.Strict))
		if err != nil || len(sem.Owners) != 1 {
			t.Fatal(sem, err)
		}
		return sem.Owners[0].Silent
	})
	for _, path := range []string{"/v1/locks/gpu?count=1", "/v1/session/keepalive?holding=gpu"} {
		if a := s.ask("POST", path, alice, "").wants(200); a.doc["preempt"] != true || a.doc["ends_in_ms"] != nil {
			t.Errorf("%s is answered %s", path, a.body)
		}
	}
	s.ask("DELETE", "/v1/locks/gpu", alice, "").wants(200)
	next := s.ask("POST", "/v1/locks/gpu?count=1&wait=1m", bob, "").wants(200)
	if next.number("token") <= token || next.doc["preempt"] != false {
		t.Errorf("after %d: %s", token, next.body)
	}
}
