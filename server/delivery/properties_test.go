package delivery

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/fanout"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/shard"
)

// TestSubscribers drives a hub with any interleaving of changes, windows, pages, slow readers and
// restarts, and holds it to what it promises:
//   - once everything has been read, each stream's client has exactly the store's state;
//   - a one-shot watch fires in the very change, once, with what changed in it, or with neither
//     flag when it was replaced or invalidated;
//   - when everybody is gone nothing is left.
func TestSubscribers(t *testing.T) {
	form.Checks(t, form.Size(200, 1000, 100_000))
	rapid.Check(t, func(t *rapid.T) { runSubscribers(t) })
}

type subscriberModel struct {
	*model
	t      *rapid.T
	order  uint64
	nextID uint64
	armed  map[uint64]*armed // by watch id
	names  []string
}

type armed struct {
	conn, owner, node uint64
	name              string
	flags             uint8
}

func runSubscribers(t *rapid.T) {
	opt := WatchOptions{Window: rapid.SampledFrom([]time.Duration{-1, 10 * time.Millisecond}).Draw(t, "window"),
		Pace: fanout.New(nil)}
	opt.Pace.PerConnection = 5 * time.Millisecond
	if rapid.Bool().Draw(t, "all pages are kept") {
		opt.Limits.CachedPage = 1
	}
	if rapid.Bool().Draw(t, "small pending") {
		opt.Limits.Pending = 300
	}
	s := &subscriberModel{model: newModel(opt), t: t, armed: make(map[uint64]*armed), names: []string{"a", "ab", "abc", "b", "ba"}}
	for node := uint64(1); node <= 2; node++ {
		s.store[node] = make(map[string]semaphore)
	}
	t.Repeat(map[string]func(*rapid.T){
		"change":  func(t *rapid.T) { s.t = t; s.batch() },
		"change2": func(t *rapid.T) { s.t = t; s.batch() },
		"advance": func(t *rapid.T) { s.t = t; s.advanceClock() },
		"open":    func(t *rapid.T) { s.t = t; s.open() },
		"close":   func(t *rapid.T) { s.t = t; s.closeOne() },
		"page":    func(t *rapid.T) { s.t = t; s.onePage() },
		"page2":   func(t *rapid.T) { s.t = t; s.onePage() },
		"arm":     func(t *rapid.T) { s.t = t; s.arm() },
		"soft":    func(t *rapid.T) { s.t = t; s.anyConn().soft = rapid.IntRange(0, 4).Draw(t, "frames") },
		"read":    func(t *rapid.T) { s.t = t; s.readSome() },
		"gone":    func(t *rapid.T) { s.t = t; s.closeConn(s.anyConn().id) },
		"doubt":   func(t *rapid.T) { s.t = t; s.invalidate(s.hub.InvalidateOneShots) },
		"jump":    func(t *rapid.T) { s.t = t; s.installSnapshot() },
		"settle":  func(t *rapid.T) { s.t = t; s.readAll() },
		"":        func(t *rapid.T) { s.t = t; s.check() },
	})
	s.readAll()
	s.batch()
	for id := range s.conns {
		s.closeConn(id)
	}
	s.advance(s.now + time.Second)
	if left := s.left(); left != "" {
		t.Fatalf("left over: %s", left)
	}
}

func (s *subscriberModel) anyConn() *client {
	return s.conn(rapid.Uint64Range(1, 3).Draw(s.t, "conn"))
}

func (s *subscriberModel) anyName() string {
	return rapid.SampledFrom(s.names).Draw(s.t, "name")
}

