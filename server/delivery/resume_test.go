package delivery

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/shard"
)

// TestResume has clients that lose their connections and come back, with what they know, at any
// replica. Replicas apply one log, each at its own pace, and merge changes in windows of their own.
// Whatever a client is answered, it has the log's state once it has read everything.
func TestResume(t *testing.T) {
	checks, resumed := form.Size(100, 300, 50_000), 0
	form.Checks(t, checks)
	rapid.Check(t, func(t *rapid.T) { resumed += runResume(t) })
	if resumed < checks {
		t.Errorf("%d streams resumed: the histories do not try it", resumed)
	}
}

// resumeModel is a log, its replicas, and clients of one stream each.
type resumeModel struct {
	t        *rapid.T
	author   *subscriberModel // makes changes that are possible
	log      [][]shard.SemaphoreChange
	replicas []*model
	clients  []*resumeClient
	nextID   uint64
	resumed  int
}

type resumeClient struct {
	id   uint64 // of its connection, at any replica
	at   *model // nil: it has no connection
	view *streamView
}

func runResume(t *rapid.T) int {
	m := &resumeModel{t: t, author: &subscriberModel{t: t, model: newModel(WatchOptions{}), names: []string{"a", "b"}}}
	m.author.store[1] = make(map[string]semaphore)
	for range 2 {
		opt := WatchOptions{Window: rapid.SampledFrom([]time.Duration{-1, 10 * time.Millisecond}).Draw(t, "window")}
		opt.Limits.CachedPage = rapid.IntRange(0, 1).Draw(t, "cached")
		if m.oneOf(4) == 0 {
			opt.Histories = NewHistoryBudget(2 * historyCost)
		}
		r := newModel(opt)
		r.store[1] = make(map[string]semaphore)
		m.replicas = append(m.replicas, r)
	}
	for i := range uint64(8) {
		c := &resumeClient{id: i + 1, view: &streamView{node: 1, key: m.author.names[i%2]}}
		m.clients = append(m.clients, c)
	}
	actions := []func(){m.change, m.change, m.applySome, m.applySome, m.advance, m.onePage, m.readSome, m.comeBack,
		m.comeBack, m.comeBack, func() { m.lose(m.anyClient()) }, func() { m.open(m.anyClient(), m.anyReplica()) },
		m.rarely(m.installSnapshot), m.rarely(m.move), m.rarely(m.readAll)}
	for range 150 {
		actions[m.oneOf(len(actions))]()
	}
	m.readAll()
	for _, c := range m.clients {
		m.lose(c)
	}
	for _, r := range m.replicas {
		r.advance(r.now + time.Second)
		if left := r.left(); left != "" {
			t.Fatalf("left over: %s", left)
		}
	}
	return m.resumed
}

// oneOf is a number below n, each as likely as the others: rapid's own ranges prefer small ones.
func (m *resumeModel) oneOf(n int) int {
	return rapid.SampledFrom([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}[:n]).Draw(m.t, "one")
}

func (m *resumeModel) anyReplica() *model {
	return m.replicas[m.oneOf(len(m.replicas))]
}

func (m *resumeModel) anyClient() *resumeClient {
	return m.clients[m.oneOf(len(m.clients))]
}

// change appends an entry to the log.
func (m *resumeModel) change() {
	var entry []shard.SemaphoreChange
	for range rapid.IntRange(1, 4).Draw(m.t, "changes") {
		entry = append(entry, m.author.mutate(m.author.store[1], 1))
	}
	m.log = append(m.log, entry)
}

func (m *resumeModel) applySome() { m.apply(m.anyReplica(), rapid.IntRange(1, 3).Draw(m.t, "entries")) }

func (m *resumeModel) advance() {
	r := m.anyReplica()
	r.advance(r.now + 7*time.Millisecond)
}

func (m *resumeModel) onePage() { m.page(m.anyClient(), rapid.IntRange(1, 3).Draw(m.t, "room")) }

