package core

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestLocalCopy drives a watch with a naive server at random: pages in order of name, each at its
// own index, a semaphore's owners over several of them, changes in between that are gathered and
// repeated, snapshots that begin again, links that are lost. A consumer that reads now and then,
// and only follows events, ends up with exactly the server's state, and is never told nonsense.
func TestLocalCopy(t *testing.T) {
	for seed := range uint64(600) {
		r := rand.New(rand.NewPCG(seed, 1))
		m := &copyTest{t: t, r: r, seed: seed, server: map[string]*model{}, view: map[string]*model{}}
		m.open()
		for range 300 {
			m.step()
		}
		for m.lost || m.begun || !m.b.part(1).live {
			m.open()
			m.page()
		}
		m.flush()
		for m.read() {
		}
		if got, want := fmt.Sprint(dump(m.view)), fmt.Sprint(dump(m.server)); got != want {
			t.Fatalf("seed %d: told\n%s\nis\n%s", seed, got, want)
		}
		if len(m.b.w.copied.names) != len(m.server) || len(m.b.w.copied.dirty) > 0 {
			t.Fatalf("seed %d: %d names are kept for %d, %d dirty", seed, len(m.b.w.copied.names), len(m.server), len(m.b.w.copied.dirty))
		}
	}
}

// watchBench is an engine with one connection, whose instance leads all shards, and a watch.
type watchBench struct {
	t     testing.TB
	e     *Engine
	c     *Conn
	w     *Watch
	now   time.Duration
	ready Ready
}

func newWatchBench(t testing.TB, shards int, w *Watch) *watchBench {
	b := &watchBench{t: t, e: New([]string{"x"}, 1), w: w, now: time.Second}
	w.Waiter = nobody{}
	b.e.Open(b.now)
	b.e.Take(&b.ready)
	b.c = b.ready.Dial[0]
	b.e.Connected(b.now, b.c, "x", &protocol.HelloReply{Version: protocol.Version, Instance: 1, Window: 64})
	m := &protocol.MapReply{Version: 1, Tiers: []protocol.MapTier{{Buckets: testBuckets}}}
	for i := range shards {
		m.Shards = append(m.Shards, protocol.MapShard{ID: uint64(i + 1), Master: 1, Replicas: []uint64{1}})
		m.Tiers[0].Runs = append(m.Tiers[0].Runs, protocol.MapRun{Count: 1, Shard: uint64(i + 1)})
	}
	m.Tiers[0].Runs[0].Count = testBuckets - uint32(shards) + 1
	b.receive(protocol.KindMap|protocol.KindReply, 2, 0, m)
	b.e.Watch(b.now, w)
	return b
}

const testBuckets = 8

func (b *watchBench) receive(kind protocol.Kind, id, arg uint64, m protocol.Message) {
	frame := protocol.AppendFrame(nil, kind, id, arg, m)
	h, err := protocol.ParseFrame(frame[4:])
	if err != nil {
		b.t.Fatal(err)
	}
	b.e.Received(b.now, b.c, []protocol.Header{h})
	clear(frame) // nothing keeps what is the reader's
	b.e.Take(&b.ready)
	b.ready.Reset()
	b.c.TakeOut(nil)
}

// part is the watch's part of a shard.
func (b *watchBench) part(shard uint64) *shardStream {
	for _, p := range b.w.parts {
		if p.home == shard {
			return p
		}
	}
	b.t.Fatalf("the watch has no part of shard %d", shard)
	return nil
}

func (b *watchBench) page(shard uint64, m *protocol.Snapshot) {
	b.receive(protocol.KindSnapshot, b.part(shard).stream, shard, m)
}

func (b *watchBench) delta(shard uint64, m *protocol.Delta) {
	b.receive(protocol.KindDelta, 0, shard, m)
}

// cut ends a shard's stream, and reopen lets the pause pass.
func (b *watchBench) cut(shard uint64) {
	b.receive(protocol.KindStreamCut, b.part(shard).stream, shard, &protocol.StreamCut{Status: protocol.StatusUnavailable})
}

func (b *watchBench) reopen(shard uint64) {
	for p := b.part(shard); p.open == nil; {
		b.now += 100 * time.Millisecond
		b.c.heard = b.now
		b.e.Tick(b.now)
		b.receive(protocol.KindPong, 0, 0, nil) // it lives
	}
	b.receive(protocol.KindWatch|protocol.KindReply, b.part(shard).id, 0, &protocol.Empty{})
}

type model struct {
	limit, version uint64
	data           string
	owners         map[uint64]string
}

func dump(state map[string]*model) []string {
	var out []string
	for name, s := range state {
		var owners []string
		for id, data := range s.owners {
			owners = append(owners, fmt.Sprint(id, data))
		}
		sort.Strings(owners)
		out = append(out, fmt.Sprint(name, s.limit, s.version, s.data, owners))
	}
	sort.Strings(out)
	return out
}

