package console

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
)

func TestPages(t *testing.T) {
	s := openSite(t, nil)
	holder, waiter := s.session(client.Description("holder@a")), s.session(client.Description("waiter@b"))
	if err := holder.Create(t.Context(), "slots", 3, []byte("three at a time")); err != nil {
		t.Fatal(err)
	}
	if _, err := holder.Acquire(t.Context(), "slots", client.Count(2), client.Data("10.0.0.1:80")); err != nil {
		t.Fatal(err)
	}
	queued := make(chan uint64, 1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = waiter.Acquire(ctx, "slots", client.Count(2), client.OnQueued(func(token uint64) { queued <- token }))
	}()
	defer func() { cancel(); <-done }()
	<-queued

	s.get("/").wants(t, 200, "Overview", "healthy", "Instances", "servertest", "Shards", "Nothing to do")
	s.get("/nodes").wants(t, 200, "/default", "relaxed")
	s.get("/node?node=/default").wants(t, 200, "Quotas", "Waiting acquires", group(1_000_000))
	list := s.get("/semaphores?node=/default")
	list.wants(t, 200, "slots", "2 of 3", "15 B")
	s.get("/semaphores?node=/default&prefix=sl").wants(t, 200, "slots")
	s.get("/semaphores?node=/default&prefix=x").wants(t, 200, "No semaphore has a name that begins with")
	one := s.get(semaphoreURL("/default", "slots"))
	one.wants(t, 200, "2 of 3 units held by 1 owner; 1 free; 1 waiter", "holder@a", "waiter@b", "10.0.0.1:80",
		"three at a time", "It is next. It wants 2, and 1 is free.", "never")
	s.get("/sessions").wants(t, 200, "holder@a", "waiter@b", "attached")
	s.get(sessionURL("/default", holder.ID())).wants(t, 200, "Holds", "slots", "It waits for nothing")
	s.get(sessionURL("/default", waiter.ID())).wants(t, 200, "Waits for", "slots", "It holds nothing")

	s.get(semaphoreURL("/default", "gone")).wants(t, 200, "There is no such semaphore now")
	s.get(sessionURL("/default", 1)).wants(t, 404, "has ended, or never was")
	s.get("/sessions?node=/none").wants(t, 404, "Not found")
	s.get("/sessions?node=none").wants(t, 400, "names no node")
	s.get("/session?id=x").wants(t, 400, "names no session")
	s.get("/semaphore?name=%21").wants(t, 400, "no name that can be read")
	s.get("/nothing").wants(t, 404, "There is no such page")

	size := len(one.body)
	for _, asset := range []string{"style.css", "console.js", "icon.svg"} {
		size += len(s.get("/assets/" + asset).body)
	}
	if size > 60_000 {
		t.Errorf("the first view has %d bytes, more than 60 KB", size)
	}
	if lines := bytes.Count(script, []byte("\n")); lines > 300 {
		t.Errorf("the script has %d lines", lines)
	}
}

// TestPagesOfAList walks through 250 semaphores and 120 sessions, a page at a time.
func TestPagesOfAList(t *testing.T) {
	s := openSite(t, nil)
	holder := s.session()
	for i := range 250 {
		if err := holder.Create(t.Context(), strings.Repeat("n", 1+i%5)+strconv.Itoa(i), 1, nil); err != nil {
			t.Fatal(err)
		}
	}
	for range 119 {
		s.session()
	}
	for _, list := range []struct {
		first, table string
		want         int
	}{{"/semaphores?node=/default", "semaphores", 250}, {"/sessions?node=/default", "sessions", 120}} {
		rows, pages := 0, 0
		for path := list.first; path != ""; pages++ {
			a := s.get(path)
			a.wants(t, 200)
			n := strings.Count(a.body, "<tr data-key=")
			if n > pageSize {
				t.Fatalf("a page has %d rows", n)
			}
			rows += n
			path = a.next(list.table)
		}
		if rows != list.want || pages != (list.want+pageSize-1)/pageSize {
			t.Errorf("%s: %d rows on %d pages, want %d", list.first, rows, pages, list.want)
		}
	}
}