func (m *resumeModel) readSome() { m.read(m.anyClient(), 2) }

func (m *resumeModel) rarely(f func()) func() {
	return func() {
		if m.oneOf(10) == 0 {
			f()
		}
	}
}

func (m *resumeModel) apply(r *model, entries int) {
	for ; entries > 0 && r.index < uint64(len(m.log)); entries-- {
		r.change(slices.Clone(m.log[r.index])...)
	}
}

func (m *resumeModel) page(c *resumeClient, room int) (more bool) {
	if c.at == nil {
		return false
	}
	sent, more := c.at.hub.CachedPage(c.id, room)
	if !sent {
		more = c.at.hub.Page(c.id, c.at, room)
	}
	return more
}

// read has a client read some frames. One whose stream was cut has lost it.
func (m *resumeModel) read(c *resumeClient, frames int) {
	if c.at == nil {
		return
	}
	conn, was := c.at.conns[c.id], c.view.resumed
	for ; frames > 0 && len(conn.queue) > 0; frames-- {
		conn.read(m.t)
	}
	m.resumed += c.view.resumed - was
	if len(conn.cut) > 0 {
		m.lose(c)
	}
}

// lose ends a connection, with what was not read.
func (m *resumeModel) lose(c *resumeClient) {
	if c.at == nil {
		return
	}
	c.at.hub.connClosed(c.id)
	delete(c.at.conns, c.id)
	c.at, c.view.live = nil, false
}

// open opens a client's stream at a replica. What it has of a snapshot that did not end is nothing.
func (m *resumeModel) open(c *resumeClient, at *model) {
	m.lose(c)
	c.at = at
	if c.view.known == 0 {
		c.view.sems = nil
	}
	m.nextID++
	at.conn(c.id).views[m.nextID] = c.view
	w := &protocol.Watch{Shard: testShard, Node: 1, Name: []byte(c.view.key), Known: c.view.known, Epoch: c.view.epoch}
	if err := at.hub.Open(c.id, m.nextID, w, noQuota); err != nil {
		m.t.Fatal(err)
	}
}

// comeBack is a client that reads what it is answered at once.
func (m *resumeModel) comeBack() {
	c := m.anyClient()
	m.open(c, m.anyReplica())
	m.page(c, 100)
	m.read(c, 1000)
}

// move gives the buckets another epoch, as when they were elsewhere meanwhile.
func (m *resumeModel) move() {
	for _, r := range m.replicas {
		m.apply(r, len(m.log))
		r.hub.namesFrozen(func(uint64, []byte) bool { return true })
		r.epoch++
		r.hub.bucketsActive()
		r.lines = nil
	}
}

// installSnapshot moves a replica on behind its hub's back.
func (m *resumeModel) installSnapshot() {
	r := m.anyReplica()
	for ; r.index < uint64(len(m.log)); r.index++ {
		for i := range m.log[r.index] {
			apply(r.store[1], string(m.log[r.index][i].Name), &m.log[r.index][i].SemaphoreChange)
		}
	}
	r.hub.snapshotInstalled()
}

// readAll has everybody connected, and compares what they have.
func (m *resumeModel) readAll() {
	for _, r := range m.replicas {
		m.apply(r, len(m.log))
		r.advance(r.now + time.Second)
	}
	for _, c := range m.clients {
		m.read(c, 1000)
		if c.at == nil {
			m.open(c, m.anyReplica())
		}
		for more := true; more || !c.view.live; {
			more = m.page(c, 2)
			m.read(c, 1000)
			if c.at == nil {
				m.t.Fatalf("client %d was cut by a replica that has applied everything", c.id)
			}
		}
		want := make(map[string]semaphore)
		if s, ok := m.author.store[1][c.view.key]; ok {
			want[c.view.key] = s
		}
		if !maps.EqualFunc(c.view.sems, want, semaphore.equal) {
			m.t.Fatalf("client %d has %v\nthe log has %v", c.id, c.view.sems, want)
		}
	}
}
