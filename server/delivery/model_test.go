package delivery

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testShard = 9

// model is a hub between a naive store and naive clients, with a clock that stands still until it
// is moved.
type model struct {
	hub   *WatchHub
	now   time.Duration
	index uint64
	epoch uint64                          // of all buckets
	store map[uint64]map[string]semaphore // by node
	conns map[uint64]*client
	over  map[uint64]int // watchers rejected over the quota, by node
	pages []uint64       // connections told that pages are due, in order
	wake  time.Duration  // when the hub asked to be flushed; never: it did not
	lines []string       // what was sent since the last look, for scripts
}

// client is a connection: a queue of frames and a client that reads it.
type client struct {
	id    uint64
	queue [][]byte
	soft  int // frames in queue from which droppable ones are refused; 0 is no bound
	views map[uint64]*streamView
	fired map[uint64]protocol.WatchFired
	cut   map[uint64]protocol.Status
}

// semaphore is a semaphore as far as streams tell.
type semaphore struct {
	limit, version uint64
	ephemeral      bool
	data           string
	owners         map[uint64]string // order id: session, count, data
}

func (s semaphore) String() string {
	var owners []string
	for _, id := range slices.Sorted(maps.Keys(s.owners)) {
		owners = append(owners, fmt.Sprintf("%d:%s", id, s.owners[id]))
	}
	return fmt.Sprintf("limit=%d v%d %q owners=[%s]", s.limit, s.version, s.data, strings.Join(owners, " "))
}

func (s semaphore) clone() semaphore {
	s.owners = maps.Clone(s.owners)
	return s
}

func (s semaphore) equal(o semaphore) bool {
	return s.limit == o.limit && s.version == o.version && s.ephemeral == o.ephemeral && s.data == o.data && maps.Equal(s.owners, o.owners)
}

const never = time.Duration(math.MaxInt64)

// noQuota is no quota of watchers.
const noQuota = math.MaxUint64

func newModel(opt WatchOptions) *model {
	w := &model{epoch: 1, store: make(map[uint64]map[string]semaphore), conns: make(map[uint64]*client), over: make(map[uint64]int), wake: never}
	opt.Wake = func(due time.Duration) { w.wake = min(w.wake, due) }
	opt.Now = func() time.Duration { return w.now }
	opt.Quota = &WatcherQuota{Rejected: func(node uint64) { w.over[node]++ }}
	w.hub = NewWatchHub(testShard, w, opt)
	return w
}

// advance moves the clock to now and does what a [Flusher] does meanwhile.
func (w *model) advance(now time.Duration) {
	w.now = now
	if w.wake > now {
		return
	}
	w.hub.Flush(now)
	w.wake = never
	if due, ok := w.hub.NextFlush(); ok {
		w.wake = due
	}
}

// left is what the hub still keeps.
func (w *model) left() string {
	h := w.hub
	h.dropHistories(anyHistory) // of semaphores with many owners
	if h.active.Load() == 0 && h.opt.Histories.Used() == 0 && len(h.pages.names)+h.pages.bytes == 0 && len(h.nodes)+len(h.conns)+len(h.sessions)+len(h.oneShots)+len(h.pending)+h.pendingBytes == 0 &&
		len(h.opt.Quota.open) == 0 {
		return ""
	}
	return fmt.Sprintf("load %d, %d nodes, %d conns, %d sessions, %d shots, %d pending of %d bytes, %d nodes with watchers",
		h.active.Load(), len(h.nodes), len(h.conns), len(h.sessions), len(h.oneShots), len(h.pending), h.pendingBytes,
		len(h.opt.Quota.open))
}

func (w *model) conn(id uint64) *client {
	c := w.conns[id]
	if c == nil {
		c = &client{id: id, views: make(map[uint64]*streamView), fired: make(map[uint64]protocol.WatchFired),
			cut: make(map[uint64]protocol.Status)}
		w.conns[id] = c
	}
	return c
}

func (w *model) Send(id uint64, frames []byte, droppable bool) bool {
	c := w.conns[id]
	if c == nil {
		return true
	}
	if droppable && c.soft > 0 && len(c.queue) >= c.soft {
		w.lines = append(w.lines, fmt.Sprintf("conn %d takes no more", id))
		return false
	}
	for rest := frames; len(rest) > 0; {
		frame, n, err := protocol.SplitFrame(rest, protocol.MaxFrameLen)
		if err != nil || n == 0 {
			panic(fmt.Sprintf("not whole frames: %v", err))
		}
		rest = rest[n:]
		c.queue = append(c.queue, frame)
		w.lines = append(w.lines, fmt.Sprintf("conn %d < %s", id, describeFrame(frame)))
	}
	return true
}