// mutate makes one valid change of a random semaphore.
func (s *subscriberModel) mutate(sems map[string]semaphore, node uint64) shard.SemaphoreChange {
	name := s.anyName()
	c := shard.SemaphoreChange{Node: node, Name: []byte(name)}
	cur, ok := sems[name]
	text := func() []byte { return []byte(rapid.StringMatching(`[xyz]{0,3}`).Draw(s.t, "data")) }
	if !ok {
		c.SemaphoreChange = protocol.SemaphoreChange{Kind: protocol.ChangeCreated, Limit: 5, Version: 1, Data: text()}
	} else {
		owners := slices.Sorted(maps.Keys(cur.owners))
		switch n := rapid.IntRange(0, 9).Draw(s.t, "kind"); {
		case n == 7:
			c.Kind = protocol.ChangeDeleted
		case n == 0:
			c.SemaphoreChange = protocol.SemaphoreChange{Kind: protocol.ChangeLimit, Limit: rapid.Uint64Range(1, 9).Draw(s.t, "limit")}
		case n <= 2:
			c.SemaphoreChange = protocol.SemaphoreChange{Kind: protocol.ChangeData, Version: cur.version + 1, Data: text()}
		case n <= 4 && len(owners) > 0:
			c.SemaphoreChange = protocol.SemaphoreChange{Kind: protocol.ChangeOwnerRemoved}
			c.Owner.OrderID = rapid.SampledFrom(owners).Draw(s.t, "owner")
		case n <= 6 && len(owners) > 0:
			c.SemaphoreChange = protocol.SemaphoreChange{Kind: protocol.ChangeOwnerChanged}
			c.Owner = protocol.Owner{OrderID: rapid.SampledFrom(owners).Draw(s.t, "owner"), Data: text()}
		default:
			s.order++
			c.SemaphoreChange = protocol.SemaphoreChange{Kind: protocol.ChangeOwnerAdded,
				Owner: protocol.Owner{OrderID: s.order, Data: text()}}
		}
	}
	apply(sems, name, &c.SemaphoreChange)
	return c
}

func (s *subscriberModel) batch() {
	// mutate needs the state in between, which world.change makes again: work on a copy.
	node := rapid.Uint64Range(1, 2).Draw(s.t, "node")
	sems := make(map[string]semaphore)
	for k, v := range s.store[node] {
		sems[k] = v.clone()
	}
	var changes []shard.SemaphoreChange
	said := make(map[string]uint8)
	for range rapid.IntRange(1, 20).Draw(s.t, "changes") {
		c := s.mutate(sems, node)
		changes = append(changes, c)
		said[string(c.Name)] |= watchFlags(c.Kind)
	}
	want := make(map[uint64]uint8)
	for id, a := range s.armed {
		if flags := said[a.name]; a.node == node && flags&a.flags != 0 {
			want[id] = flags
		}
	}
	s.change(changes...)
	s.expectFired(want)
}

// expectFired checks that exactly these one-shot watches fired since the last look.
func (s *subscriberModel) expectFired(want map[uint64]uint8) {
	for _, line := range s.lines {
		var conn, id, session uint64
		var data, owners bool
		if n, _ := fmt.Sscanf(line, "conn %d < fired %d of session %d: data=%t owners=%t", &conn, &id, &session, &data, &owners); n != 5 {
			continue
		}
		flags, ok := want[id]
		if !ok || data != (flags&protocol.WatchData != 0) || owners != (flags&protocol.WatchOwners != 0) || conn != s.armed[id].conn {
			s.t.Fatalf("%s; expected %v, flags %d", line, ok, flags)
		}
		delete(want, id)
		delete(s.armed, id)
	}
	if len(want) > 0 {
		s.t.Fatalf("did not fire: %v", want)
	}
	s.lines = nil
}

func (s *subscriberModel) advanceClock() {
	s.advance(s.now + time.Duration(rapid.IntRange(1, 30).Draw(s.t, "ms"))*time.Millisecond)
}

func (s *subscriberModel) open() {
	c := s.anyConn()
	s.nextID++
	m := protocol.Watch{Shard: testShard, Node: rapid.Uint64Range(1, 2).Draw(s.t, "node"), Prefix: rapid.Bool().Draw(s.t, "prefix")}
	m.Name = []byte(s.anyName())
	if m.Prefix && rapid.Bool().Draw(s.t, "everything") {
		m.Name = nil
	}
	c.views[s.nextID] = &streamView{node: m.Node, key: string(m.Name), prefix: m.Prefix}
	if err := s.hub.Open(c.id, s.nextID, &m, noQuota); err != nil {
		s.t.Fatal(err)
	}
}

func (s *subscriberModel) closeOne() {
	c := s.anyConn()
	if len(c.views) == 0 {
		return
	}
	id := rapid.SampledFrom(slices.Sorted(maps.Keys(c.views))).Draw(s.t, "stream")
	delete(c.views, id)
	if !s.hub.Close(c.id, id) {
		s.t.Fatalf("stream %d was not open", id)
	}
}

