package console

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"sync/atomic"
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

// TestNextRead: reads begin at multiples of the time between them, whatever view they are of; not
// more than four begin in a second, and at most half of the time is spent reading.
func TestNextRead(t *testing.T) {
	epoch := time.Now()
	at := func(ms int) time.Time { return epoch.Add(time.Duration(ms) * time.Millisecond) }
	for _, x := range []struct{ last, earliest, pause, want int }{
		{0, 10, 500, 500}, {500, 510, 500, 1000}, {500, 999, 500, 1000}, {500, 1001, 500, 1500}, {500, 1000, 500, 1000},
		{790, 795, 500, 1500}, {700, 705, 500, 1000}, {800, 810, 800, 1600}, {1500, 1510, 800, 2400}, {250, 255, 250, 500},
	} {
		if got := nextRead(epoch, at(x.last), at(x.earliest), time.Duration(x.pause)*time.Millisecond); !got.Equal(at(x.want)) {
			t.Errorf("%+v: the next read begins at %s", x, got.Sub(epoch))
		}
	}
}

// TestSameViews: a view tells pages apart by all that its tabs show.
func TestSameViews(t *testing.T) {
	page1 := func(change func(*page)) viewState {
		p := &page{
			Figure: &figure{Bar: bar{Label: "l", Parts: []barPart{{From: 0, Size: 1, Kind: "held"}}},
				Text: "t"}, Notes: []note{{Tone: "good", Text: "n"}},
			Facts: []fact{{"k", "label", cell{Text: "x", Bar: &bar{Label: "l"}}}},
			Tables: []table{{ID: "a", Rows: []row{{Key: "1",
				Cells: []cell{{Text: "x", Bar: &bar{Label: "l", Parts: []barPart{{From: 0, Size: 1, Kind: "held"}}}}}}}}},
		}
		change(p)
		return viewState{page: p}
	}
	same := page1(func(*page) {})
	if none := (&viewState{}); none.same(same.page, nil) || !same.same(page1(func(*page) {}).page, nil) {
		t.Error("a view that was not read is a page, or a page is not itself")
	}
	for i, change := range []func(*page){
		func(p *page) { p.Figure = nil }, func(p *page) { p.Figure.Text = "u" }, func(p *page) { p.Figure.Bar.Parts[0].Size = 2 },
		func(p *page) { p.Notes = nil }, func(p *page) { p.Facts[0].Cell.Text = "y" }, func(p *page) { p.Facts[0].Cell.Bar = nil },
		func(p *page) { p.Tables = nil }, func(p *page) { p.Tables[0].Count = "2" }, func(p *page) { p.Tables[0].Empty = "e" },
		func(p *page) { p.Tables[0].Rows[0].Key = "2" }, func(p *page) { p.Tables[0].Rows[0].Tone = "head" },
		func(p *page) { p.Tables[0].Rows[0].Cells[0].Bar.Parts[0].Kind = "over" }, func(p *page) { p.Tables[0].Rows[0].Cells[0].At = 1 },
	} {
		if x := page1(change); same.same(x.page, nil) || x.same(same.page, nil) {
			t.Errorf("change %d is not seen", i)
		}
	}
	broken := viewState{err: client.ErrUnreachable}
	if same.same(nil, client.ErrUnreachable) || broken.same(same.page, nil) ||
		broken.same(nil, client.ErrForbidden) ||
		!broken.same(nil, client.ErrUnreachable) {
		t.Error("errors and pages are confused")
	}
}

// TestMemo: a row is made once of the same, and again when it has been away.
func TestMemo(t *testing.T) {
	var m memo
	var made atomic.Int64
	build := func(n *int) row { made.Add(1); return row{Key: strconv.Itoa(*n)} }
	read := func(list ...int) {
		for i, r := range rowsOf(m.remembering(t.Context()), list, build) {
			if r.Key != strconv.Itoa(list[i]) {
				t.Errorf("the row of %d is that of %s", list[i], r.Key)
			}
		}
	}
	for _, x := range []struct {
		list []int
		want int64
	}{{[]int{1, 2}, 2}, {[]int{1, 2}, 2}, {[]int{2, 3}, 3}, {[]int{1}, 4}} {
		if read(x.list...); made.Load() != x.want {
			t.Errorf("%d rows were made after %v, want %d", made.Load(), x.list, x.want)
		}
	}
	if r := rowsOf(t.Context(), []int{7}, build); len(r) != 1 || r[0].Key != "7" {
		t.Errorf("without a view the rows are %+v", r)
	}
}