type copyTest struct {
	t      *testing.T
	r      *rand.Rand
	seed   uint64
	index  uint64
	orders uint64
	server map[string]*model
	view   map[string]*model
	synced bool

	b    *watchBench
	lost bool // the stream was cut

	// The server's side of the stream.
	begun   bool   // pages are under way
	passed  string // names up to it are covered
	middle  bool   // passed goes on in the next page, with the owners
	after   uint64 // behind this one
	pending []*protocol.Delta
}

// open opens the stream, again if it was cut.
func (m *copyTest) open() {
	switch {
	case m.b == nil:
		m.b = newWatchBench(m.t, 1, &Watch{Node: 7, Prefix: true})
	case !m.lost:
		return
	}
	m.b.reopen(1)
	m.lost = false
	m.begun, m.passed, m.middle, m.after, m.pending = true, "", false, 0, nil
}

func (m *copyTest) step() {
	switch x := m.r.IntN(100); {
	case x < 45:
		m.change()
	case x < 60:
		m.flush()
	case x < 80:
		m.open()
		m.page()
	case x < 97:
		m.read()
	case x < 98:
		if !m.lost {
			m.b.cut(1)
			m.lost, m.begun = true, false
		}
	default:
		if !m.lost {
			m.begun, m.passed, m.middle, m.after, m.pending = true, "", false, 0, nil // it fell behind: the snapshot begins again
			m.page()
		}
	}
}

// change changes the state and tells the stream what it covers.
func (m *copyTest) change() {
	name := string(rune('a' + m.r.IntN(6)))
	s := m.server[name]
	c := protocol.SemaphoreChange{}
	m.index++
	switch x := m.r.IntN(12); {
	case s == nil:
		s = &model{limit: 1 + m.r.Uint64N(3), version: 1, data: fmt.Sprint(m.index), owners: map[uint64]string{}}
		m.server[name] = s
		c = protocol.SemaphoreChange{Kind: protocol.ChangeCreated, Limit: s.limit, Version: s.version, Data: []byte(s.data)}
	case x == 0:
		delete(m.server, name)
		c.Kind = protocol.ChangeDeleted
	case x == 1:
		s.version, s.data = s.version+1, fmt.Sprint(m.index)
		c = protocol.SemaphoreChange{Kind: protocol.ChangeData, Version: s.version, Data: []byte(s.data)}
	case x == 2:
		s.limit++
		c = protocol.SemaphoreChange{Kind: protocol.ChangeLimit, Limit: s.limit}
	case x < 8 || len(s.owners) == 0:
		m.orders++
		s.owners[m.orders] = "x"
		c = protocol.SemaphoreChange{Kind: protocol.ChangeOwnerAdded, Owner: protocol.Owner{OrderID: m.orders, Data: []byte("x")}}
	default:
		id := m.someOwner(s)
		if x < 10 {
			s.owners[id] += "y"
			c = protocol.SemaphoreChange{Kind: protocol.ChangeOwnerChanged, Owner: protocol.Owner{OrderID: id, Data: []byte(s.owners[id])}}
		} else {
			delete(s.owners, id)
			c = protocol.SemaphoreChange{Kind: protocol.ChangeOwnerRemoved, Owner: protocol.Owner{OrderID: id}}
		}
	}
	d := &protocol.Delta{Node: 7, Name: []byte(name), Index: m.index, Changes: []protocol.SemaphoreChange{c}}
	if m.lost || m.begun && name > m.passed {
		if !m.lost && m.r.IntN(3) == 0 {
			m.b.delta(1, d) // for another stream of the connection
		}
		return
	}
	if n := len(m.pending); n > 0 && string(m.pending[n-1].Name) == name && m.r.IntN(2) == 0 {
		m.pending[n-1].Changes = append(m.pending[n-1].Changes, d.Changes...)
		m.pending[n-1].Index = m.index
		return
	}
	m.pending = append(m.pending, d)
}

