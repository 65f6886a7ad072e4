package console

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/trust/trusttest"
)

const adminToken = "the-administrator-of-these-tests"

func withAuth() servertest.Option {
	return servertest.Config(func(c *server.Config) { c.Auth, c.AdminToken = true, adminToken })
}

// administrator is a client of the administrator.
func (s *site) administrator() *admin.Client {
	s.t.Helper()
	c, err := client.Open(s.t.Context(), client.Config{Endpoints: []string{s.server.Addr()}, Token: []byte(adminToken)})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.CloseWithoutRelease)
	s.sdk = c
	return admin.New(c)
}

// login logs the browser in.
func (s *site) login(token string) answer {
	s.t.Helper()
	return s.post("/login", url.Values{"token": {token}, "to": {"/sessions?node=%2Fdefault"}})
}

func TestLogin(t *testing.T) {
	var now atomic.Int64
	start := time.Now()
	s := openSite(t, func(c *Config) { c.Now = func() time.Time { return start.Add(time.Duration(now.Load())) } }, withAuth())
	a := s.administrator()
	for _, identity := range []string{"alice", "bob"} {
		if _, err := a.Grant(t.Context(), identity, "/default", "read"); err != nil {
			t.Fatal(err)
		}
	}
	alice, err := a.CreateToken(t.Context(), "", "alice")
	if err != nil {
		t.Fatal(err)
	}

	first := s.get("/sessions?node=/default")
	if first.status != 303 || first.header.Get("Location") != "/login?to="+url.QueryEscape("/sessions?node=/default") {
		t.Fatalf("without a session: %d %v", first.status, first.header)
	}
	s.open("/sessions").denied("You are not logged in any more. Load the page again to log in.")
	s.get("/login?to=/sessions").wants(t, 200, `name="to" value="/sessions"`)
	s.login("").wants(t, 400, "That is not a token")
	s.login("wrong-token-wrong-token").wants(t, 401, "does not know this token")

	in := s.login(alice.Secret)
	cookie := in.header.Get("Set-Cookie")
	if in.status != 303 || in.header.Get("Location") != "/sessions?node=%2Fdefault" ||
		!strings.Contains(cookie, "HttpOnly") || !strings.Contains(cookie, "SameSite=Strict") ||
		strings.Contains(cookie, "Secure") {
		t.Fatalf("login: %d %v", in.status, in.header)
	}
	s.get("/sessions?node=/default").wants(t, 200, "alice", "Log out")
	s.get("/").wants(t, 200, "You may not see the cluster")
	s.get("/sessions?node=/other").wants(t, 403, "Not allowed")

	// Idle for too long.
	now.Add(int64(29 * time.Minute))
	s.get("/sessions").wants(t, 200)
	now.Add(int64(29 * time.Minute))
	s.get("/sessions").wants(t, 200)
	now.Add(int64(31 * time.Minute))
	s.get("/sessions").wants(t, 303)
	s.login(alice.Secret).wants(t, 303)
	s.get("/sessions").wants(t, 200)

	// Logged in once more by the same browser: the first session was the last of its client.
	s.login(alice.Secret).wants(t, 303)
	s.get("/sessions").wants(t, 200)

	// Too old, although it is used.
	for range 25 {
		now.Add(int64(29 * time.Minute))
		s.get("/sessions")
	}
	s.get("/sessions").wants(t, 303)

	// Logged out.
	s.login(alice.Secret).wants(t, 303)
	s.post("/logout", nil, func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }).wants(t, 403)
	s.get("/sessions").wants(t, 200)
	s.post("/logout", nil).wants(t, 303)
	s.get("/sessions").wants(t, 303)
	s.console.viewers.mu.Lock()
	open := len(s.console.viewers.byKey)
	s.console.viewers.mu.Unlock()
	if open != 0 {
		t.Errorf("%d clients are open after everybody left", open)
	}
	s.get("/", func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "signalbox", Value: "guess"}) }).wants(t, 303)
}

