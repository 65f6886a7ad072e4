package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client"
)

const (
	maxStreams      = 64
	commentInterval = 15 * time.Second // a proxy that cuts silent connections hears of the stream
	updateTimeout   = 10 * time.Second // for one update to be taken
	viewTimeout     = 3 * time.Second  // for one read of a page, after which its tabs say that it may be old
)

// view reads one page again and again while somebody looks at it. All streams of the page with the
// same credentials share it.
type view struct {
	key viewKey

	mu      sync.Mutex
	state   viewState
	changed chan struct{} // closed and replaced with every new state
	streams int           // guarded by views.mu
	cancel  context.CancelFunc
}

// viewKey is what a view shows, and to whom. Who logs in again has another client, and shares
// nothing with views of the one that was closed.
type viewKey struct {
	viewer *viewer
	page   string // path and query
}

// viewState is the last outcome of reading a page.
type viewState struct {
	seq  uint64 // 0: not read yet
	page *page
	err  error
}

// views are the views of a console that are open.
type views struct {
	mu      sync.Mutex
	open    map[viewKey]*view
	streams int
}

// watch opens a view for one more stream; false: there are too many.
func (c *Console) watch(v *viewer, path string, q url.Values, read pageFunc) (*view, bool) {
	key := viewKey{v, path + "?" + q.Encode()}
	c.views.mu.Lock()
	defer c.views.mu.Unlock()
	if c.views.streams >= maxStreams || c.ctx.Err() != nil {
		return nil, false
	}
	c.views.streams++
	w := c.views.open[key]
	if w == nil {
		w = &view{key: key, changed: make(chan struct{})}
		var ctx context.Context
		ctx, w.cancel = context.WithCancel(c.ctx)
		c.views.open[key] = w
		again := func(ctx context.Context) (*page, error) { return read(ctx, v, q) }
		c.running.Go(func() { w.run(ctx, c.began, c.cfg.Refresh, again) })
	}
	w.streams++
	return w, true
}

func (c *Console) unwatch(w *view) {
	c.views.mu.Lock()
	defer c.views.mu.Unlock()
	c.views.streams--
	if w.streams--; w.streams == 0 {
		delete(c.views.open, w.key)
		w.cancel()
	}
}

