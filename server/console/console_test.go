package console

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, // gnet's pool of goroutines lives as long as the program
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"))
}

// site is a console with its cluster, as a browser sees it.
type site struct {
	t       testing.TB
	server  *servertest.Server
	console *Console
	url     string
	browser *http.Client
	sdk     *client.Client // of a program beside the console
}

func openSite(t testing.TB, change func(*Config), opts ...servertest.Option) *site {
	t.Helper()
	opts = append([]servertest.Option{servertest.Shards(2)}, opts...)
	s := &site{t: t, server: servertest.Start(t, opts...)}
	s.serve(change, s.server.Addr())
	return s
}

// serve starts a console of a cluster.
func (s *site) serve(change func(*Config), endpoints ...string) {
	s.t.Helper()
	cfg := Config{Client: client.Config{Endpoints: endpoints}, Refresh: minRefresh}
	if change != nil {
		change(&cfg)
	}
	var err error
	if s.console, err = New(cfg); err != nil {
		s.t.Fatal(err)
	}
	web := httptest.NewUnstartedServer(nil)
	web.Config = Server(s.console, s.console.cfg.Log)
	web.Listener = LimitListener(web.Listener)
	if cfg.Secure {
		web.EnableHTTP2 = true
		web.StartTLS()
	} else {
		web.Start()
	}
	s.url = web.URL
	s.browser = newBrowser()
	s.t.Cleanup(func() {
		s.browser.CloseIdleConnections()
		s.console.Close()
		web.Close()
	})
}

func newBrowser() *http.Client {
	jar, _ := cookiejar.New(nil)
	insecure := &tls.Config{InsecureSkipVerify: true} // the certificate is the test's own
	return &http.Client{
		Jar: jar, Transport: &http.Transport{TLSClientConfig: insecure, ForceAttemptHTTP2: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// program is a client of the cluster that no console has to do with.
func (s *site) program() *client.Client {
	s.t.Helper()
	if s.sdk == nil {
		var err error
		if s.sdk, err = client.Dial(s.t.Context(), s.server.Addr()); err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(s.sdk.CloseWithoutRelease)
	}
	return s.sdk
}

func (s *site) session(opts ...client.SessionOption) *client.Session {
	s.t.Helper()
	x, err := s.program().Session(s.t.Context(), "/default", opts...)
	if err != nil {
		s.t.Fatal(err)
	}
	return x
}

type answer struct {
	status int
	header http.Header
	body   string
}

func (s *site) do(r *http.Request) answer {
	s.t.Helper()
	resp, err := s.browser.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(b)}
}

func (s *site) get(path string, change ...func(*http.Request)) answer {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range change {
		f(r)
	}
	return s.do(r)
}

// post sends a form as a page of the console would.
func (s *site) post(path string, form url.Values, change ...func(*http.Request)) answer {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", s.url)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	for _, f := range change {
		f(r)
	}
	return s.do(r)
}

func (a answer) wants(t testing.TB, status int, texts ...string) {
	t.Helper()
	if a.status != status {
		t.Errorf("answered %d, want %d: %.300s", a.status, status, a.body)
	}
	for _, text := range texts {
		if !strings.Contains(a.body, text) {
			t.Errorf("no %q in the page:\n%s", text, a.body)
		}
	}
}

// next is the address of the next page of a table; empty: this is the last one.
func (a answer) next(table string) string {
	_, rest, _ := strings.Cut(a.body, `data-next="`+table+`" rel="next" href="`)
	path, _, _ := strings.Cut(rest, `"`)
	return strings.ReplaceAll(path, "&amp;", "&")
}

// tab is an open stream.
type tab struct {
	t      testing.TB
	resp   *http.Response
	events chan event
	cancel context.CancelFunc
}

type event struct {
	name string
	data []byte
}

func (s *site) open(path string) *tab {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/live"+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := s.browser.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	x := &tab{t: s.t, resp: resp, events: make(chan event, 100), cancel: cancel}
	s.t.Cleanup(x.close)
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(resp.Body)
		close(x.events)
		s.t.Fatalf("stream is answered %d: %s", resp.StatusCode, b)
	}
	go func() {
		defer close(x.events)
		lines := bufio.NewReader(resp.Body)
		name := ""
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			line = bytes.TrimSuffix(line, []byte("\n"))
			if v, ok := bytes.CutPrefix(line, []byte("event: ")); ok {
				name = string(v)
			}
			if v, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
				x.events <- event{name, bytes.Clone(v)}
			}
		}
	}()
	return x
}

func (x *tab) close() {
	x.cancel()
	_ = x.resp.Body.Close()
	for range x.events {
	}
}

// until waits for an event that ok accepts.
func (x *tab) until(what string, ok func(name string, u update) bool) {
	x.t.Helper()
	limit := time.After(time.Minute)
	for {
		select {
		case e, open := <-x.events:
			if !open {
				x.t.Fatalf("the stream ended before %s", what)
			}
			var u update
			if err := json.Unmarshal(e.data, &u); err != nil {
				x.t.Fatalf("%s %s: %v", e.name, e.data, err)
			}
			if ok(e.name, u) {
				return
			}
		case <-limit:
			x.t.Fatalf("%s did not come", what)
		}
	}
}

// denied wants the stream to say this, and nothing else.
func (x *tab) denied(text string) {
	x.t.Helper()
	e := <-x.events
	var last said
	if err := json.Unmarshal(e.data, &last); err != nil || e.name != "denied" || last.Text != text {
		x.t.Errorf("the stream says %s %s, want that it is denied: %q", e.name, e.data, text)
	}
	if e, more := <-x.events; more {
		x.t.Errorf("the stream goes on with %s %s", e.name, e.data)
	}
}

// keysOf are the keys of a table's rows, if the update has the table.
func keysOf(u update, table string) (keys []string, ok bool) {
	for _, t := range u.Tables {
		if t.ID == table {
			return t.Order, true
		}
	}
	return nil, false
}

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
		_, _ = waiter.Acquire(ctx, "slots", client.Count(2), client.OnAccepted(func(token uint64) { queued <- token }))
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