// TestOpenTabIsNoUse: a session that nobody uses for half an hour ends, although a tab shows
// changes all the time, and makes its stream again.
func TestOpenTabIsNoUse(t *testing.T) {
	var now atomic.Int64
	start := time.Now()
	s := openSite(t, func(c *Config) { c.Now = func() time.Time { return start.Add(time.Duration(now.Load())) } }, withAuth())
	s.administrator()
	s.login(adminToken).wants(t, 303)
	x := s.open("/sessions")
	x.until("the view", func(name string, _ update) bool { return name == "view" })
	now.Add(int64(29 * time.Minute))
	s.session()
	x.until("a change", func(name string, _ update) bool { return name == "change" })
	x.close()
	x = s.open("/sessions")
	x.until("the view of another stream", func(name string, _ update) bool { return name == "view" })
	now.Add(int64(2 * time.Minute))
	s.session()
	x.until("the end", func(name string, _ update) bool { return name == "denied" })
	s.get("/sessions").wants(t, 303)
}

// TestRightIsTakenAway: a stream ends, and what it showed goes, when the viewer may not see it any
// more.
func TestRightIsTakenAway(t *testing.T) {
	s := openSite(t, nil, withAuth())
	a := s.administrator()
	if _, err := a.Grant(t.Context(), "alice", "/default", "read"); err != nil {
		t.Fatal(err)
	}
	alice, err := a.CreateToken(t.Context(), "alice-1", "alice")
	if err != nil {
		t.Fatal(err)
	}
	s.login(alice.Secret).wants(t, 303)
	x := s.open("/sessions")
	x.until("the view", func(name string, _ update) bool { return name == "view" })
	if err := a.Revoke(t.Context(), "alice", "/default"); err != nil {
		t.Fatal(err)
	}
	x.until("the end", func(name string, _ update) bool { return name == "denied" })
	s.get("/sessions").wants(t, 403)

	if _, err := a.Grant(t.Context(), "alice", "/default", "read"); err != nil {
		t.Fatal(err)
	}
	x = s.open("/sessions")
	x.until("the view", func(name string, _ update) bool { return name == "view" })
	if err := a.RevokeToken(t.Context(), "alice-1"); err != nil {
		t.Fatal(err)
	}
	x.until("the end", func(name string, _ update) bool { return name == "denied" })
	s.get("/sessions").wants(t, 303)
}

// TestShape: a tab learns that its page has other tables or buttons than its document. The document
// and the first event of a stream agree, or the tab would load its page again and again.
func TestShape(t *testing.T) {
	s := openSite(t, nil, withAuth())
	a := s.administrator()
	grant := func(path, right string) {
		t.Helper()
		if _, err := a.Grant(t.Context(), "alice", path, right); err != nil {
			t.Fatal(err)
		}
	}
	grant("/", "read")
	alice, err := a.CreateToken(t.Context(), "", "alice")
	if err != nil {
		t.Fatal(err)
	}
	s.login(alice.Secret).wants(t, 303)
	shapes := make(map[string]string)
	shaped := func(what string, path string, want string) {
		t.Helper()
		s.open(path).until(what, func(name string, u update) bool {
			if name != want {
				return false
			}
			shapes[path] = u.Shape
			s.get(path).wants(t, 200, `data-shape="`+u.Shape+`"`)
			return true
		})
	}
	for _, path := range []string{"/", "/nodes", "/node", "/semaphores", "/sessions", "/rollouts", "/processes", "/audit",
		semaphoreURL("/default", "none")} {
		shaped("the view of "+path, path, "view")
	}
	x := s.open("/")
	x.until("the view", func(name string, u update) bool { return name == "view" })
	other := func(name string, u update) bool { return name == "change" && u.Shape != "" && u.Shape != shapes["/"] }
	grant("/", "admin")
	x.until("the column of actions", other)
	if err := a.Revoke(t.Context(), "alice", "/"); err != nil {
		t.Fatal(err)
	}
	x.until("the page without tables", func(name string, u update) bool { return other(name, u) && len(u.Tables) == 0 })
}

