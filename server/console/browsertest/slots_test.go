package browsertest

import (
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/console"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// TestSlots: tiles follow what other clients hold, and a slot is drained with the keyboard alone.
func TestSlots(t *testing.T) {
	srv := servertest.Start(t, servertest.Shards(1))
	site := startConsole(t, console.Config{Client: client.Config{Endpoints: []string{srv.Addr()}}})
	b := openBrowser(t)
	holder := session(t, dial(t, srv.Addr()), "trainer@a")
	err := holder.Create(t.Context(), "gpus", 3, nil, client.SemaphoreConfig{Policy: client.PolicyPriority, Numbered: true, MaxHold: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	b.run(b.ctx, "open", chromedp.Navigate(site+semaphore("gpus")))
	b.live(b.ctx)
	tile := func(slot string) string { return `document.querySelector('#slots [data-key="` + slot + `"]')` }
	lease, err := holder.Acquire(t.Context(), "gpus", client.Slots("1"))
	if err != nil {
		t.Fatal(err)
	}
	b.until(b.ctx, "the holder", tile("1")+`.className.startsWith("held") && `+tile("1")+`.innerText.includes("trainer@a")`)
	b.until(b.ctx, "the time that is left, as it ticks", `/59m \d\ds/.test(`+tile("1")+`.innerText)`)
	wide := value[bool](b, b.ctx, tile("0")+`.getBoundingClientRect().top === `+tile("1")+`.getBoundingClientRect().top`)
	if !wide {
		t.Error("slots are not beside each other")
	}
	b.tabTo("the drain of slot 1", `document.activeElement.innerText === "Drain" && document.activeElement.href.includes("slot=1")`)
	b.run(b.ctx, "press it", chromedp.KeyEvent(kb.Enter))
	b.until(b.ctx, "the dry run", `document.getElementById("reason")`)
	b.tabTo("the reason", `document.activeElement.id === "reason"`)
	b.run(b.ctx, "fill in", chromedp.KeyEvent("its fan is broken"+kb.Tab+"1"+kb.Tab+kb.Enter))
	b.until(b.ctx, "the end", `document.querySelector("#notes .good")?.innerText === "The slot is drained."`)
	b.run(b.ctx, "back", chromedp.Navigate(site+semaphore("gpus")))
	b.live(b.ctx)
	b.until(b.ctx, "the drain", tile("1")+`.className === "draining"`)
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.until(b.ctx, "the slot without a holder", tile("1")+`.className.startsWith("drained")`)
	b.until(b.ctx, "the hold that ended", rows("history", 1)+` && document.getElementById("history").innerText.includes("trainer@a")`)
	b.until(b.ctx, "the hold over time", `document.querySelector('#timeline [data-key="1"] rect.held title')?.textContent.startsWith("trainer@a, token ")`)
}
