package console

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// deadlines is a response that notes its write deadline.
type deadlines struct {
	*httptest.ResponseRecorder
	write  time.Time
	bounds int // writes with a deadline
}

func (d *deadlines) SetReadDeadline(time.Time) error    { return nil }
func (d *deadlines) SetWriteDeadline(t time.Time) error { d.write = t; return nil }

func (d *deadlines) Write(b []byte) (int, error) {
	if !d.write.IsZero() {
		d.bounds++
	}
	return d.ResponseRecorder.Write(b)
}

// TestQuietStream: each write has a deadline, and a stream without writes has none. HTTP/2 resets a
// stream at its deadline also if nothing is written.
func TestQuietStream(t *testing.T) {
	d := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	s := &stream{w: d, control: http.NewResponseController(d)}
	if err := s.begin(); err != nil {
		t.Fatal(err)
	}
	if err := s.event("live", struct{}{}); err != nil {
		t.Fatal(err)
	}
	if d.bounds != 2 || !d.write.IsZero() {
		t.Errorf("%d of 2 writes had a deadline, and the quiet stream has %s", d.bounds, d.write)
	}
}

// TestStaleCookie: a cookie of a console that was restarted does not end streams where nobody logs
// in.
func TestStaleCookie(t *testing.T) {
	s := openSite(t, nil)
	u, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	s.browser.Jar.SetCookies(u, []*http.Cookie{{Name: "signalbox", Value: "of the console before"}})
	x := s.open("/sessions")
	x.until("the view", func(name string, _ update) bool { return name == "view" })
	s.session()
	x.until("the new session", func(name string, u update) bool {
		if name == "denied" {
			t.Fatal("the stream was ended")
		}
		keys, _ := keysOf(u, "sessions")
		return len(keys) == 1
	})
}

// TestViewOfAnotherClient: who logs in again does not join the view of the client that was closed.
func TestViewOfAnotherClient(t *testing.T) {
	c, err := New(Config{Client: client.Config{Endpoints: []string{"127.0.0.1:1"}, Name: "signalbox-cli/1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.viewers.cfg.Name != protocol.ConsoleClient {
		t.Errorf("it calls itself %q: audit lines would not have via=console", c.viewers.cfg.Name)
	}
	read := func(context.Context, *viewer, url.Values) (*page, error) { return &page{}, nil }
	open := func(v *viewer) *view {
		w, ok := c.watch(v, "/", nil, read)
		if !ok {
			t.Fatal("no view")
		}
		return w
	}
	before, after := &viewer{}, &viewer{}
	a, b, same := open(before), open(after), open(before)
	if a == b || a != same {
		t.Errorf("views are shared by %p and %p, and by tabs of one viewer: %v", a, b, a == same)
	}
	for _, w := range []*view{a, b, same} {
		c.unwatch(w)
	}
	if len(c.views.open) != 0 || c.views.streams != 0 {
		t.Errorf("%d views and %d streams are left", len(c.views.open), c.views.streams)
	}
}

// TestLeaderChangesUnderAStream: the leader of a semaphore's shard dies while a tab shows the
// semaphore. The same stream goes on.
func TestLeaderChangesUnderAStream(t *testing.T) {
	cluster := servertest.StartCluster(t, 3, servertest.Shards(1))
	s := &site{t: t}
	s.serve(nil, cluster.Addrs()...)
	c, err := client.Dial(t.Context(), cluster.Addrs()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseWithoutRelease)
	s.sdk = c
	holder := s.session(client.Description("holder@a"))
	x := s.open(semaphoreURL("/default", "lock"))
	x.until("the whole view", func(name string, _ update) bool { return name == "view" })
	cluster.Kill(cluster.Leader(cluster.Shards()[0]))
	lease, err := holder.Acquire(t.Context(), "lock", client.Exclusive())
	if err != nil {
		t.Fatal(err)
	}
	owners := func(n int) func(string, update) bool {
		return func(name string, u update) bool {
			keys, ok := keysOf(u, "owners")
			return name == "change" && ok && len(keys) == n
		}
	}
	x.until("the owner", owners(1))
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	x.until("the release", owners(0))
}
