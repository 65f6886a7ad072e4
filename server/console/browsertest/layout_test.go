package browsertest

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/console"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// TestNavigationFits: the parts of the console and the identity stand in one row on 1,280 pixels, and
// take little of a phone; rows of a table leave out what is empty there.
func TestNavigationFits(t *testing.T) {
	srv := servertest.Start(t, servertest.Shards(1))
	site := startConsole(t, console.Config{Client: client.Config{Endpoints: []string{srv.Addr()}}})
	holder := session(t, dial(t, srv.Addr()), "holder@a")
	if _, err := holder.Acquire(t.Context(), "lock", client.Exclusive()); err != nil {
		t.Fatal(err)
	}
	b := openBrowser(t)
	b.run(b.ctx, "open", look(1280, 900, "light"), chromedp.Navigate(site+semaphore("lock")))
	b.until(b.ctx, "the owner", rows("owners", 1))
	tops := `[...document.querySelectorAll("header.top > nav:not(.inner) a, header.top .who span")].map((e) => Math.round(e.getBoundingClientRect().bottom))`
	if spread := value[int64](b, b.ctx, `(() => { const t = `+tops+`; return t.length < 8 ? 999 : Math.max(...t) - Math.min(...t); })()`); spread > 24 {
		t.Errorf("the navigation is not one row: its parts end %d pixels apart", spread)
	}
	if data := value[string](b, b.ctx, `getComputedStyle(document.querySelector("#owners td.none")).display`); data == "none" {
		t.Error("a wide page leaves out an empty cell")
	}
	b.run(b.ctx, "a phone", look(400, 900, "dark"))
	if height := value[int64](b, b.ctx, `Math.round(document.querySelector("header.top").getBoundingClientRect().height)`); height > 160 {
		t.Errorf("the head takes %d pixels of a phone", height)
	}
	if data := value[string](b, b.ctx, `getComputedStyle(document.querySelector("#owners td.none")).display`); data != "none" {
		t.Errorf("a phone shows an empty cell: %s", data)
	}
	if height := value[int64](b, b.ctx, `Math.round(document.querySelector("#owners tbody tr").getBoundingClientRect().height)`); height > 110 {
		t.Errorf("a row of an owner takes %d pixels", height)
	}
}