// TestClientsAreBounded: browsers that were closed without a logout make room once their sessions
// are over.
func TestClientsAreBounded(t *testing.T) {
	var now atomic.Int64
	start := time.Now()
	s := openSite(t, func(c *Config) { c.Now = func() time.Time { return start.Add(time.Duration(now.Load())) } }, withAuth())
	a := s.administrator()
	var last admin.Token
	for i := range maxViewers + 1 {
		token, err := a.CreateToken(t.Context(), "", "alice")
		if err != nil {
			t.Fatal(err)
		}
		last = *token
		if i < maxViewers {
			s.login(token.Secret).wants(t, 303)
			s.browser.Jar, _ = cookiejar.New(nil)
		}
	}
	s.login(last.Secret).wants(t, 503, "32 different credentials")
	now.Add(int64(sessionIdle + time.Second))
	s.login(last.Secret).wants(t, 303)
}

func TestSecretLink(t *testing.T) {
	s := openSite(t, func(c *Config) { c.Secret, c.Client.Token = "one-time", []byte(adminToken) }, withAuth())
	s.get("/").wants(t, 403, "Open the link")
	s.open("/").denied("You are not logged in any more. Start `signalbox console` again for a new link.")
	s.get("/data").wants(t, 403)
	s.get("/enter?secret=wrong").wants(t, 403, "used already")
	s.get("/enter?secret=one-time", func(r *http.Request) { r.Method = http.MethodHead }).wants(t, 200)
	s.get("/").wants(t, 403)
	s.get("/enter?secret=one-time").wants(t, 303)
	s.get("/").wants(t, 200, "healthy", "admin")
	s.get("/enter?secret=one-time").wants(t, 403)
	other := *s
	other.browser = newBrowser()
	defer other.browser.CloseIdleConnections()
	other.get("/enter?secret=one-time").wants(t, 403)
	other.get("/").wants(t, 403)
	other.login(adminToken).wants(t, 403, "Nobody logs in here")
	other.get("/").wants(t, 403)
	if _, err := New(Config{Client: client.Config{Endpoints: []string{"127.0.0.1:1"}, Token: []byte("x")}}); err == nil {
		t.Error("a console with credentials and without a secret is made")
	}
}

func TestLocalPath(t *testing.T) {
	for to, want := range map[string]string{
		"/sessions?node=/a": "/sessions?node=/a", "": "/", "//evil.example": "/", "https://evil.example/": "/",
		"/login": "/", "javascript:alert(1)": "/", "/\\evil.example": "/", "sessions": "/",
	} {
		if got := localPath(to); got != want {
			t.Errorf("%q leads to %q, want %q", to, got, want)
		}
	}
}

// TestStrangersDoNotHoldLogins: attempts that the cluster does not answer leave room for one that
// it does.
func TestStrangersDoNotHoldLogins(t *testing.T) {
	var silent atomic.Bool
	s := openSite(t, func(c *Config) {
		c.Client.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			if silent.Load() {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}
	}, withAuth())
	a := s.administrator()
	alice, err := a.CreateToken(t.Context(), "", "alice")
	if err != nil {
		t.Fatal(err)
	}
	silent.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	var strangers sync.WaitGroup
	answers := make(chan int, 2*maxLogins)
	for i := range 2 * maxLogins {
		strangers.Go(func() {
			form := url.Values{"token": {"wrong-token-" + strconv.Itoa(i)}}
			r, _ := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/login", strings.NewReader(form.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set("Sec-Fetch-Site", "same-origin")
			resp, err := s.browser.Do(r)
			if err != nil {
				return
			}
			answers <- resp.StatusCode
			_ = resp.Body.Close()
		})
	}
	for range maxLogins { // all have come by then, and half of them are in the making
		if status := <-answers; status != http.StatusServiceUnavailable {
			t.Errorf("an attempt that made room was answered %d", status)
		}
	}
	silent.Store(false)
	s.login(alice.Secret).wants(t, 303)
	cancel()
	strangers.Wait()
}

