package console

import (
	"html"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/rollout"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

var (
	postForm = regexp.MustCompile(`(?s)<form class="form" method="post" action="(/action/[^"]+)">(.*?)</form>`)
	inputs   = regexp.MustCompile(`<input type="hidden" name="([^"]+)" value="([^"]*)">`)
)

// form is the form with which a page asks for a confirmation, as a browser would send it.
func (a answer) form(t testing.TB) (action string, form url.Values) {
	t.Helper()
	m := postForm.FindStringSubmatch(a.body)
	if m == nil {
		t.Fatalf("the page has no form:\n%s", a.body)
	}
	form = url.Values{}
	for _, in := range inputs.FindAllStringSubmatch(m[2], -1) {
		form.Set(in[1], html.UnescapeString(in[2]))
	}
	return m[1], form
}

// act follows an action to its end.
func (s *site) act(address, name string) answer {
	s.t.Helper()
	page := s.get(address)
	page.wants(s.t, 200, "This is a dry run")
	path, form := page.form(s.t)
	form.Set("reason", "host is broken")
	form.Set("confirm", name)
	return s.post(path, form)
}

// TestFormsWithoutSession: while nobody logs in, dry runs keep nothing in the console, and begin no
// session that would push another one out. A form is good for the browser that it was made for.
func TestFormsWithoutSession(t *testing.T) {
	s := openSite(t, nil)
	id := strconv.FormatUint(s.session().ID(), 10)
	kill := actionURL("kill-session", "node", "/default", "id", id)
	var path string
	var strange url.Values
	for range 3 {
		s.browser.Jar, _ = cookiejar.New(nil)
		dry := s.get(kill)
		dry.wants(t, 200, "This is a dry run")
		path, strange = dry.form(t)
	}
	strange.Set("reason", "why")
	strange.Set("confirm", id)
	s.browser.Jar, _ = cookiejar.New(nil)
	s.post(path, strange).wants(t, 403, "was not made for you")
	s.get(kill).wants(t, 200)
	s.post(path, strange).wants(t, 403, "was not made for you")
	s.act(kill, id).wants(t, 200, "The session is killed.")
	s.console.sessions.mu.Lock()
	defer s.console.sessions.mu.Unlock()
	if n := len(s.console.sessions.byHash); n != 0 {
		t.Errorf("%d sessions have begun", n)
	}
}

// TestFormsOfSession: who logged in has forms that end with the session.
func TestFormsOfSession(t *testing.T) {
	s := openSite(t, nil, withAuth())
	s.administrator()
	id := strconv.FormatUint(s.session().ID(), 10)
	kill := actionURL("kill-session", "node", "/default", "id", id)
	s.login(adminToken).wants(t, 303)
	path, form := s.get(kill).form(t)
	form.Set("reason", "why")
	form.Set("confirm", id)
	s.login(adminToken).wants(t, 303)
	s.post(path, form).wants(t, 403, "was not made for you")
	s.act(kill, id).wants(t, 200, "The session is killed.")
}

func TestActions(t *testing.T) {
	trail := filepath.Join(t.TempDir(), "audit.log")
	s := openSite(t, nil, servertest.Config(func(c *server.Config) { c.Audit = trail }))
	holder, killed := s.session(), s.session()
	if err := holder.Create(t.Context(), "slots", 2, nil); err != nil {
		t.Fatal(err)
	}
	lease, err := holder.Acquire(t.Context(), "slots")
	if err != nil {
		t.Fatal(err)
	}
	track := rollout.NewTrack(holder, "geo/base")
	if _, err := track.Create(t.Context(), rollout.Config{Source: rollout.Published,
		Locations: []rollout.Location{{Name: "SAS"}, {Name: "MAN"}}}); err != nil {
		t.Fatal(err)
	}

	// What a form must have.
	kill := actionURL("kill-session", "node", "/default", "id", strconv.FormatUint(killed.ID(), 10))
	s.get(sessionURL("/default", killed.ID())).wants(t, 200, "Kill session", html.EscapeString(kill))
	dry := s.get(kill)
	dry.wants(t, 200, "This is a dry run", "Holds")
	path, form := dry.form(t)
	id := strconv.FormatUint(killed.ID(), 10)
	set := func(k, v string) url.Values {
		f := url.Values{"reason": {"why"}, "confirm": {id}}
		for key := range form {
			f.Set(key, form.Get(key))
		}
		f.Set(k, v)
		return f
	}
	s.post(path, set("csrf", "")).wants(t, 403, "was not made for you")
	s.post(path, set("csrf", "guess")).wants(t, 403)
	s.post(path, set("x", ""), func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }).wants(t, 403)
	stranger := *s
	stranger.browser = newBrowser()
	defer stranger.browser.CloseIdleConnections()
	stranger.post(path, set("x", "")).wants(t, 403, "was not made for you")
	s.post(path, set("reason", " ")).wants(t, 422, "say why")
	s.post(path, set("reason", strings.Repeat("x", 1025))).wants(t, 422, "1025 bytes")
	s.post(path, set("confirm", "slots")).wants(t, 422, "is another one")
	s.post("/action/nothing", set("x", "")).wants(t, 404)
	if !killed.Held() {
		t.Fatal("the session is gone before the action was confirmed")
	}
	s.post(path, set("x", "")).wants(t, 200, "The session is killed.")
	<-killed.Context().Done()
	s.get(kill).wants(t, 404)

	token := strconv.FormatUint(lease.Token(), 10)
	slots := []string{"node", "/default", "name", encodeName("slots")}
	s.act(actionURL("force-release", append(slots, "token", token)...), "slots").wants(t, 200, "units are released")
	<-lease.Context().Done()
	s.get(actionURL("force-release", append(slots, "token", token)...)).wants(t, 404, "has released")

	if err := holder.Create(t.Context(), "many", pageSize+1, nil); err != nil {
		t.Fatal(err)
	}
	for range pageSize + 1 {
		if lease, err = s.session().Acquire(t.Context(), "many"); err != nil {
			t.Fatal(err)
		}
	}
	beyond := actionURL("force-release", "node", "/default", "name", encodeName("many"), "token", strconv.FormatUint(lease.Token(), 10))
	s.act(beyond, "many").wants(t, 200, "units are released")
	<-lease.Context().Done()

	s.get(actionURL("resize", slots...)).wants(t, 200, "New limit")
	s.get(actionURL("resize", append(slots, "limit", "0")...)).wants(t, 400)
	s.act(actionURL("resize", append(slots, "limit", "7")...), "slots").wants(t, 200, "The limit is 7.")
	if sem, err := holder.Node().Describe(t.Context(), "slots"); err != nil || sem.Limit != 7 {
		t.Errorf("the semaphore is %+v, %v", sem, err)
	}

	base := []string{"node", "/default", "name", encodeName("geo/base")}
	s.act(actionURL("pause", base...), "geo/base").wants(t, 200, "It is paused")
	s.get("/rollout?node=/default&name="+encodeName("geo/base")).wants(t, 200, "paused the whole rollout", "Resume")
	s.act(actionURL("resume", base...), "geo/base").wants(t, 200, "It goes on")
	s.act(actionURL("pause", append(base, "location", "MAN")...), "geo/base").wants(t, 200, "It is paused")
	s.get(actionURL("promote", base...)).wants(t, 400, "names no location")
	s.act(actionURL("promote", append(base, "location", "MAN")...), "geo/base").wants(t, 409, "Not done")
	s.act(actionURL("drain", "instance", "servertest"), "servertest").wants(t, 409, "Not done") // nobody else could lead
	s.act(actionURL("undrain", "instance", "servertest"), "servertest").wants(t, 200, "may lead and vote again")
	s.get(actionURL("drain", "instance", "none")).wants(t, 404)

	s.sdk.CloseWithoutRelease()
	s.server.Close()
	b, err := os.ReadFile(trail)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ask_kill_session", "ask_force_release", "ask_resize", "ask_admin_rollout", "ask_drain"} {
		line := ""
		for l := range strings.Lines(string(b)) {
			if strings.Contains(l, `"title":"`+want+`"`) {
				line = l
			}
		}
		if !strings.Contains(line, `"via":"console"`) ||
			!strings.Contains(line, "host is broken") && !strings.Contains(line, `"reason":"why"`) ||
			!strings.Contains(line, `"initiator":"anonymous"`) {
			t.Errorf("the audit line of %s is %q", want, line)
		}
	}
}