func (m *copyTest) someOwner(s *model) uint64 {
	var ids []uint64
	for id := range s.owners {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids[m.r.IntN(len(ids))]
}

// flush sends what was gathered.
func (m *copyTest) flush() {
	for _, d := range m.pending {
		if !m.lost {
			m.b.delta(1, d)
			if m.r.IntN(10) == 0 {
				m.b.delta(1, d)
			}
		}
	}
	m.pending = nil
}

// page sends the next page of the snapshot, if one is under way.
func (m *copyTest) page() {
	if !m.begun {
		return
	}
	// What was gathered and not sent is in the page already, and comes once more behind it.
	page := &protocol.Snapshot{Index: m.index, First: m.passed == ""}
	room := 1 + m.r.IntN(6)
	var names []string
	for name := range m.server {
		if name > m.passed || name == m.passed && m.middle {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	last := true
	for _, name := range names {
		s := m.server[name]
		item := protocol.SnapshotItem{Name: []byte(name), Limit: s.limit, Version: s.version, Data: []byte(s.data)}
		from := uint64(0)
		if name == m.passed {
			from = m.after
			item.Data = nil // it goes on
		}
		if room == 0 {
			last = false
			break
		}
		room--
		var ids []uint64
		for id := range s.owners {
			if id > from {
				ids = append(ids, id)
			}
		}
		slices.Sort(ids)
		full := false
		m.passed, m.middle = name, false
		for _, id := range ids {
			if room == 0 {
				full = true
				break
			}
			room--
			item.Owners = append(item.Owners, protocol.Owner{OrderID: id, Data: []byte(s.owners[id])})
			from = id
		}
		page.Semaphores = append(page.Semaphores, item)
		if full {
			m.middle, m.after, last = true, from, false
			break
		}
	}
	page.Last = last
	m.begun = !last
	m.b.page(1, page)
}

// read takes an event, if there is one, and checks that it makes sense to somebody who knows only
// the events before it.
func (m *copyTest) read() bool {
	var ev WatchEvent
	ok, err := m.b.w.Next(&ev)
	if err != nil {
		m.t.Fatal(err)
	}
	if !ok {
		return false
	}
	fail := func(what string) { m.t.Fatalf("seed %d: %s: %+v; known %+v", m.seed, what, ev, m.view[ev.Name]) }
	known := m.view[ev.Name]
	switch ev.Kind {
	case WatchInterrupted:
		m.synced = false
	case WatchSynced:
		if m.synced {
			fail("synced twice")
		}
		m.synced = true
	case WatchDeleted:
		if known == nil || len(ev.Removed) != len(known.owners) {
			fail("deleted, and was not known like this")
		}
		for _, o := range ev.Removed {
			if known.owners[o.OrderID] != string(o.Data) {
				fail("deleted with an owner that was not delivered like this")
			}
		}
		delete(m.view, ev.Name)
	case WatchChanged:
		if ev.Created != (known == nil) {
			fail("created")
		}
		if known == nil {
			known = &model{owners: map[uint64]string{}}
			m.view[ev.Name] = known
		}
		if !ev.DataChanged && string(ev.Data) != known.data || !ev.LimitChanged && ev.Limit != known.limit {
			fail("changed without saying so")
		}
		known.limit, known.version, known.data = ev.Limit, ev.Version, string(ev.Data)
		for _, o := range ev.Removed {
			if data, there := known.owners[o.OrderID]; !there || data != string(o.Data) {
				fail("removed an owner that was not delivered like this")
			}
			delete(known.owners, o.OrderID)
		}
		for _, o := range ev.Added {
			if _, there := known.owners[o.OrderID]; there {
				fail("added a known owner")
			}
			known.owners[o.OrderID] = string(o.Data)
		}
		for _, o := range ev.Updated {
			if _, there := known.owners[o.OrderID]; !there || !strings.HasPrefix(string(o.Data), "x") {
				fail("updated an unknown owner")
			}
			known.owners[o.OrderID] = string(o.Data)
		}
	}
	return true
}

// TestUnseenSemaphores: what comes and goes while a consumer takes no events is not delivered, and
// takes no memory.
func TestUnseenSemaphores(t *testing.T) {
	w := &Watch{Node: 7, Prefix: true}
	b := newWatchBench(t, 1, w)
	b.page(1, &protocol.Snapshot{First: true, Last: true})
	index := uint64(0)
	send := func(name string, kind protocol.SemaphoreChangeKind) {
		index++
		b.delta(1, &protocol.Delta{Node: 7, Name: []byte(name), Index: index, Changes: []protocol.SemaphoreChange{
			{Kind: kind, Limit: 1, Version: 1, Owner: protocol.Owner{OrderID: index}},
		}})
	}
	var ev WatchEvent
	for {
		if ok, err := w.Next(&ev); err != nil {
			t.Fatal(err)
		} else if !ok {
			break
		}
	}
	send("seen", protocol.ChangeCreated)
	if ok, err := w.Next(&ev); !ok || err != nil || ev.Name != "seen" {
		t.Fatal(ok, err, ev)
	}
	send("kept", protocol.ChangeCreated)
	for i := range 1000 {
		name := fmt.Sprint("lock", i)
		send(name, protocol.ChangeCreated)
		send(name, protocol.ChangeOwnerAdded)
		send(name, protocol.ChangeDeleted)
		if len(w.copied.names) != 2 || len(w.copied.dirty) > 4 {
			t.Fatalf("after %d locks: %d names, %d to be delivered", i+1, len(w.copied.names), len(w.copied.dirty))
		}
	}
	send("seen", protocol.ChangeDeleted)
	send("lock0", protocol.ChangeCreated)
	var events []string
	for {
		ok, err := w.Next(&ev)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		events = append(events, fmt.Sprint(ev.Kind, ev.Name, ev.Created))
	}
	if want := []string{"1kepttrue", "2seenfalse", "1lock0true"}; !slices.Equal(events, want) {
		t.Fatalf("got %v, want %v", events, want)
	}
	if len(w.copied.names) != 2 || len(w.copied.dirty) > 0 || w.copied.unseen != 0 {
		t.Fatal(len(w.copied.names), len(w.copied.dirty), w.copied.unseen)
	}
}