// TestNextPageComes: a stream brings the link to the next page when a list grows beyond a page, and
// takes it away again.
func TestNextPageComes(t *testing.T) {
	s := openSite(t, nil)
	holder := s.session()
	name := func(i int) string { return fmt.Sprintf("n%03d", i) }
	for i := range pageSize {
		if err := holder.Create(t.Context(), name(i), 1, nil); err != nil {
			t.Fatal(err)
		}
	}
	x := s.open("/semaphores?node=/default")
	links := func(want bool) func(string, update) bool {
		return func(_ string, u update) bool {
			return len(u.Tables) == 1 && (u.Tables[0].Next != "") == want && len(u.Tables[0].Order) == pageSize
		}
	}
	x.until("the page without a link", links(false))
	if err := holder.Create(t.Context(), name(pageSize), 1, nil); err != nil {
		t.Fatal(err)
	}
	x.until("the link", links(true))
	if err := holder.Delete(t.Context(), name(pageSize), false); err != nil {
		t.Fatal(err)
	}
	x.until("its end", links(false))
}

// TestNames shows names and data of arbitrary bytes.
func TestNames(t *testing.T) {
	s := openSite(t, nil)
	holder := s.session(client.Description(`<script>alert(1)</script>`))
	names := map[string]string{
		`<script>alert(1)</script>`: `&lt;script&gt;alert(1)&lt;/script&gt;`,
		`"quoted"`:                  `\&#34;quoted\&#34;`,
		"a\u202eb":                  `a\u202eb`,
		"nul\x00\xff":               `nul\x00\xff`,
		"  blank ":                  "  blank ",
		"שלום":                      "שלום",
	}
	big := bytes.Repeat([]byte("<b>x</b>\n"), 1<<20/9)
	for name, shown := range names {
		if _, err := holder.Acquire(t.Context(), name, client.Ephemeral(), client.Data(big)); err != nil {
			t.Fatal(err)
		}
		a := s.get(semaphoreURL("/default", name))
		a.wants(t, 200, shown, `&lt;b&gt;x&lt;/b&gt;\n`, "The first part of 1024 KiB")
		if strings.Contains(a.body, "<b>") || strings.Contains(a.body, "<script>") {
			t.Errorf("%q: data became HTML", name)
		}
		if len(a.body) > 40_000 {
			t.Errorf("%q: the page has %d bytes", name, len(a.body))
		}
		_, rest, _ := strings.Cut(a.body, `href="/data?`)
		link, _, _ := strings.Cut(rest, `"`)
		data := s.get("/data?" + strings.ReplaceAll(link, "&amp;", "&"))
		if data.status != 200 || data.body != string(big) ||
			data.header.Get("Content-Disposition") != `attachment; filename="data.bin"` ||
			data.header.Get("Content-Type") != "application/octet-stream" {
			t.Errorf("%q: download is %d, %d bytes, %v", name, data.status, len(data.body), data.header)
		}
	}
	s.get("/sessions").wants(t, 200, `&lt;script&gt;alert(1)&lt;/script&gt;`)
}

// TestVisibleText: a sentence with a quoted name is shown as it is, and nothing hides in it.
func TestVisibleText(t *testing.T) {
	for text, want := range map[string]string{
		`describe "a\x1b": not found`: `describe "a\x1b": not found`, "grüße, 世界": "grüße, 世界",
		"\x1b[31m\n\u202e\xff": `\x1b[31m\n\u202e\xff`,
	} {
		if got := visibleText(text); got != want {
			t.Errorf("%q is shown as %s", text, got)
		}
	}
	openSite(t, nil).get("/node?node=%2Fnope").wants(t, 404, `Describe node &#34;/nope&#34;: not found`)
}

