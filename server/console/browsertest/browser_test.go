package browsertest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"math/big"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/console"
)

// limit bounds what a test waits for. Nothing is asserted about how long it takes.
const limit = time.Minute

// startConsole serves a console over TLS, for HTTP/2, and returns its address.
func startConsole(t *testing.T, cfg console.Config) string {
	t.Helper()
	cfg.Secure = true
	c, err := console.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := console.Server(c, slog.New(slog.DiscardHandler))
	srv.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate(t)}, MinVersion: tls.VersionTLS12}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.ServeTLS(console.LimitListener(l), "", "")
	}()
	t.Cleanup(func() {
		c.Close()
		_ = srv.Close()
		<-served
	})
	return "https://" + l.Addr().String()
}

func certificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, about, about, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// step is something that is done in a tab.
type step = chromedp.Action[chromedp.Void]

// browser is a Chromium with an empty profile.
type browser struct {
	t   *testing.T
	ctx context.Context // of its first tab

	mu   sync.Mutex
	said []string // errors in the console, exceptions, refused loads, dialogs
}

func openBrowser(t *testing.T) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("there is no chromium on this machine: apt-get install chromium")
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.Flag("ignore-certificate-errors", true), chromedp.UserDataDir(filepath.Join(t.TempDir(), "profile")),
		chromedp.WindowSize(1280, 900))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	b := &browser{t: t}
	ctx, cancel := chromedp.NewContext(allocator)
	b.ctx = ctx
	if err := b.listen(ctx); err != nil {
		cancel()
		stop()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx)
		stop()
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, text := range b.said {
			t.Errorf("the browser says: %s", text)
		}
	})
	return b
}

// listen opens the context's tab and notes what goes wrong in it.
func (b *browser) listen(ctx context.Context) error {
	err := chromedp.Listen(ctx, func(ev any) {
		text := ""
		switch ev := ev.(type) {
		case *runtime.EventExceptionThrown:
			text = "exception: " + ev.ExceptionDetails.Text
		case *runtime.EventConsoleAPICalled:
			if ev.Type == runtime.ConsoleAPICalledTypeError || ev.Type == runtime.ConsoleAPICalledTypeWarning {
				text = "console: " + string(ev.Type)
				for _, a := range ev.Args {
					text += " " + string(a.Value)
				}
			}
		case *cdplog.EventEntryAdded:
			if ev.Entry.Level == cdplog.EntryLevelError || ev.Entry.Source == cdplog.EntrySourceSecurity {
				text = "log: " + ev.Entry.Text + " " + ev.Entry.URL
			}
		case *page.EventJavascriptDialogOpening:
			text = "dialog: " + ev.Message
			go func() {
				_ = chromedp.Do(ctx, chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
					_, err := cdp.Call(ctx, tab, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{})
					return err
				}))
			}()
		}
		if text != "" {
			b.mu.Lock()
			b.said = append(b.said, text)
			b.mu.Unlock()
		}
	})
	if err != nil {
		return err
	}
	return chromedp.Do(ctx, chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, cdplog.Enable, cdp.Empty{})
		return err
	}))
}

// forget drops what the browser has said so far that contains one of the texts: what the test
// itself brought about.
func (b *browser) forget(texts ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	kept := b.said[:0]
	for _, s := range b.said {
		expected := false
		for _, text := range texts {
			expected = expected || strings.Contains(s, text)
		}
		if !expected {
			kept = append(kept, s)
		}
	}
	b.said = kept
}

// tab opens one more tab.
func (b *browser) tab() context.Context {
	b.t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx)
	b.t.Cleanup(cancel)
	if err := b.listen(ctx); err != nil {
		b.t.Fatal(err)
	}
	return ctx
}

func (b *browser) run(ctx context.Context, what string, steps ...step) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		shown := ""
		again, done := context.WithTimeout(b.ctx, 5*time.Second)
		defer done()
		shown, _ = chromedp.Run(again, chromedp.Evaluate[string](`document.body.innerText`))
		b.t.Fatalf("%s: %v; the first tab shows:\n%s", what, err, shown)
	}
}

// until waits until a JavaScript expression is true. The pages' policy forbids the way in which
// chromedp polls within a page, so this asks from outside.
func (b *browser) until(ctx context.Context, what, expression string) {
	b.t.Helper()
	b.run(ctx, what, chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		for {
			is, _ := chromedp.Evaluate[bool](`!!(`+expression+`)`)(ctx, tab) // a page that is being left fails; ask the next one
			if is || ctx.Err() != nil {
				return ctx.Err()
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}))
}

// live waits until the tab has its stream.
func (b *browser) live(ctx context.Context) {
	b.t.Helper()
	b.until(ctx, "the stream",
		`document.body.dataset.live !== undefined && document.getElementById("live").hidden && document.body.dataset.state === "live"`)
}

// value is what a JavaScript expression has for a value.
func value[T any](b *browser, ctx context.Context, expression string) (v T) {
	b.t.Helper()
	b.run(ctx, expression, chromedp.Func(func(ctx context.Context, tab *chromedp.Target) (err error) {
		v, err = chromedp.Evaluate[T](expression)(ctx, tab)
		return err
	}))
	return v
}

// look sets the width of the window and the colour scheme.
func look(width, height int64, scheme string) step {
	return chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		size := emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1}
		if _, err := cdp.Call(ctx, tab, emulation.SetDeviceMetricsOverride, size); err != nil {
			return err
		}
		media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}
		_, err := cdp.Call(ctx, tab, emulation.SetEmulatedMedia, media)
		return err
	})
}

func dial(t *testing.T, addr string) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseWithoutRelease)
	return c
}

func session(t *testing.T, c *client.Client, description string) *client.Session {
	t.Helper()
	s, err := c.Session(t.Context(), "/default", client.Description(description))
	if err != nil {
		t.Fatal(err)
	}
	return s
}