func (s *subscriberModel) onePage() {
	if c := s.anyConn(); c.soft == 0 || len(c.queue) < c.soft {
		room := rapid.IntRange(1, 6).Draw(s.t, "room")
		if sent, _ := s.hub.CachedPage(c.id, room); !sent {
			s.hub.Page(c.id, s, room)
		}
	}
}

func (s *subscriberModel) arm() {
	c := s.anyConn()
	s.nextID++
	a := &armed{conn: c.id, node: rapid.Uint64Range(1, 2).Draw(s.t, "node"), name: s.anyName(),
		flags: rapid.Uint8Range(1, 3).Draw(s.t, "flags") * protocol.WatchData}
	session := rapid.Uint64Range(0, 2).Draw(s.t, "session")
	a.owner = session
	if session == 0 {
		a.owner = 1000 + c.id
	}
	want := make(map[uint64]uint8)
	for id, old := range s.armed {
		if old.owner == a.owner && old.node == a.node && old.name == a.name {
			want[id] = 0
		}
	}
	if err := s.hub.OneShot(c.id, session, a.node, []byte(a.name), a.flags, s.nextID, noQuota); err != nil {
		s.t.Fatal(err)
	}
	s.expectFired(want)
	s.armed[s.nextID] = a
}

func (s *subscriberModel) readSome() {
	c := s.anyConn()
	for range rapid.IntRange(0, len(c.queue)).Draw(s.t, "frames") {
		c.read(s.t)
	}
}

func (s *subscriberModel) closeConn(id uint64) {
	s.hub.connClosed(id)
	delete(s.conns, id)
	for watch, a := range s.armed {
		if a.conn == id {
			delete(s.armed, watch)
		}
	}
}

func (s *subscriberModel) invalidate(how func()) {
	want := make(map[uint64]uint8)
	for id := range s.armed {
		want[id] = 0
	}
	s.lines = nil
	how()
	s.expectFired(want)
}

// jump changes the store behind the hub's back.
func (s *subscriberModel) installSnapshot() {
	s.index += 10
	for range rapid.IntRange(0, 5).Draw(s.t, "changes") {
		s.mutate(s.store[1], 1)
	}
	s.invalidate(s.hub.snapshotInstalled)
}

func (s *subscriberModel) readAll() { s.model.readAll(s.t) }

// check holds the hub's tables together.
func (s *subscriberModel) check() {
	h := s.hub
	streams, shots, bytes := 0, 0, 0
	for id, c := range h.conns {
		if len(c.streams) == 0 && c.count == 0 || s.conns[id] == nil {
			s.t.Fatalf("connection %d is kept for nothing", id)
		}
		streams += len(c.streams)
		shots += c.count
		queued := 0
		for _, st := range c.streams {
			if st.target.streams[st.index] != st {
				s.t.Fatalf("stream %d is out of place", st.id)
			}
			if st.live == st.queued {
				s.t.Fatalf("stream %d: live %v, queued %v", st.id, st.live, st.queued)
			}
			if st.queued {
				queued++
			}
		}
		if queued != len(c.pageQueue) {
			s.t.Fatalf("connection %d: %d of %d streams wait", id, len(c.pageQueue), queued)
		}
	}
	for _, p := range h.pending {
		if s.wake > p.due {
			s.t.Fatalf("the flusher is not woken for what is due at %v", p.due)
		}
		bytes += p.size
		size := 0
		for _, c := range p.changes(nil) {
			size += changeSize(&c)
		}
		if p.size != size || h.nodes[p.node.id] != p.node || p.node.pending[p.key] != p {
			s.t.Fatalf("pending %q: size %d, counted %d", p.key, p.size, size)
		}
	}
	counted := 0
	for _, n := range h.opt.Quota.open {
		counted += int(n)
	}
	if counted != streams+shots {
		s.t.Fatalf("%d streams and %d shots, the quota counts %d", streams, shots, counted)
	}
	if shots != len(h.oneShots) || shots != len(s.armed) || bytes != h.pendingBytes ||
		int(h.active.Load()) != streams+shots+len(h.pending)+h.histories.Len() {
		s.t.Fatalf("%d shots, table %d, model %d; %d bytes, counted %d; load %d", shots, len(h.oneShots),
			len(s.armed), h.pendingBytes, bytes, h.active.Load())
	}
}
