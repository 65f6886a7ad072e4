package browsertest

import (
	"bytes"
	"context"
	"encoding/base64"
	"flag"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/client/discovery"
	"github.com/signalbox-dev/signalbox/client/ratelimit"
	"github.com/signalbox-dev/signalbox/client/rollout"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/console"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

func semaphore(name string) string {
	return "/semaphore?node=%2Fdefault&name=" + base64.RawURLEncoding.EncodeToString([]byte(name))
}

func sessionPath(id uint64) string {
	return "/session?node=%2Fdefault&id=" + strconv.FormatUint(id, 10)
}

func rows(table string, n int) string {
	return fmt.Sprintf(`document.querySelectorAll("#%s tbody tr").length === %d`, table, n)
}

// TestLive: a row appears with another client's acquire, and goes with its release. It goes on by
// itself after a restart of the server. Seven tabs are live at once.
func TestLive(t *testing.T) {
	srv := servertest.Start(t, servertest.Shards(2))
	site := startConsole(t, console.Config{Client: client.Config{Endpoints: []string{srv.Addr()}}})
	b := openBrowser(t)
	holder := session(t, dial(t, srv.Addr()), "holder@a")

	tabs, more := []context.Context{b.ctx}, 6
	if !form.Is(form.Full) {
		more = 1
	}
	for range more {
		tabs = append(tabs, b.tab())
	}
	for _, tab := range tabs {
		b.run(tab, "open", chromedp.Navigate(site+semaphore("lock")))
	}
	for _, tab := range tabs {
		b.live(tab)
	}
	began := time.Now()
	lease, err := holder.Acquire(t.Context(), "lock", client.Exclusive(), client.Data("10.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	for i, tab := range tabs {
		b.until(tab, "the row of the owner", rows("owners", 1)+` && document.getElementById("owners").innerText.includes("holder@a")`)
		if i == 0 {
			t.Logf("the owner's row came %s after the acquire", time.Since(began).Round(time.Millisecond))
		}
	}
	b.until(b.ctx, "who holds it, as a picture", `document.getElementById("figure").innerText.includes("Held by 1 owner")`)
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, tab := range tabs {
		b.until(tab, "the end of the row", rows("owners", 0))
		b.until(tab, "the end of the picture", `document.getElementById("figure").innerText === ""`)
	}
	if err := holder.Create(t.Context(), "lock", 1, nil); err != nil {
		t.Fatal(err)
	}
	b.until(b.ctx, "the button of a semaphore that stays", `document.querySelector(".actions")?.innerText.includes("Resize")`)
	b.live(b.ctx)

	srv.Kill()
	b.until(b.ctx, "that it is not live",
		`document.body.dataset.state === "lost" && document.getElementById("live").innerText.includes("since")`)
	srv.Restart()
	for _, tab := range tabs {
		b.live(tab)
	}
}

// TestRightIsTakenAway: what a page showed goes when its viewer may not see it any more.
func TestRightIsTakenAway(t *testing.T) {
	const adminToken = "a secret of the administrator"
	srv := servertest.Start(t, servertest.Shards(1), servertest.Config(func(c *server.Config) {
		c.Auth, c.AdminToken = true, adminToken
	}))
	c, err := client.Open(t.Context(), client.Config{Endpoints: []string{srv.Addr()}, Token: []byte(adminToken)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseWithoutRelease)
	a := admin.New(c)
	if _, err := a.Grant(t.Context(), "alice", "/", "admin"); err != nil {
		t.Fatal(err)
	}
	alice, err := a.CreateToken(t.Context(), "", "alice")
	if err != nil {
		t.Fatal(err)
	}
	site := startConsole(t, console.Config{Client: client.Config{Endpoints: []string{srv.Addr()}}})
	b := openBrowser(t)
	b.run(b.ctx, "log in", chromedp.Navigate(site+"/login"), chromedp.SendKeys("#token", alice.Secret+kb.Enter))
	b.until(b.ctx, "the instance, and what may be done with it", `document.querySelector("#instances tbody")?.innerText.includes("Drain")`)
	b.live(b.ctx)
	if _, err := a.Grant(t.Context(), "alice", "/", "read"); err != nil {
		t.Fatal(err)
	}
	b.until(b.ctx, "the instance alone", rows("instances", 1)+` && !document.getElementById("instances").innerText.includes("Drain")`)
	b.live(b.ctx)
	if err := a.Revoke(t.Context(), "alice", "/"); err != nil {
		t.Fatal(err)
	}
	b.until(b.ctx, "a page without tables", `document.querySelector("table") === null && document.body.innerText.includes("You may not see the cluster")`)
}

// TestLoggedOut: a tab that asks for its stream without a session shows nothing any more, and does
// not ask again.
func TestLoggedOut(t *testing.T) {
	const adminToken = "a secret of the administrator"
	srv := servertest.Start(t, servertest.Shards(1), servertest.Config(func(c *server.Config) {
		c.Auth, c.AdminToken = true, adminToken
	}))
	site := startConsole(t, console.Config{Client: client.Config{Endpoints: []string{srv.Addr()}}})
	b := openBrowser(t)
	b.run(b.ctx, "log in", chromedp.Navigate(site+"/login"), chromedp.SendKeys("#token", adminToken+kb.Enter))
	b.until(b.ctx, "the instance", rows("instances", 1))
	b.live(b.ctx)
	leave := `fetch("/logout", {method: "POST"}).then(() => document.dispatchEvent(new Event("visibilitychange")))`
	value[any](b, b.ctx, leave)
	b.until(b.ctx, "the page without what it showed", `document.querySelector("table") === null &&
		document.getElementById("main").innerText.includes("You are not logged in any more.") &&
		document.body.dataset.live === undefined`)
}

// TestNextPage: the link to the next page comes and goes with the rows beyond the first page.
func TestNextPage(t *testing.T) {
	srv := servertest.Start(t, servertest.Shards(1))
	site := startConsole(t, console.Config{Client: client.Config{Endpoints: []string{srv.Addr()}}})
	b := openBrowser(t)
	holder := session(t, dial(t, srv.Addr()), "holder@a")
	for i := range 101 {
		if i == 100 {
			b.run(b.ctx, "open", chromedp.Navigate(site+"/semaphores?node=%2Fdefault"))
			b.live(b.ctx)
			b.until(b.ctx, "a full page without a link", rows("semaphores", 100)+` && document.querySelector("a[rel=next]").hidden`)
		}
		if err := holder.Create(t.Context(), fmt.Sprintf("n%03d", i), 1, nil); err != nil {
			t.Fatal(err)
		}
	}
	b.until(b.ctx, "the link", `!document.querySelector("a[rel=next]").hidden`)
	b.run(b.ctx, "follow it", chromedp.Click("a[rel=next]"))
	b.until(b.ctx, "the last page", rows("semaphores", 1)+` && document.querySelector("a[rel=next]").hidden`)
	b.live(b.ctx)
}

// TestLeaderIsKilled: the page follows the cluster when the leader of its shard is gone.
func TestLeaderIsKilled(t *testing.T) {
	cluster := servertest.StartCluster(t, 3, servertest.Shards(1))
	addresses := cluster.Addrs()
	site := startConsole(t, console.Config{Client: client.Config{Endpoints: addresses}})
	b := openBrowser(t)
	c, err := client.Dial(t.Context(), addresses...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseWithoutRelease)
	holder := session(t, c, "holder@a")
	b.run(b.ctx, "open", chromedp.Navigate(site+semaphore("lock")))
	b.live(b.ctx)
	cluster.Kill(cluster.Leader(cluster.Shards()[0]))
	lease, err := holder.Acquire(t.Context(), "lock", client.Exclusive())
	if err != nil {
		t.Fatal(err)
	}
	b.until(b.ctx, "the row of the owner", rows("owners", 1))
	b.live(b.ctx)
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.until(b.ctx, "the end of the row", rows("owners", 0))
}

// TestHostileText: names and data are text, whatever they are.
func TestHostileText(t *testing.T) {
	srv := servertest.Start(t, servertest.Shards(1))
	site := startConsole(t, console.Config{Client: client.Config{Endpoints: []string{srv.Addr()}}})
	b := openBrowser(t)
	hostile := `</code><script>alert(1)</script><img src=x onerror=alert(2)>"'`
	holder := session(t, dial(t, srv.Addr()), hostile)
	long := strings.Repeat("<b onmouseover=alert(3)>", 1<<20/24)
	for _, name := range []string{hostile, "\u202eright-to-left\u202d", "שלום עולם", "nul\x00\xff\x1b[31m", strings.Repeat("w", 1024)} {
		if !form.Is(form.Full) && name != hostile {
			continue
		}
		b.run(b.ctx, "open", chromedp.Navigate(site+semaphore(name)))
		b.live(b.ctx)
		lease, err := holder.Acquire(t.Context(), name, client.Ephemeral(), client.Data(long))
		if err != nil {
			t.Fatal(err)
		}
		b.until(b.ctx, "the owner, by the stream", rows("owners", 1)+` && document.querySelector("#owners tbody th").innerText.includes("<script>alert(1)</script>") && document.querySelector("#owners").innerText.includes("<b onmouseover=alert(3)>")`)
		b.run(b.ctx, "load again", chromedp.Reload())
		b.until(b.ctx, "the owner, in the document", rows("owners",
			1)+` && document.querySelector("#owners tbody th").innerText.includes("<script>alert(1)</script>")`)
		wide := value[bool](b, b.ctx, `document.documentElement.scrollWidth > document.documentElement.clientWidth`)
		elements := value[bool](b, b.ctx, `document.querySelectorAll("main script, main img, main b").length > 0`)
		marks := value[bool](b, b.ctx, `/[\u0000\u001b\u202a-\u202e\u2066-\u2069]/.test(document.body.innerText)`)
		if wide || elements || marks {
			t.Errorf("%q: scrolls sideways %t, became elements %t, has marks that nobody sees %t", name, wide, elements, marks)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKeyboard kills a session with the keyboard alone, first without the right and then with it.
func TestKeyboard(t *testing.T) {
	const secret = "the-administrator-of-these-tests"
	srv := servertest.Start(t, servertest.Shards(1), servertest.Config(func(c *server.Config) { c.Auth, c.AdminToken = true, secret }))
	site := startConsole(t, console.Config{Client: client.Config{Endpoints: []string{srv.Addr()}}})
	b := openBrowser(t)
	c, err := client.Open(t.Context(), client.Config{Endpoints: []string{srv.Addr()}, Token: []byte(secret)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseWithoutRelease)
	a := admin.New(c)
	if _, err := a.Grant(t.Context(), "alice", "/default", "read"); err != nil {
		t.Fatal(err)
	}
	alice, err := a.CreateToken(t.Context(), "", "alice")
	if err != nil {
		t.Fatal(err)
	}
	victim := session(t, c, "victim@a")
	id := strconv.FormatUint(victim.ID(), 10)

	login := func(token string) {
		t.Helper()
		b.run(b.ctx, "log in", chromedp.Navigate(site+"/login?to="+url.QueryEscape(sessionPath(victim.ID()))))
		b.until(b.ctx, "the form", `document.activeElement.id === "token"`)
		b.run(b.ctx, "type the token", chromedp.KeyEvent(token+kb.Enter))
		b.until(b.ctx, "the session's page", `location.pathname === "/session"`)
		b.live(b.ctx)
	}
	login(alice.Secret)
	if value[bool](b, b.ctx, `document.body.innerText.includes("Kill session")`) {
		t.Error("a button is shown without the right")
	}
	// The first key leads past the navigation.
	b.run(b.ctx, "skip", chromedp.KeyEvent(kb.Tab))
	b.until(b.ctx, "the skip link",
		`document.activeElement.className === "skip" && document.activeElement.getBoundingClientRect().left >= 0`)
	b.run(b.ctx, "skip", chromedp.KeyEvent(kb.Enter))
	b.until(b.ctx, "the content", `document.activeElement.id === "main"`)

	// The address by hand: the server refuses.
	kill := func() {
		t.Helper()
		b.until(b.ctx, "the dry run", `document.getElementById("reason")`)
		for range 60 { // to the first field, from wherever the focus is
			b.run(b.ctx, "tab", chromedp.KeyEvent(kb.Tab))
			if value[bool](b, b.ctx,
				`document.activeElement.id === "reason" && getComputedStyle(document.activeElement).outlineStyle !== "none"`) {
				break
			}
		}
		b.run(b.ctx, "fill in", chromedp.KeyEvent("host is broken"+kb.Tab+id+kb.Tab+kb.Enter))
	}
	b.run(b.ctx, "open", chromedp.Navigate(site+"/action/kill-session?node=%2Fdefault&id="+id))
	kill()
	b.until(b.ctx, "the refusal", `document.querySelector("#notes .bad")?.innerText.includes("Not done")`)
	if !victim.Held() {
		t.Fatal("the session was killed without the right")
	}
	b.forget("403")

	login(secret)
	for range 60 {
		b.run(b.ctx, "tab", chromedp.KeyEvent(kb.Tab))
		if value[bool](b, b.ctx, `document.activeElement.innerText === "Kill session"`) {
			break
		}
	}
	b.run(b.ctx, "press the button", chromedp.KeyEvent(kb.Enter))
	kill()
	b.until(b.ctx, "the end", `document.querySelector("#notes .good")?.innerText === "The session is killed."`)
	<-victim.Context().Done()
}

// checks are what every page has to hold, in any width and in both colour schemes. They stand in
// for the serious rules of an accessibility checker.
const checks = `(() => {
  const bad = [];
  const seen = new Set();
  for (const el of document.querySelectorAll("[id]")) { if (seen.has(el.id)) bad.push("two elements have the id " + el.id); seen.add(el.id); }
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) bad.push("scrolls sideways: " + root.scrollWidth + " > " + root.clientWidth);
  if (!root.lang) bad.push("no language");
  if (!document.title) bad.push("no title");
  if (document.querySelectorAll("h1").length !== 1) bad.push("not one h1");
  if (document.querySelectorAll("main").length !== 1) bad.push("not one main");
  let level = 0;
  for (const h of document.querySelectorAll("h1, h2, h3, h4")) { const l = Number(h.tagName[1]); if (l > level + 1) bad.push("heading skips a level: " + h.innerText); level = l; }
  for (const th of document.querySelectorAll("th")) if (!th.scope) bad.push("a th without scope");
  for (const el of document.querySelectorAll("input:not([type=hidden])")) if (!el.labels.length) bad.push("no label: " + el.outerHTML);
  for (const el of document.querySelectorAll("a, button")) if (!el.innerText.trim() && !el.getAttribute("aria-label")) bad.push("no text: " + el.outerHTML);
  for (const el of document.querySelectorAll("svg")) if (!el.getAttribute("aria-hidden") && !el.getAttribute("aria-label")) bad.push("a picture without words");
  for (const el of document.querySelectorAll("nav")) if (!el.getAttribute("aria-label")) bad.push("a nav without a name");
  if (document.querySelector("[style]")) bad.push("an inline style");
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (c) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const lum = ([r, g, b]) => { const f = (v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }; return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
  const ground = (el) => { for (; el; el = el.parentElement) { const c = rgb(getComputedStyle(el).backgroundColor); if (c[3] === 255) return c; } return [255, 255, 255, 255]; };
  for (const el of document.querySelectorAll("body *")) {
    if (![...el.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || !el.checkVisibility() || el.closest("svg")) continue;
    const a = lum(rgb(getComputedStyle(el).color)), b = lum(ground(el));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.push("contrast " + ratio.toFixed(2) + ": " + el.innerText.slice(0, 40));
  }
  for (const el of document.querySelectorAll("main a, main button, header a")) {
    if (!el.checkVisibility() || el.className === "skip") continue;
    const r = el.getBoundingClientRect();
    if (r.right > root.clientWidth + 1) bad.push("beyond the edge: " + el.innerText);
  }
  return bad;
})()`

// TestEveryPage looks at all pages, in four widths, light and dark.
func TestEveryPage(t *testing.T) {
	form.SkipUntil(t, form.Full, "all pages, in a browser")
	srv := servertest.Start(t, servertest.Shards(2))
	site := startConsole(t, console.Config{Client: client.Config{Endpoints: []string{srv.Addr()}}})
	b := openBrowser(t)
	for _, path := range furnish(t, dial(t, srv.Addr())) {
		b.run(b.ctx, "open", chromedp.Navigate(site+path))
		b.until(b.ctx, "the page", `document.readyState === "complete" && document.querySelector("h1")`)
		for _, width := range []int64{360, 768, 1024, 1440} {
			for _, scheme := range []string{"light", "dark"} {
				b.run(b.ctx, "look", look(width, 900, scheme))
				for _, text := range value[[]string](b, b.ctx, checks) {
					t.Errorf("%s, %d px, %s: %s", path, width, scheme, text)
				}
			}
		}
	}
	b.forget("404")
}

// furnish makes objects of each kind, and returns the addresses of all pages.
func furnish(t *testing.T, c *client.Client) (paths []string) {
	t.Helper()
	holder := session(t, c, "billing@db-1")
	for i := range 40 {
		if err := holder.Create(t.Context(), fmt.Sprintf("jobs/%02d", i), uint64(1+i%7), nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := holder.Acquire(t.Context(), "jobs/06", client.Count(6), client.Data("10.0.0.1:8080")); err != nil {
		t.Fatal(err)
	}
	accepted := make(chan struct{}, 30)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	for i := range 12 {
		s := session(t, c, fmt.Sprintf("worker@host-%d", i))
		go func() {
			_, _ = s.Acquire(ctx, "jobs/06", client.Count(uint64(2+i%3)),
				client.OnQueued(func(uint64) { accepted <- struct{}{} }))
		}()
	}
	for range 12 {
		<-accepted
	}
	track := rollout.NewTrack(holder, "geo/base")
	if _, err := track.Create(t.Context(), rollout.Config{Source: rollout.Published,
		Locations: []rollout.Location{{Name: "zone-a"}, {Name: "zone-b", Delay: time.Minute}, {Name: "zone-c", Delay: time.Hour}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := track.Publish(t.Context(), 41, bytes.Repeat([]byte("x"), 100)); err != nil {
		t.Fatal(err)
	}
	base := "node=%2Fdefault&name=" + base64.RawURLEncoding.EncodeToString([]byte("geo/base"))
	for i, zone := range []string{"zone-a", "zone-a", "zone-b"} {
		e := discovery.Endpoint{Addr: fmt.Sprintf("10.0.0.%d:80", i+1), Zone: zone}
		if _, err := discovery.Register(t.Context(), session(t, c, "api@"+zone), "api", e); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := holder.Config("flags").Set(t.Context(), []byte("dark=1\nlight=0")); err != nil {
		t.Fatal(err)
	}
	if _, err := holder.Election("head").Campaign(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := holder.Create(t.Context(), "gpus", 3, nil, client.SemaphoreConfig{Policy: client.PolicyPriority,
		Slots: []client.Slot{{Name: "a", Labels: []string{"big"}}, {Name: "b"}, {Name: "c"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := holder.Acquire(t.Context(), "gpus", client.Slots("a")); err != nil {
		t.Fatal(err)
	}
	if err := holder.Drain(t.Context(), "gpus", []string{"a", "b"}); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"api", "api/search", "api/search/eu"} {
		if _, err := ratelimit.Create(t.Context(), holder, path, ratelimit.Config{Rate: ratelimit.PerSecond(1000)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ratelimit.JoinSession(t.Context(), holder, "api/search/eu"); err != nil {
		t.Fatal(err)
	}
	return []string{
		"/limits?node=%2Fdefault", "/limit?node=%2Fdefault&name=" + base64.RawURLEncoding.EncodeToString([]byte("api")),
		semaphore("gpus"), "/action/undrain-slot?slot=b&" + strings.TrimPrefix(semaphore("gpus"), "/semaphore?"),
		"/services?node=%2Fdefault", "/elections?node=%2Fdefault", "/configurations?node=%2Fdefault",
		semaphore("api") + "&zone=zone-a", semaphore("head"), semaphore(client.ConfigPrefix + "flags"),
		"/", "/nodes", "/node?node=%2Fdefault", "/semaphores?node=%2Fdefault",
		"/semaphores?node=%2Fdefault&prefix=none", semaphore("jobs/06"), semaphore("none"),
		"/sessions?node=%2Fdefault", sessionPath(holder.ID()), "/rollouts?node=%2Fdefault",
		"/rollout?" + base + "&location=zone-a", "/processes?node=%2Fdefault", "/nothing", "/login",
		"/action/kill-session?node=%2Fdefault&id=" + strconv.FormatUint(holder.ID(), 10),
		"/action/resize?node=%2Fdefault&name=" + base64.RawURLEncoding.EncodeToString([]byte("jobs/06")) + "&limit=9",
	}
}

var screenshot = flag.String("screenshot", "", "the file that TestScreenshot makes")

// TestScreenshot remakes the README's picture: a contended semaphore. make screenshot runs it.
func TestScreenshot(t *testing.T) {
	file := *screenshot
	if file == "" {
		t.Skip("-screenshot names no file: make screenshot")
	}
	srv := servertest.Start(t, servertest.Shards(2), servertest.RealTime())
	site := startConsole(t, console.Config{Client: client.Config{Endpoints: []string{srv.Addr()}}})
	b := openBrowser(t)
	c := dial(t, srv.Addr())
	owner := session(t, c, "billing@db-1")
	if err := owner.Create(t.Context(), "exports", 5, []byte("at most five exports at a time")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	acquire := func(s *client.Session, n uint64, data string) {
		if _, err := s.Acquire(t.Context(), "exports", client.Count(n), client.Data(data)); err != nil {
			t.Fatal(err)
		}
	}
	acquire(owner, 2, "10.0.0.1:8080")
	acquire(session(t, c, "reports@app-7"), 1, "10.0.0.7:8080")
	acquire(session(t, c, "reports@app-8"), 1, "10.0.0.8:8080")
	for _, w := range []struct {
		who  string
		want uint64
	}{{"archive@app-2", 3}, {"reports@app-9", 1}, {"billing@db-2", 1}} {
		accepted := make(chan struct{})
		s := session(t, c, w.who)
		go func() {
			_, _ = s.Acquire(ctx, "exports", client.Count(w.want), client.Wait(time.Hour),
				client.OnQueued(func(uint64) { close(accepted) }))
		}()
		<-accepted
	}
	b.run(b.ctx, "open", look(1180, 860, "light"), chromedp.Navigate(site+semaphore("exports")))
	b.live(b.ctx)
	b.until(b.ctx, "ages to look at", `[...document.querySelectorAll("#queue time")].every((el) => el.innerText >= "7s")`)
	var picture []byte
	b.run(b.ctx, "the picture", chromedp.Func(func(ctx context.Context, tab *chromedp.Target) (err error) {
		picture, err = chromedp.CaptureScreenshot()(ctx, tab)
		return err
	}))
	if err := os.WriteFile(file, picture, 0o644); err != nil {
		t.Fatal(err)
	}
}