// run reads the page until ctx ends: more often while it changes. A read that takes long puts the
// next one off. Reads begin at multiples of the time between them since epoch, so that those of
// many views go to the cluster together, which costs it less.
func (w *view) run(
	ctx context.Context, epoch time.Time, refresh time.Duration, read func(context.Context) (*page, error),
) {
	var last viewState
	var rows memo
	due := time.Now()
	for {
		began := time.Now()
		reading, cancel := context.WithTimeout(rows.remembering(ctx), viewTimeout)
		p, err := read(reading)
		cancel()
		if ctx.Err() != nil {
			return
		}
		quiet := last.same(p, err)
		if !quiet {
			last = viewState{page: p, err: err}
			w.mu.Lock()
			w.state = viewState{seq: w.state.seq + 1, page: p, err: err}
			close(w.changed)
			w.changed = make(chan struct{})
			w.mu.Unlock()
		}
		pause, took := refresh, time.Duration(0)
		if quiet {
			pause += refresh * 3 / 5
		}
		if err == nil {
			took = time.Since(began) // at most half of the time is spent reading
		}
		due = nextRead(epoch, due, time.Now().Add(took), pause)
		t := time.NewTimer(time.Until(due))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}

// nextRead is the first multiple of pause since epoch that is not before earliest, and no update
// too many behind the last read.
func nextRead(epoch, last, earliest time.Time, pause time.Duration) time.Time {
	if next := last.Add(minRefresh); next.After(earliest) {
		earliest = next
	}
	return epoch.Add((earliest.Sub(epoch) + pause - 1) / pause * pause)
}

// same reports whether a read has brought what the last one has.
func (s *viewState) same(p *page, err error) bool {
	switch {
	case s.page == nil && s.err == nil:
		return false
	case err != nil || s.err != nil:
		return err != nil && s.err != nil && errorText(err) == errorText(s.err)
	}
	return s.page.equal(p)
}

func errorText(err error) string {
	_, _, text := explain(err)
	return text
}

func (w *view) current() (viewState, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state, w.changed
}

// isStream reports whether a request is for the stream of a page.
func isStream(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/live/") }

// serveLive streams the changes of a page.
func (c *Console) serveLive(w http.ResponseWriter, r *http.Request, v *viewer) {
	path := strings.TrimPrefix(r.URL.Path, "/live")
	read, ok := pages[path]
	if !ok {
		http.Error(w, "there is no such page", http.StatusNotFound)
		return
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" {
		http.Error(w, "this stream is for pages of this console", http.StatusForbidden)
		return
	}
	view, ok := c.watch(v, path, r.URL.Query(), read)
	if !ok {
		w.Header().Set("Retry-After", "10")
		text := fmt.Sprintf("%d tabs are live already; close some, or reload this page by hand", maxStreams)
		http.Error(w, text, http.StatusServiceUnavailable)
		return
	}
	defer c.unwatch(view)
	loggedIn := c.sessionOf(r) != nil // else the cookie, if any, has no session
	s := &stream{w: w, control: http.NewResponseController(w)}
	if err := s.begin(); err != nil {
		return
	}
	comment := time.NewTicker(commentInterval)
	defer comment.Stop()
	for seq := uint64(0); ; {
		state, changed := view.current()
		if state.seq != seq {
			seq = state.seq
			if err := s.send(state); err != nil || s.over {
				return
			}
		}
		idle := false
		select {
		case <-changed:
		case <-comment.C:
			idle = true
		case <-r.Context().Done():
			return
		case <-c.ctx.Done():
			return
		}
		if loggedIn && c.sessionOf(r) == nil {
			_ = s.event("denied", c.loggedOut())
			return
		}
		if idle && s.write(": still here\n\n") != nil {
			return
		}
	}
}

// denyStream answers a stream without a session with the event that ends it. A browser hides the
// status of a refused stream, so the tab would keep what it shows and ask again for ever.
func (c *Console) denyStream(w http.ResponseWriter) {
	s := &stream{w: w, control: http.NewResponseController(w)}
	if s.begin() == nil {
		_ = s.event("denied", c.loggedOut())
	}
}

// loggedOut is what a tab says in place of its page when its session is gone.
func (c *Console) loggedOut() said {
	if c.cfg.Secret != "" { // its link was used already
		return said{"You are not logged in any more. Start `signalbox console` again for a new link."}
	}
	return said{"You are not logged in any more. Load the page again to log in."}
}

// stream is one tab's stream. It knows what the tab shows.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	shown   map[string]map[string]string // by table and key: the row as it was sent
	rest    string                       // all but the tables, as it was sent
	shape   string                       // as it was sent
	lost    bool                         // the tab was told that what it shows may be old
	over    bool
}

type said struct {
	Text string `json:"text"`
}

func (s *stream) begin() error {
	if err := s.control.SetReadDeadline(time.Time{}); err != nil { // the server's is for requests
		return err
	}
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("X-Accel-Buffering", "no") // proxies pass each update on at once
	return s.write("retry: 1000\n\n")
}

func (s *stream) write(text string) error {
	if err := s.control.SetWriteDeadline(time.Now().Add(updateTimeout)); err != nil {
		return err
	}
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	if err := s.control.Flush(); err != nil {
		return err
	}
	return s.control.SetWriteDeadline(time.Time{}) // HTTP/2 ends also a stream without a write at its deadline
}

func (s *stream) event(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.write("event: " + name + "\ndata: " + string(b) + "\n\n")
}

// update is what a tab is sent: the whole page, or what has changed. Notes, figure and facts come
// together; without notes they are as before. First and Next are addresses, empty without a link.
type update struct {
	Now    int64         `json:"now,omitempty"`
	Shape  string        `json:"shape,omitempty"`
	Notes  []note        `json:"notes"`
	Figure *figure       `json:"figure"`
	Facts  []fact        `json:"facts"`
	Tables []tableUpdate `json:"tables,omitempty"`
}

type tableUpdate struct {
	ID    string   `json:"id"`
	Set   []row    `json:"set,omitempty"` // rows that are new or other than before
	Order []string `json:"order"`         // keys of all rows
	Empty string   `json:"empty"`
	Count string   `json:"count"`
	First string   `json:"first"`
	Next  string   `json:"next"`
}

func (s *stream) send(state viewState) error {
	switch err := state.err; {
	case err == nil:
	case errors.Is(err, client.ErrForbidden), errors.Is(err, client.ErrUnauthenticated):
		s.over = true
		_, _, text := explain(err)
		return s.event("denied", said{sentence(visibleText(text))})
	default:
		s.lost = true
		_, _, text := explain(err)
		return s.event("lost", said{visibleText(strings.TrimSuffix(text, "."))})
	}
	whole := s.shown == nil
	u, changed := s.difference(state.page)
	switch {
	case whole:
		u.Now = millis(time.Now())
		s.lost = false
		return s.event("view", u)
	case changed:
		if err := s.event("change", u); err != nil {
			return err
		}
	}
	if s.lost {
		s.lost = false
		return s.event("live", struct{}{})
	}
	return nil
}

// difference is what the tab does not show yet of a page, and notes that it does.
func (s *stream) difference(p *page) (u update, changed bool) {
	rest, _ := json.Marshal([]any{p.Notes, p.Figure, p.Facts}) // strings and numbers
	if string(rest) != s.rest {
		u.Notes, u.Figure, u.Facts = append([]note{}, p.Notes...), p.Figure, append([]fact{}, p.Facts...)
		changed = true
	}
	s.rest = string(rest)
	if shape := p.Shape(); shape != s.shape {
		s.shape, u.Shape = shape, shape
		changed = true
	}
	shown := make(map[string]map[string]string, len(p.Tables))
	for i := range p.Tables {
		t := &p.Tables[i]
		before := s.shown[t.ID]
		now := make(map[string]string, len(t.Rows))
		tu := tableUpdate{
			ID: t.ID, Order: make([]string, 0, len(t.Rows)), Empty: t.Empty, Count: t.Count, First: t.First, Next: t.Next,
		}
		for _, r := range t.Rows {
			text, _ := json.Marshal(r) // strings and numbers
			now[r.Key] = string(text)
			tu.Order = append(tu.Order, r.Key)
			if before[r.Key] != string(text) {
				tu.Set = append(tu.Set, r)
			}
		}
		order := strings.Join(append(slices.Clone(tu.Order), t.Empty, t.Count, t.First, t.Next), "\x00")
		now["\x00order"] = order
		if len(tu.Set) > 0 || before["\x00order"] != order {
			u.Tables = append(u.Tables, tu)
			changed = true
		}
		shown[t.ID] = now
	}
	s.shown = shown
	return u, changed
}

// memo keeps the rows that a view has made, so that it makes none twice of what has not changed.
// One read at a time uses it.
type memo struct {
	before, now map[any]row // by what a row was made of, in the last read and in this one
}

type memoKey struct{}

// remembering has a read use the rows of the one before.
func (m *memo) remembering(ctx context.Context) context.Context {
	m.before, m.now = m.now, make(map[any]row, len(m.now))
	return context.WithValue(ctx, memoKey{}, m)
}

// rowsOf returns the rows that build makes of a list. Whatever else a row depends on is the same in
// all reads of a view, such as the address of its page. Several are built at a time, because building
// one may ask the cluster.
func rowsOf[T comparable](ctx context.Context, list []T, build func(*T) row) []row {
	m, _ := ctx.Value(memoKey{}).(*memo)
	rows := make([]row, len(list))
	var building sync.WaitGroup
	turns := make(chan struct{}, 16)
	for i := range list {
		if m != nil {
			if r, known := m.before[list[i]]; known {
				rows[i] = r
				continue
			}
		}
		building.Go(func() {
			turns <- struct{}{}
			rows[i] = build(&list[i])
			<-turns
		})
	}
	building.Wait()
	if m != nil {
		for i := range list {
			m.now[list[i]] = rows[i]
		}
	}
	return rows
}
