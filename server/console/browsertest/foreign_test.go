package browsertest

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/console"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// TestForeignPage: a page of another origin on the same host, to which browsers send the cookie,
// reads nothing of the console, does nothing there, and does not show it in a frame.
func TestForeignPage(t *testing.T) {
	const secret = "the-administrator-of-these-tests"
	srv := servertest.Start(t, servertest.Shards(1), servertest.Config(func(c *server.Config) { c.Auth, c.AdminToken = true, secret }))
	site := startConsole(t, console.Config{Client: client.Config{Endpoints: []string{srv.Addr()}}})
	evil := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<!DOCTYPE html><title>evil</title><link rel=icon href=data:,><p>evil")
	}))
	evil.TLS = &tls.Config{Certificates: []tls.Certificate{certificate(t)}}
	evil.StartTLS()
	t.Cleanup(evil.Close)

	b := openBrowser(t)
	b.run(b.ctx, "log in", chromedp.Navigate(site+"/login?to=%2Fsessions"))
	b.until(b.ctx, "the form", `document.activeElement.id === "token"`)
	b.run(b.ctx, "type the token", chromedp.KeyEvent(secret+kb.Enter))
	b.live(b.ctx)

	b.run(b.ctx, "the foreign page", chromedp.Navigate(evil.URL))
	b.until(b.ctx, "the foreign page", `document.title === "evil"`)
	attack := func(what, script, want string) {
		t.Helper()
		value[bool](b, b.ctx, `window.came = ""; `+script+`; true`)
		b.until(b.ctx, what, `window.came`)
		if got := value[string](b, b.ctx, `window.came`); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	at := `"` + site
	fetched := `.then(() => { window.came = "answered"; }, () => { window.came = "refused"; })`
	attack("a page is read", `fetch(`+at+`/sessions", { credentials: "include" })`+fetched, "refused")
	attack("the script is read", `fetch(`+at+`/assets/console.js", { mode: "no-cors" })`+fetched, "refused")
	attack("a form is sent",
		`fetch(`+at+`/logout", { method: "POST", credentials: "include", `+
			`headers: { "Content-Type": "application/x-www-form-urlencoded" } })`+fetched,
		"refused")
	attack("a stream is opened",
		`new EventSource(`+at+`/live/sessions", { withCredentials: true }).onerror = (e) => { e.target.close(); window.came = "refused"; }`,
		"refused")
	attack("a frame shows it", `const f = document.createElement("iframe"); f.src = `+at+`/sessions"; f.onload = () => {
		try { window.came = f.contentWindow.location.href; } catch { window.came = f.contentWindow.length === 0 ? "refused" : "shown"; } };
		document.body.append(f)`, "refused")
	b.mu.Lock()
	if !strings.Contains(strings.Join(b.said, "\n"), "frame-ancestors") {
		t.Errorf("the browser did not refuse the frame: %q", b.said)
	}
	b.mu.Unlock()
	value[bool](b, b.ctx,
		`(() => { const f = document.createElement("form"); f.method = "post"; f.action = `+at+`/logout"; `+
			`document.body.append(f); f.submit(); return true; })()`)
	b.until(b.ctx, "the refusal", `document.body?.innerText.includes("was not sent by a page of this console")`)

	b.run(b.ctx, "the console", chromedp.Navigate(site+"/sessions"))
	b.live(b.ctx) // nobody has been logged out
	b.forget("403", "CORS", "ERR_FAILED", "ERR_BLOCKED", "frame-ancestors", "EventSource", "MIME type")
}
