package browsertest

import (
	"encoding/base64"
	"strconv"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/client/discovery"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/console"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// tabTo presses Tab until an expression about the focused element is true.
func (b *browser) tabTo(what, is string) {
	b.t.Helper()
	for range 80 {
		b.run(b.ctx, "tab", chromedp.KeyEvent(kb.Tab))
		if value[bool](b, b.ctx, `!!(`+is+`)`) {
			return
		}
	}
	b.t.Fatalf("Tab does not lead to %s", what)
}

// TestService drains a member with the keyboard alone, by an identity that may use the node and no
// more. Its page becomes that of a service with the first member, and follows what members say.
func TestService(t *testing.T) {
	const secret = "the-administrator-of-these-tests"
	srv := servertest.Start(t, servertest.Shards(1), servertest.Config(func(c *server.Config) { c.Auth, c.AdminToken = true, secret }))
	site := startConsole(t, console.Config{Client: client.Config{Endpoints: []string{srv.Addr()}}})
	c, err := client.Open(t.Context(), client.Config{Endpoints: []string{srv.Addr()}, Token: []byte(secret)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseWithoutRelease)
	a := admin.New(c)
	if _, err := a.Grant(t.Context(), "carol", "/default", "use"); err != nil {
		t.Fatal(err)
	}
	carol, err := a.CreateToken(t.Context(), "", "carol")
	if err != nil {
		t.Fatal(err)
	}
	b := openBrowser(t)
	b.run(b.ctx, "log in", chromedp.Navigate(site+"/login"), chromedp.SendKeys("#token", carol.Secret+kb.Enter))
	b.until(b.ctx, "the overview", `location.pathname === "/"`)
	b.run(b.ctx, "open", chromedp.Navigate(site+semaphore("api")))
	b.live(b.ctx)
	b.forget("404") // there is no member yet
	member := session(t, c, "api@sas")
	r, err := discovery.Register(t.Context(), member, "api", discovery.Endpoint{Addr: "10.0.0.1:80", Zone: "zone-a"})
	if err != nil {
		t.Fatal(err)
	}
	b.until(b.ctx, "the service", rows("members", 1)+` && document.querySelector("h1").innerText.startsWith("Service")`)
	b.live(b.ctx)

	b.tabTo("the drain", `document.activeElement.innerText === "Drain"`)
	b.run(b.ctx, "press it", chromedp.KeyEvent(kb.Enter))
	b.until(b.ctx, "the dry run", `document.getElementById("reason") && document.body.innerText.includes("10.0.0.1:80")`)
	if r.State() != discovery.Ready {
		t.Fatal("the member drains before anybody has confirmed it")
	}
	b.tabTo("the reason", `document.activeElement.id === "reason"`)
	b.run(b.ctx, "fill in", chromedp.KeyEvent("the disk is slow"+kb.Tab+"api"+kb.Tab+kb.Enter))
	b.until(b.ctx, "the end", `document.querySelector("#notes .good")?.innerText.startsWith("The member is asked to drain.")`)
	b.run(b.ctx, "open", chromedp.Navigate(site+semaphore("api")))
	b.until(b.ctx, "the state and its reason", `document.getElementById("members").innerText.includes("drained by carol: the disk is slow")`)
	if r.State() != discovery.Draining {
		t.Error("the member does not drain")
	}
	if !form.Is(form.Full) {
		return
	}
	b.run(b.ctx, "open the list", chromedp.Navigate(site+"/services?node=%2Fdefault"))
	b.live(b.ctx)
	b.until(b.ctx, "who is not ready", `document.getElementById("services").innerText.includes("1 draining")`)
	undrain := "/action/undrain-member?node=%2Fdefault&name=" + base64.RawURLEncoding.EncodeToString([]byte("api")) +
		"&session=" + strconv.FormatUint(member.ID(), 10)
	b.run(b.ctx, "take it back", chromedp.Navigate(site+undrain), chromedp.SendKeys("#reason", "a new disk"),
		chromedp.SendKeys("#confirm", "api"+kb.Enter))
	b.until(b.ctx, "the end", `document.querySelector("#notes .good")`)
	b.run(b.ctx, "open the list", chromedp.Navigate(site+"/services?node=%2Fdefault"))
	b.until(b.ctx, "that all are ready", `document.getElementById("services").innerText.includes("1 of 1")`)
}