// TestHostCookie: over TLS no other host can set the cookie of a session.
func TestHostCookie(t *testing.T) {
	s := openSite(t, func(c *Config) { c.Secure, c.CookieName = true, "signalbox-7073" }, withAuth())
	in := s.login(adminToken)
	cookie := in.header.Get("Set-Cookie")
	if in.status != 303 || !strings.HasPrefix(cookie, "__Host-signalbox-7073=") || !strings.Contains(cookie, "; Secure") ||
		!strings.Contains(cookie, "; Path=/;") || strings.Contains(cookie, "Domain") {
		t.Fatalf("login: %d %v", in.status, in.header)
	}
	s.get("/sessions").wants(t, 200)
	value, _, _ := strings.Cut(strings.TrimPrefix(cookie, "__Host-signalbox-7073="), ";")
	s.browser.Jar, _ = cookiejar.New(nil)
	for name, want := range map[string]int{"signalbox-7073": 303, "__Host-signalbox-7073": 200} {
		s.get("/sessions", func(r *http.Request) { r.AddCookie(&http.Cookie{Name: name, Value: value}) }).wants(t, want)
	}
}

// TestOwnTokenReplaced: the console of one user asks for its token again when that is revoked, and
// its pages stay open.
func TestOwnTokenReplaced(t *testing.T) {
	var token atomic.Pointer[string]
	first := adminToken
	token.Store(&first)
	s := openSite(t, func(c *Config) {
		c.Secret = "the-secret-of-the-link"
		c.Client.GetToken = func(context.Context) ([]byte, error) { return []byte(*token.Load()), nil }
	}, withAuth())
	s.get("/").wants(t, 403, "")
	s.get("/enter?secret=the-secret-of-the-link")
	s.get("/nodes").wants(t, 200, "/default")

	operator := s.administrator()
	next, err := operator.CreateToken(t.Context(), "next", "admin")
	if err != nil {
		t.Fatal(err)
	}
	token.Store(&next.Secret)
	if err := operator.RevokeToken(t.Context(), "admin"); err != nil && !errors.Is(err, client.ErrUnauthenticated) {
		t.Fatal(err)
	}
	s.get("/nodes").wants(t, 200, "/default")
}

// TestLoginOfAPlatform: a login by a platform's token works for the token's life, and the next
// token logs in again.
func TestLoginOfAPlatform(t *testing.T) {
	t.Parallel()
	s := openSite(t, nil, withAuth())
	issuer := trusttest.New(t)
	trusttest.Trust(t, s.administrator(), issuer)
	s.login(adminToken)
	s.get("/").wants(t, 200, "Trusts", trusttest.Name, "sub=* -&gt; ci", "key-1")
	for i := range 3 {
		// It is as long as they are: Kubernetes' have a kilobyte.
		token := issuer.Token(t, "job", 2*time.Second, map[string]any{"jti": fmt.Sprint(i), "long": strings.Repeat("x", 3000)})
		if in := s.login(token); in.status != 303 || in.header.Get("Set-Cookie") == "" {
			t.Fatalf("login %d: %d %v", i, in.status, in.header)
		}
		s.get("/sessions?node=/default").wants(t, 200)
		if strings.Contains(s.get("/").body, trusttest.Name) {
			t.Error("the overview lists trusts to somebody without rights on /")
		}
		await.True(t, "the end of the login", func() bool {
			a := s.get("/sessions?node=/default")
			return a.status == 303 && strings.HasPrefix(a.header.Get("Location"), "/login")
		})
	}
}