func TestDefence(t *testing.T) {
	s := openSite(t, func(c *Config) { c.Hosts = []string{"signalbox.example"} })
	host := func(h string) func(*http.Request) { return func(r *http.Request) { r.Host = h } }
	set := func(k, v string) func(*http.Request) { return func(r *http.Request) { r.Header.Set(k, v) } }
	for _, h := range []string{"localhost", "localhost:7073", "127.0.0.1", "127.9.9.9:1", "[::1]:7073",
		"signalbox.example", "SIGNALBOX.example:443"} {
		s.get("/", host(h)).wants(t, 200)
	}
	for _, h := range []string{"evil.example", "evil.example:7073", "localhost.evil.example", "10.0.0.1",
		"127.0.0.1.evil.example", "[::2]"} {
		s.get("/", host(h)).wants(t, 421, "not reached under this name")
		s.get("/assets/console.js", host(h)).wants(t, 421)
		s.get("/live/", host(h)).wants(t, 421)
	}
	for _, path := range []string{"/", "/nodes", "/nothing", "/assets/style.css", "/assets/console.js", "/login",
		"/semaphore?name=%21", "/data"} {
		h := s.get(path).header
		for k, want := range map[string]string{"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff",
			"Referrer-Policy": "no-referrer", "Cache-Control": "no-store"} {
			if h.Get(k) != want {
				t.Errorf("%s: %s is %q", path, k, h.Get(k))
			}
		}
		for k := range h {
			if strings.HasPrefix(k, "Access-Control-") {
				t.Errorf("%s: has %s", path, k)
			}
		}
	}
	s.get("/semaphores?prefix="+strings.Repeat("a", maxURL)).wants(t, 414)
	s.get("/semaphores?prefix="+strings.Repeat("a", 1025)).wants(t, 400, "1025 bytes")
	s.get("/live/", set("Sec-Fetch-Site", "cross-site")).wants(t, 403)
	s.get("/live/nothing").wants(t, 404)
	for _, method := range []string{"PUT", "DELETE", "OPTIONS", "TRACE"} {
		s.get("/", func(r *http.Request) { r.Method = method }).wants(t, 405)
	}
	form := url.Values{"token": {strings.Repeat("x", 20)}}
	for _, origin := range []string{"", "null"} { // what browsers send for pages without a referrer
		s.post("/login", form, set("Origin", origin), set("Sec-Fetch-Site", "")).wants(t, 403, "not sent by a page")
		s.post("/login", form, set("Origin", origin), set("Sec-Fetch-Site", "cross-site")).wants(t, 403)
		s.post("/login", form, set("Origin", origin)).wants(t, 303)
	}
	s.post("/login", form, set("Origin", "https://evil.example")).wants(t, 403)
	s.post("/login", form, set("Sec-Fetch-Site", "cross-site")).wants(t, 403)
	s.post("/login", form, set("Sec-Fetch-Site", "same-site")).wants(t, 403)
	s.post("/login", url.Values{"token": {strings.Repeat("x", maxForm)}}).wants(t, 413)
	s.post("/", nil).wants(t, 404)
}

// TestLive sees an acquire of another client come and go, without a request.
func TestLive(t *testing.T) {
	s := openSite(t, nil)
	x := s.open(semaphoreURL("/default", "lock"))
	x.until("the whole view", func(name string, u update) bool { return name == "view" && u.Now > 0 && len(u.Notes) == 1 })
	holder := s.session(client.Description("holder@a"))
	lease, err := holder.Acquire(t.Context(), "lock", client.Exclusive())
	if err != nil {
		t.Fatal(err)
	}
	x.until("the owner", func(name string, u update) bool {
		keys, ok := keysOf(u, "owners")
		return name == "change" && ok && len(keys) == 1 && len(u.Notes) == 0
	})
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	x.until("the release", func(name string, u update) bool {
		keys, ok := keysOf(u, "owners")
		return name == "change" && ok && len(keys) == 0
	})
	x.close()

	// The whole view again, and a restart of the server.
	x = s.open("/sessions")
	x.until("the whole view", func(name string, u update) bool {
		keys, _ := keysOf(u, "sessions")
		return name == "view" && len(keys) == 1
	})
	s.server.Kill()
	x.until("that it is not live", func(name string, _ update) bool { return name == "lost" })
	s.server.Restart()
	x.until("that it is live", func(name string, _ update) bool { return name == "live" })
}

func TestStreamsAreBounded(t *testing.T) {
	s := openSite(t, nil)
	tabs := make([]*tab, maxStreams)
	for i := range tabs {
		tabs[i] = s.open("/nodes")
	}
	s.get("/live/nodes").wants(t, 503, "64 tabs are live already")
	tabs[0].close()
	for limit := time.Now().Add(time.Minute); time.Now().Before(limit); { // until the console has noticed
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/live/nodes", nil)
		resp, err := s.browser.Do(r)
		if err == nil {
			_ = resp.Body.Close()
		}
		cancel()
		if err == nil && resp.StatusCode == http.StatusOK {
			break
		}
	}
	s.console.views.mu.Lock()
	shared := len(s.console.views.open)
	s.console.views.mu.Unlock()
	if shared != 1 {
		t.Errorf("%d views are read for one page", shared)
	}
}
