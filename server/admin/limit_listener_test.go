package admin

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// listenerKit is a server behind a bounded listener. Requests for /metrics are held up until the
// test lets them go on.
type listenerKit struct {
	t       *testing.T
	address string
	gate    *limitedListener
	held    chan struct{} // one for each request that is held up
	release chan struct{}
}

func newListenerKit(t *testing.T, most int) *listenerKit {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &listenerKit{t: t, address: inner.Addr().String(), gate: LimitListener(inner, most).(*limitedListener),
		held: make(chan struct{}, 1000), release: make(chan struct{})}
	pages := Handler(Config{})
	srv := Server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" && !isReserved(r) {
			k.held <- struct{}{}
			<-k.release
		}
		pages.ServeHTTP(w, r)
	}), slog.New(slog.DiscardHandler))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(k.gate)
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

// probe asks on a connection of its own, as probes do. When it returns, the listener has let go of
// that connection: one that the server has yet to close would take the place of the next.
func (k *listenerKit) probe(from, path string) (code int, text string) {
	k.t.Helper()
	c := k.dial(from)
	k.send(c, path)
	code, text = k.answer(c)
	_ = c.Close()
	address := c.LocalAddr().String()
	await.True(k.t, "the end of the connection from "+address, func() bool {
		k.gate.mu.Lock()
		defer k.gate.mu.Unlock()
		for o := range k.gate.open {
			if o.RemoteAddr().String() == address {
				return false
			}
		}
		return true
	})
	return code, text
}

// holdUp has a request from an address held up.
func (k *listenerKit) holdUp(from string) {
	k.t.Helper()
	k.send(k.dial(from), "/slow")
	select {
	case <-k.held:
	case <-time.After(time.Minute):
		k.t.Fatalf("a request from %s is not served in a place of its own", from)
	}
}

// awaitOpen waits until the gate has as many connections as it was to get.
func (k *listenerKit) awaitOpen(places int) {
	k.t.Helper()
	await.True(k.t, fmt.Sprint(places, " connections"), func() bool {
		k.gate.mu.Lock()
		defer k.gate.mu.Unlock()
		return len(k.gate.open) == places
	})
}

// TestIdleConnections: connections that ask nothing, that never finish a header, and that asked
// once and stay, keep nobody out: each probe is answered, and so is every other page.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	for _, opening := range []string{"", "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ", "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"} {
		k := newListenerKit(t, MaxConnections)
		for range MaxConnections + 12 {
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

// TestNewConnectionEvictsIdle: it is the place of the address that has the most connections, and
// there of the one that waits longest.
func TestNewConnectionEvictsIdle(t *testing.T) {
	t.Parallel()
	k := newListenerKit(t, 8)
	few := k.dial("127.0.0.2")
	k.awaitOpen(1)
	var many []net.Conn
	for n := range 6 {
		many = append(many, k.dial("127.0.0.1"))
		k.awaitOpen(n + 2)
	}
	k.send(many[0], "/") // it has asked since, so that the second one waits longest
	if code, text := k.answer(many[0]); code != http.StatusOK {
		t.Fatalf("%d %s", code, text)
	}
	third := k.dial("127.0.0.3")
	k.awaitOpen(8)
	k.dial("127.0.0.3")
	if code, text := k.answer(many[1]); code != 0 {
		t.Errorf("the one that waits longest was answered %d %s", code, text)
	}
	for _, c := range []net.Conn{few, third, many[0], many[2]} {
		k.send(c, "/")
		if code, text := k.answer(c); code != http.StatusOK {
			t.Errorf("another one lost its place: %d %s", code, text)
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
		for range 2 * reservedConnections {
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
	for range 2 * reservedConnections { // idle ones do not fill the reserve
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
			!strings.HasSuffix(string(said), "\r\n\r\nthis is the address for operators; it takes HTTP") {
			t.Errorf("%q is answered %q", first, said)
		}
	}
}