func (w *model) SendPage(id uint64, head, shared []byte) {
	w.Send(id, slices.Concat(head, shared), false)
}

// StreamPosition: all buckets have the epoch of the model.
func (w *model) StreamPosition(node uint64, _ []byte) (index, epoch uint64, err error) {
	if w.store[node] == nil {
		return 0, 0, protocol.Errorf(protocol.StatusNotFound, "no such node")
	}
	return w.index, w.epoch, nil
}

func (w *model) PagesDue(shard, conn uint64) {
	w.pages = append(w.pages, conn)
	w.lines = append(w.lines, fmt.Sprintf("conn %d waits for pages", conn))
}

// StreamSnapshot counts a semaphore and each owner as a byte, so that pages end in the middle of
// owners too. A cursor is the last name and order id that was carried: what is made after it, and
// before what came next, is not jumped over.
func (w *model) StreamSnapshot(node uint64, name []byte, prefix bool, cursor []byte, maxBytes int, out *protocol.Snapshot) ([]byte, error) {
	sems, ok := w.store[node]
	if !ok {
		return nil, protocol.Errorf(protocol.StatusNotFound, "no such node")
	}
	out.Index = w.index
	if !prefix && len(cursor) == 0 {
		out.Epoch = w.epoch
	}
	var from string
	var after uint64
	if len(cursor) > 0 {
		after = binary.BigEndian.Uint64(cursor)
		from = string(cursor[8:])
	}
	for _, n := range slices.Sorted(maps.Keys(sems)) {
		if n < from || n == from && after == wholeName || !(n == string(name) || prefix && strings.HasPrefix(n, string(name))) {
			continue
		}
		if maxBytes <= 0 {
			return cursorAt(string(out.Semaphores[len(out.Semaphores)-1].Name), wholeName), nil
		}
		s := sems[n]
		item := protocol.SnapshotItem{Name: []byte(n), Limit: s.limit, Ephemeral: s.ephemeral, Version: s.version}
		last := uint64(0)
		if n == from {
			last = after
		} else {
			item.Data = []byte(s.data)
		}
		maxBytes--
		for _, id := range slices.Sorted(maps.Keys(s.owners)) {
			if id <= last {
				continue
			}
			if maxBytes <= 0 {
				out.Semaphores = append(out.Semaphores, item)
				return cursorAt(n, last), nil
			}
			maxBytes--
			item.Owners = append(item.Owners, protocol.Owner{OrderID: id, Data: []byte(s.owners[id])})
			last = id
		}
		out.Semaphores = append(out.Semaphores, item)
	}
	return nil, nil
}

const wholeName = ^uint64(0)

func cursorAt(name string, after uint64) []byte {
	return append(binary.BigEndian.AppendUint64(nil, after), name...)
}

// change applies changes to the store and tells the hub, as one batch.
func (w *model) change(changes ...shard.SemaphoreChange) {
	w.index++
	for i := range changes {
		c := &changes[i]
		sems := w.store[c.Node]
		if sems == nil {
			sems = make(map[string]semaphore)
			w.store[c.Node] = sems
		}
		apply(sems, string(c.Name), &c.SemaphoreChange)
		c.Owners = len(sems[string(c.Name)].owners)
	}
	w.hub.Changed(w.index, changes)
}

// apply is what a reader does with a change. It must not mind one that it has seen.
func apply(sems map[string]semaphore, name string, c *protocol.SemaphoreChange) {
	s, ok := sems[name]
	if !ok && c.Kind != protocol.ChangeCreated {
		return
	}
	switch c.Kind {
	case protocol.ChangeCreated:
		s = semaphore{limit: c.Limit, version: c.Version, ephemeral: c.Ephemeral, data: string(c.Data), owners: make(map[uint64]string)}
	case protocol.ChangeDeleted:
		delete(sems, name)
		return
	case protocol.ChangeData:
		s.version, s.data = c.Version, string(c.Data)
	case protocol.ChangeLimit:
		s.limit = c.Limit
	case protocol.ChangeOwnerAdded, protocol.ChangeOwnerChanged:
		s.owners = maps.Clone(s.owners)
		s.owners[c.Owner.OrderID] = string(c.Owner.Data)
	case protocol.ChangeOwnerRemoved:
		s.owners = maps.Clone(s.owners)
		delete(s.owners, c.Owner.OrderID)
	}
	sems[name] = s
}

// streamView is a client's side of a stream, written from the comments of protocol.Snapshot and
// protocol.Delta.
type streamView struct {
	node      uint64
	key       string
	prefix    bool
	live      bool
	lastPaged string
	sems      map[string]semaphore

	began, known, epoch uint64 // of the snapshot's first page; see protocol.Watch
	resumed             int
}

