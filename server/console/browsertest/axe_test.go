package browsertest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/console"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// axe is the script of axe-core, an accessibility checker, at the version and with the hash that
// testdata/axe/package-lock.json has. It is not part of this repository: npm brings it, and the
// test is skipped without it.
func axe(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json"} {
		b, err := os.ReadFile(filepath.Join("testdata", "axe", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	npm := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		t.Skipf("npm does not bring axe-core: %v\n%s", err, out)
	}
	b, err := os.ReadFile(filepath.Join(dir, "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestAxe looks at all pages with axe-core: nothing that it calls serious or critical.
func TestAxe(t *testing.T) {
	form.SkipUntil(t, form.Full, "all pages, in a browser")
	script := axe(t)
	srv := servertest.Start(t, servertest.Shards(2))
	site := startConsole(t, console.Config{Client: client.Config{Endpoints: []string{srv.Addr()}}})
	b := openBrowser(t)
	// The checker measures with inline styles, which the pages' policy forbids.
	b.run(b.ctx, "let the checker in", chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, page.SetBypassCSP, page.SetBypassCSPParams{Enabled: true})
		return err
	}))
	for _, path := range furnish(t, dial(t, srv.Addr())) {
		for width, scheme := range map[int64]string{390: "light", 1440: "dark"} {
			b.run(b.ctx, "open", look(width, 900, scheme), chromedp.Navigate(site+path))
			b.until(b.ctx, "the page", `document.readyState === "complete" && document.querySelector("h1")`)
			b.run(b.ctx, "the checker", chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
				_, err := chromedp.Evaluate[bool](script+`;
					axe.run(document, { resultTypes: ["violations"] }).then(
						(r) => { window.found = r.violations.map((v) => v.impact + " " + v.id + ": " + v.help + " " + v.nodes.map((n) => n.html).slice(0, 3).join(" ")); },
						(e) => { window.found = ["critical " + e]; });
					true`)(ctx, tab)
				return err
			}))
			b.until(b.ctx, "what it says", `window.found`)
			for _, text := range value[[]string](b, b.ctx, `window.found`) {
				if strings.HasPrefix(text, "serious") || strings.HasPrefix(text, "critical") {
					t.Errorf("%s, %d px, %s: %s", path, width, scheme, text)
				} else {
					t.Logf("%s, %d px, %s: %s", path, width, scheme, text)
				}
			}
		}
	}
	b.forget("404")
}