// TestActionsNeedTheRight: buttons hide without the right, and the server decides.
func TestActionsNeedTheRight(t *testing.T) {
	s := openSite(t, nil, withAuth())
	a := s.administrator()
	if _, err := a.Grant(t.Context(), "alice", "/default", "read"); err != nil {
		t.Fatal(err)
	}
	alice, err := a.CreateToken(t.Context(), "", "alice")
	if err != nil {
		t.Fatal(err)
	}
	holder := s.session(client.Timeout(time.Minute))
	kill := actionURL("kill-session", "node", "/default", "id", strconv.FormatUint(holder.ID(), 10))
	s.login(alice.Secret).wants(t, 303)
	if page := s.get(sessionURL("/default", holder.ID())); strings.Contains(page.body, "Kill session") || page.status != 200 {
		t.Errorf("answered %d, with a button: %s", page.status, page.body)
	}
	s.act(kill, strconv.FormatUint(holder.ID(), 10)).wants(t, 403, "Not done")
	if !holder.Held() {
		t.Error("the session was killed without the right")
	}
	if _, err := a.Grant(t.Context(), "alice", "/default", "admin"); err != nil {
		t.Fatal(err)
	}
	s.act(kill, strconv.FormatUint(holder.ID(), 10)).wants(t, 200, "The session is killed.")
	<-holder.Context().Done()
}
