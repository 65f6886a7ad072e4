package client

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"

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
		for m.st == nil || m.begun || m.st.building != nil || !m.w.shardWatches[0].live {
			if m.st == nil {
				m.open()
			}
			m.page()
		}
		m.flush()
		for m.read() {
		}
		if got, want := fmt.Sprint(dump(m.view)), fmt.Sprint(dump(m.server)); got != want {
			t.Fatalf("seed %d: told\n%s\nis\n%s", seed, got, want)
		}
		if len(m.w.names) != len(m.server) || len(m.w.dirty) > 0 {
			t.Fatalf("seed %d: %d names are kept for %d, %d dirty", seed, len(m.w.names), len(m.server), len(m.w.dirty))
		}
	}
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

	w  *watch
	st *watchStream

	// The server's side of the stream.
	begun   bool   // pages are under way
	passed  string // names up to it are covered
	middle  bool   // passed goes on in the next page, with the owners
	after   uint64 // behind this one
	pending []*delta
}

// open opens the stream, again if need be.
func (m *copyTest) open() {
	if m.w == nil {
		m.w = &watch{n: &Node{c: newClient(Config{Endpoints: []string{"x"}, clock: bubbleClock{},
			Logger: discard()})}, prefix: true, wake: make(chan struct{}, 1), names: map[string]*watchedSemaphore{}, routes: &routeTable{}}
		m.w.shardWatches = []*shardWatch{newShardWatch(m.w, 1)}
	}
	m.st = &watchStream{shardWatch: m.w.shardWatches[0], cn: &conn{}, id: 1, key: streamKey{1, 7, ""}}
	m.w.shardWatches[0].stream, m.w.idle = m.st, 0
	m.begun, m.passed, m.middle, m.after, m.pending = true, "", false, 0, nil
}

func (m *copyTest) step() {
	switch x := m.r.IntN(100); {
	case x < 45:
		m.change()
	case x < 60:
		m.flush()
	case x < 80:
		if m.st == nil {
			m.open()
		}
		m.page()
	case x < 97:
		m.read()
	case x < 98:
		if m.st != nil {
			m.st.cut(errConnLost)
			m.st, m.begun = nil, false
		}
	default:
		if m.st != nil {
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
	d := &delta{name: name, index: m.index,
		changes: []change{{c.Kind, attributes{c.Limit, c.Ephemeral, c.Version, c.Data}, ownerOf(&c.Owner)}}}
	if m.st == nil || m.begun && name > m.passed {
		if m.st != nil && m.r.IntN(3) == 0 {
			m.st.delta(d) // for another stream of the connection
		}
		return
	}
	if n := len(m.pending); n > 0 && m.pending[n-1].name == name && m.r.IntN(2) == 0 {
		m.pending[n-1].changes = append(m.pending[n-1].changes, d.changes...)
		m.pending[n-1].index = m.index
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
		if m.st != nil {
			m.st.delta(d)
			if m.r.IntN(10) == 0 {
				m.st.delta(d)
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
	m.st.page(page)
}

// read takes an event, if there is one, and checks that it makes sense to somebody who knows only
// the events before it.
func (m *copyTest) read() bool {
	var ev Event
	ok, err := m.w.next(&ev)
	if err != nil {
		m.t.Fatal(err)
	}
	if !ok {
		return false
	}
	fail := func(what string) { m.t.Fatalf("seed %d: %s: %+v; known %+v", m.seed, what, ev, m.view[ev.Name]) }
	known := m.view[ev.Name]
	switch ev.Kind {
	case EventInterrupted:
		m.synced = false
	case EventSynced:
		if m.synced {
			fail("synced twice")
		}
		m.synced = true
	case EventDeleted:
		if known == nil || len(ev.Removed) != len(known.owners) {
			fail("deleted, and was not known like this")
		}
		for _, o := range ev.Removed {
			if known.owners[o.Token] != string(o.Data) {
				fail("deleted with an owner that was not delivered like this")
			}
		}
		delete(m.view, ev.Name)
	case EventChanged:
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
			if data, there := known.owners[o.Token]; !there || data != string(o.Data) {
				fail("removed an owner that was not delivered like this")
			}
			delete(known.owners, o.Token)
		}
		for _, o := range ev.Added {
			if _, there := known.owners[o.Token]; there {
				fail("added a known owner")
			}
			known.owners[o.Token] = string(o.Data)
		}
		for _, o := range ev.Updated {
			if _, there := known.owners[o.Token]; !there || !strings.HasPrefix(string(o.Data), "x") {
				fail("updated an unknown owner")
			}
			known.owners[o.Token] = string(o.Data)
		}
	}
	return true
}

// TestUnseenSemaphores: what comes and goes while a consumer takes no events is not delivered, and
// takes no memory.
func TestUnseenSemaphores(t *testing.T) {
	_, w, st := openStream(t, nil)
	index := uint64(0)
	send := func(name string, kind protocol.SemaphoreChangeKind) {
		index++
		st.delta(&delta{name: name, index: index,
			changes: []change{{kind, attributes{limit: 1, version: 1}, Owner{Token: index}}}})
	}
	var ev Event
	send("seen", protocol.ChangeCreated)
	if ok, err := w.next(&ev); !ok || err != nil || ev.Name != "seen" {
		t.Fatal(ok, err, ev)
	}
	send("kept", protocol.ChangeCreated)
	for i := range 1000 {
		name := fmt.Sprint("lock", i)
		send(name, protocol.ChangeCreated)
		send(name, protocol.ChangeOwnerAdded)
		send(name, protocol.ChangeDeleted)
		if len(w.names) != 2 || len(w.dirty) > 4 {
			t.Fatalf("after %d locks: %d names, %d to be delivered", i+1, len(w.names), len(w.dirty))
		}
	}
	send("seen", protocol.ChangeDeleted)
	send("lock0", protocol.ChangeCreated)
	var events []string
	for {
		ok, err := w.next(&ev)
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
	if len(w.names) != 2 || len(w.dirty) > 0 || w.unseen != 0 {
		t.Fatal(len(w.names), len(w.dirty), w.unseen)
	}
}
