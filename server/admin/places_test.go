package admin

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server/web"
)

// listenerKit is a server with places for a number of requests, and some connections more. Requests
// for /metrics are held up until the test ends.
type listenerKit struct {
	t       *testing.T
	address string
	held    chan struct{} // one for each request that is held up
	release chan struct{}
}

func newListenerKit(t *testing.T, most int) *listenerKit {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &listenerKit{t: t, address: inner.Addr().String(), held: make(chan struct{}, 1000), release: make(chan struct{})}
	srv := Server(handler(Config{Metrics: func(io.Writer) {
		k.held <- struct{}{}
		<-k.release
	}}, most), slog.New(slog.DiscardHandler))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(web.PlainLimitListener(inner, most+reserved, "full"))
	}()
	t.Cleanup(func() {
		close(k.release)
		_ = srv.Close()
		<-done
	})
	return k
}

// dial opens a connection from an address of this machine. It is closed with the test.
func (k *listenerKit) dial(from string) net.Conn {
	k.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.Dial("tcp", k.address)
	if err != nil {
		k.t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	k.t.Cleanup(func() { _ = c.Close() })
	return c
}

func (k *listenerKit) send(c net.Conn, path string) {
	_, _ = io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

// answer reads one. Code 0 is a connection that was closed without one.
func (k *listenerKit) answer(c net.Conn) (code int, text string) {
	k.t.Helper()
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		k.t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

// probe asks on a connection of its own, as probes do.
func (k *listenerKit) probe(from, path string) (code int, text string) {
	k.t.Helper()
	c := k.dial(from)
	defer c.Close()
	k.send(c, path)
	return k.answer(c)
}

// holdUp has a request from an address held up.
func (k *listenerKit) holdUp(from string) {
	k.t.Helper()
	k.send(k.dial(from), "/metrics")
	select {
	case <-k.held:
	case <-time.After(time.Minute):
		k.t.Fatalf("a request from %s is not served in a place of its own", from)
	}
}

// TestIdleConnections: connections that ask nothing, that never finish a header, and that asked
// once and stay, keep nobody out: each probe is answered, and so is every other page.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	for _, opening := range []string{"", "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ", "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"} {
		k := newListenerKit(t, maxRequests)
		for range maxRequests + reserved + 12 {
			_, _ = io.WriteString(k.dial("127.0.0.1"), opening)
		}
		for n := range 27 {
			for _, page := range []string{"/healthz", "/readyz", "/"} {
				if code, text := k.probe("127.0.0.1", page); code != http.StatusOK {
					t.Fatalf("%q: probe %d of %s beside idle connections: %d %s", opening, n, page, code, text)
				}
			}
		}
	}
}

// TestReserve: beside requests that take all places, or all of an address, health and readiness are
// answered, and other pages are refused with a reason. A client at another address is accepted.
func TestReserve(t *testing.T) {
	t.Parallel()
	k := newListenerKit(t, 8)
	for range 6 { // the share of an address
		k.holdUp("127.0.0.1")
	}
	answered := func(from string) {
		t.Helper()
		for range 2 * reserved {
			for _, page := range []string{"/healthz", "/readyz"} {
				if code, text := k.probe(from, page); code != http.StatusOK {
					t.Fatalf("%s from %s: %d %s", page, from, code, text)
				}
			}
		}
		if code, text := k.probe(from, "/metrics"); code != http.StatusServiceUnavailable ||
			!strings.Contains(text, "/healthz and /readyz") {
			t.Errorf("another page from %s: %d %s", from, code, text)
		}
	}
	answered("127.0.0.1")
	if code, text := k.probe("127.0.0.2", "/"); code != http.StatusOK {
		t.Errorf("another address: %d %s", code, text)
	}
	for _, from := range []string{"127.0.0.2", "127.0.0.3"} {
		k.holdUp(from)
	}
	answered("127.0.0.4")
	for range 2 * reserved { // idle ones do not fill the reserve
		k.dial("127.0.0.5")
	}
	answered("127.0.0.4")
}

// TestNotHTTP: a connection that does not begin with a method is refused at once, with the reason.
func TestNotHTTP(t *testing.T) {
	t.Parallel()
	k := newListenerKit(t, 4)
	for _, first := range []string{"\x00\x00\x00\x20\x01", "\x16\x03\x01"} {
		c := k.dial("127.0.0.1")
		if _, err := io.WriteString(c, first); err != nil {
			t.Fatal(err)
		}
		if said, _ := io.ReadAll(c); !strings.HasPrefix(string(said), "HTTP/1.1 400 Bad Request\r\n") ||
			!strings.HasSuffix(string(said), "\r\n\r\nthis address takes HTTP") {
			t.Errorf("%q is answered %q", first, said)
		}
	}
}