func (v *streamView) page(p *protocol.Snapshot) {
	if p.Resumed {
		v.live = true
		v.resumed++
		for rest := p.Deltas; len(rest) > 0; {
			frame, n, _ := protocol.SplitFrame(rest, protocol.MaxFrameLen)
			h, _ := protocol.ParseFrame(frame)
			var d protocol.Delta
			_ = protocol.DecodeBody(&d, h.Body)
			v.delta(&d)
			rest = rest[n:]
		}
		return
	}
	if p.First {
		v.live, v.lastPaged, v.sems = false, "", make(map[string]semaphore)
		v.began, v.epoch = p.Index, p.Epoch
		v.known = 0 // until the last page
	}
	for _, item := range p.Semaphores {
		s, ok := v.sems[string(item.Name)]
		if string(item.Name) != v.lastPaged || !ok {
			s = semaphore{limit: item.Limit, version: item.Version, ephemeral: item.Ephemeral,
				data: string(item.Data), owners: make(map[uint64]string)}
		}
		for _, o := range item.Owners {
			s.owners[o.OrderID] = string(o.Data)
		}
		v.sems[string(item.Name)] = s
		v.lastPaged = string(item.Name)
	}
	if v.live = p.Last; v.live {
		v.known = max(v.known, v.began)
	}
}

func (v *streamView) delta(d *protocol.Delta) {
	name := string(d.Name)
	if d.Node != v.node || !(name == v.key || v.prefix && strings.HasPrefix(name, v.key)) || !(v.live || name <= v.lastPaged) {
		return
	}
	if v.live {
		v.known = max(v.known, d.Index)
	}
	for i := range d.Changes {
		apply(v.sems, name, &d.Changes[i])
	}
}

// read takes one frame off the queue.
func (c *client) read(t fataler) {
	frame := c.queue[0]
	c.queue = c.queue[1:]
	h, err := protocol.ParseFrame(frame)
	if err == nil {
		switch h.Kind {
		case protocol.KindSnapshot:
			var p protocol.Snapshot
			if err = protocol.DecodeBody(&p, h.Body); err == nil && c.views[h.ID] != nil {
				c.views[h.ID].page(&p)
			}
		case protocol.KindDelta:
			var d protocol.Delta
			if err = protocol.DecodeBody(&d, h.Body); err == nil {
				for _, v := range c.views {
					v.delta(&d)
				}
			}
		case protocol.KindWatchFired:
			var f protocol.WatchFired
			if err = protocol.DecodeBody(&f, h.Body); err == nil {
				if _, ok := c.fired[f.WatchID]; ok {
					t.Fatalf("one-shot watch %d fired twice", f.WatchID)
				}
				c.fired[f.WatchID] = f
			}
		case protocol.KindStreamCut:
			var cut protocol.StreamCut
			if err = protocol.DecodeBody(&cut, h.Body); err == nil {
				c.cut[h.ID] = cut.Status
				delete(c.views, h.ID)
			}
		}
	}
	if err != nil || h.Arg != testShard {
		t.Fatalf("bad frame %x: %v", frame, err)
	}
}

// readAll ends all windows, has all clients read everything, and compares what each stream's client
// has with the store.
func (w *model) readAll(t fataler) {
	w.advance(w.now + time.Second)
	if _, ok := w.hub.NextFlush(); ok {
		t.Fatalf("something is still gathered")
	}
	for _, c := range w.conns {
		for more := true; more; {
			for len(c.queue) > 0 {
				c.read(t)
			}
			more = w.hub.Page(c.id, w, 3)
		}
		for len(c.queue) > 0 {
			c.read(t)
		}
		for id, v := range c.views {
			want := make(map[string]semaphore)
			for name, sem := range w.store[v.node] {
				if name == v.key || v.prefix && strings.HasPrefix(name, v.key) {
					want[name] = sem
				}
			}
			if !v.live || !maps.EqualFunc(v.sems, want, semaphore.equal) {
				t.Fatalf("conn %d stream %d (%q prefix %v, live %v) has %v\nthe store has %v", c.id, id, v.key,
					v.prefix, v.live, v.sems, want)
			}
		}
	}
}

