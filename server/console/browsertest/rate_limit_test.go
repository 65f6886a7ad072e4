package browsertest

import (
	"context"
	"encoding/base64"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/ratelimit"
	"github.com/signalbox-dev/signalbox/server/console"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// TestRateLimit: the tree shows what clients use while they do, and a resource is opened with the
// keyboard.
func TestRateLimit(t *testing.T) {
	srv := servertest.Start(t, servertest.Shards(1), servertest.RealTime())
	site := startConsole(t, console.Config{Client: client.Config{Endpoints: []string{srv.Addr()}}})
	b := openBrowser(t)
	caller := session(t, dial(t, srv.Addr()), "caller@a")
	for _, path := range []string{"api", "api/search"} {
		if _, err := ratelimit.Create(t.Context(), caller, path, ratelimit.Config{Rate: ratelimit.PerSecond(1000)}); err != nil {
			t.Fatal(err)
		}
	}
	name := func(path string) string {
		return "/limit?node=%2Fdefault&name=" + base64.RawURLEncoding.EncodeToString([]byte(path))
	}
	b.run(b.ctx, "open", chromedp.Navigate(site+name("api")))
	b.live(b.ctx)
	l, err := ratelimit.JoinSession(t.Context(), caller, "api/search")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var calls sync.WaitGroup
	t.Cleanup(func() { cancel(); calls.Wait() })
	for range 20 {
		calls.Go(func() {
			for l.Wait(ctx, 100) == nil {
			}
		})
	}
	cell := func(n string) string {
		return `document.querySelector('#resources [data-key="api/search"] > :nth-child(` + n + `)')`
	}
	b.until(b.ctx, "what is granted, in words and as a bar", cell("3")+`.innerText.startsWith("1000") && `+cell("3")+`.querySelector("rect.held")`)
	b.until(b.ctx, "what is used, and what waits", cell("4")+`.innerText !== "0" && `+cell("6")+`.className.includes("warn")`)
	b.until(b.ctx, "who uses it", rows("sessions", 1))
	b.tabTo("the resource", `document.activeElement.innerText === "api/search" && document.activeElement.closest("#resources")`)
	b.run(b.ctx, "open it", chromedp.KeyEvent(kb.Enter))
	b.until(b.ctx, "the resource alone", `document.querySelector("h1").innerText.includes("api/search") && `+rows("resources", 1))
}