// describeFrame writes a frame as a script shows it.
func describeFrame(frame []byte) string {
	h, err := protocol.ParseFrame(frame)
	if err != nil {
		return err.Error()
	}
	switch h.Kind {
	case protocol.KindSnapshot:
		var p protocol.Snapshot
		_ = protocol.DecodeBody(&p, h.Body)
		var b strings.Builder
		fmt.Fprintf(&b, "page of stream %d at %d", h.ID, p.Index)
		if p.First {
			b.WriteString(" first")
		}
		if p.Last {
			b.WriteString(" last")
		}
		if p.Resumed {
			b.WriteString(" resumed")
		}
		for rest := p.Deltas; len(rest) > 0; {
			frame, n, _ := protocol.SplitFrame(rest, protocol.MaxFrameLen)
			b.WriteString("\n    " + describeFrame(frame))
			rest = rest[n:]
		}
		for _, item := range p.Semaphores {
			s := semaphore{limit: item.Limit, version: item.Version, data: string(item.Data), owners: make(map[uint64]string)}
			for _, o := range item.Owners {
				s.owners[o.OrderID] = string(o.Data)
				if n := len(o.Data); n > 100 {
					s.owners[o.OrderID] = fmt.Sprintf("%d bytes", n)
				}
			}
			fmt.Fprintf(&b, "\n    %s %s", item.Name, s)
		}
		return b.String()
	case protocol.KindDelta:
		var d protocol.Delta
		_ = protocol.DecodeBody(&d, h.Body)
		var steps []string
		for _, c := range d.Changes {
			steps = append(steps, describeChange(&c))
		}
		return fmt.Sprintf("delta of node %d, %s, at %d: %s", d.Node, short(d.Name), d.Index, strings.Join(steps, ", "))
	case protocol.KindWatchFired:
		var f protocol.WatchFired
		_ = protocol.DecodeBody(&f, h.Body)
		return fmt.Sprintf("fired %d of session %d: data=%v owners=%v", f.WatchID, f.Session, f.DataChanged, f.OwnersChanged)
	case protocol.KindProcessState:
		var p protocol.ProcessState
		_ = protocol.DecodeBody(&p, h.Body)
		return fmt.Sprintf("process of stream %d: %s exists=%v at %d", h.ID, p.Status.Name, p.Exists, p.Status.Index)
	case protocol.KindProcessChanges:
		var p protocol.ProcessChanges
		_ = protocol.DecodeBody(&p, h.Body)
		var changes []string
		for _, c := range p.Changes {
			changes = append(changes, fmt.Sprintf("%d %s", c.Kind, short([]byte(c.Text))))
		}
		return fmt.Sprintf("process changes of stream %d at %d, wall %d: %s", h.ID, p.Revision, p.Wall, strings.Join(changes, ", "))
	case protocol.KindTrackStatus:
		var s protocol.TrackStatus
		_ = protocol.DecodeBody(&s, h.Body)
		return fmt.Sprintf("track of stream %d: %s", h.ID, s.Name)
	case protocol.KindTrackEvents:
		var e protocol.TrackEvents
		_ = protocol.DecodeBody(&e, h.Body)
		var events []string
		for _, c := range e.Events {
			events = append(events, fmt.Sprintf("%d %s", c.Kind, c.Location))
		}
		return fmt.Sprintf("track events of stream %d at %d: %s", h.ID, e.Revision, strings.Join(events, ", "))
	case protocol.KindStreamCut:
		var c protocol.StreamCut
		_ = protocol.DecodeBody(&c, h.Body)
		return fmt.Sprintf("stream %d cut: %v: %s", h.ID, c.Status, c.Message)
	}
	return fmt.Sprintf("kind %d", h.Kind)
}

func describeChange(c *protocol.SemaphoreChange) string {
	switch c.Kind {
	case protocol.ChangeCreated:
		return fmt.Sprintf("created limit=%d v%d %s", c.Limit, c.Version, short(c.Data))
	case protocol.ChangeDeleted:
		return "deleted"
	case protocol.ChangeData:
		return fmt.Sprintf("data v%d %s", c.Version, short(c.Data))
	case protocol.ChangeLimit:
		return fmt.Sprintf("limit=%d", c.Limit)
	case protocol.ChangeOwnerAdded:
		return fmt.Sprintf("owner %d added %s", c.Owner.OrderID, short(c.Owner.Data))
	case protocol.ChangeOwnerChanged:
		return fmt.Sprintf("owner %d changed %s", c.Owner.OrderID, short(c.Owner.Data))
	case protocol.ChangeOwnerRemoved:
		return fmt.Sprintf("owner %d removed", c.Owner.OrderID)
	}
	return fmt.Sprintf("change %d", c.Kind)
}

func short(b []byte) string {
	if len(b) > 40 && bytes.Count(b, b[:1]) == len(b) {
		return fmt.Sprintf("%q x %d", b[:1], len(b))
	}
	return fmt.Sprintf("%q", b)
}

type fataler interface {
	Fatalf(format string, args ...any)
}
