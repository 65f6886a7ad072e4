package core

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

const testShards = 3

// TestLocalCopyOverMoves drives a watch of a prefix with naive shards whose buckets move at random.
// Each shard's stream arrives in order, but streams overtake each other, and break off and start
// again. Names that are always there are never told gone, and in the end the watch knows exactly
// what there is.
func TestLocalCopyOverMoves(t *testing.T) {
	for seed := range uint64(400) {
		m := newMovingShards(t, seed)
		for range 400 {
			m.step()
		}
		m.drain()
	}
}

// movingShards is the shards, and the client's watch of them.
type movingShards struct {
	t      *testing.T
	seed   uint64
	r      *rand.Rand
	b      *watchBench
	names  []string
	there  map[string]uint64 // name -> version; 0: it does not exist
	kept   map[string]bool   // it is always there
	owner  [testBuckets]int  // -1: frozen
	from   [testBuckets]int  // who froze it
	epoch  [testBuckets]uint64
	index  uint64
	queues [testShards][]any // *protocol.Snapshot, *protocol.Delta, on their way
	view   map[string]uint64
}

func newMovingShards(t *testing.T, seed uint64) *movingShards {
	m := &movingShards{t: t, seed: seed, r: rand.New(rand.NewPCG(seed, 2)), there: map[string]uint64{},
		kept: map[string]bool{}, view: map[string]uint64{}}
	m.b = newWatchBench(t, testShards, &Watch{Node: 7, Prefix: true})
	for b := range m.owner {
		m.owner[b], m.epoch[b] = b%testShards, 1
	}
	for i := range 24 {
		name := fmt.Sprintf("n%d", i)
		m.names = append(m.names, name)
		if i%3 > 0 {
			m.there[name], m.kept[name] = 1, i%3 == 1
		}
	}
	for i := range testShards {
		m.restart(i)
	}
	return m
}

func (m *movingShards) bucket(name string) uint32 {
	return protocol.Bucket(7, []byte(name), testBuckets)
}

// open opens the stream of a shard, again if need be: what was on its way is lost.
func (m *movingShards) open(shard int) {
	m.b.cut(uint64(shard + 1))
	m.b.reopen(uint64(shard + 1))
	m.queues[shard] = nil
	m.restart(shard)
}

// restart sends a shard's snapshot.
func (m *movingShards) restart(shard int) {
	m.index++
	page := &protocol.Snapshot{Index: m.index, First: true, Last: true}
	for b := range m.owner {
		run := protocol.BucketRun{Count: 1}
		if m.owner[b] == shard {
			run.Epoch = m.epoch[b]
		}
		page.Runs = append(page.Runs, run)
	}
	for _, name := range m.names {
		if v := m.there[name]; v > 0 && m.owner[m.bucket(name)] == shard {
			page.Semaphores = append(page.Semaphores, protocol.SnapshotItem{Name: []byte(name), Limit: 1, Version: v})
		}
	}
	m.queues[shard] = append(m.queues[shard], page)
}

func (m *movingShards) step() {
	b := m.r.IntN(testBuckets)
	switch x := m.r.IntN(100); {
	case x < 30:
		m.change()
	case x < 38 && m.owner[b] >= 0:
		m.from[b], m.owner[b] = m.owner[b], -1
		m.restart(m.from[b])
	case x < 50 && m.owner[b] < 0:
		m.owner[b], m.epoch[b] = m.r.IntN(testShards), m.epoch[b]+1+m.r.Uint64N(2)
		m.restart(m.owner[b])
	case x < 52:
		m.open(m.r.IntN(testShards))
	case x < 90:
		m.deliver(m.r.IntN(testShards))
	default:
		for m.read() {
		}
	}
}

func (m *movingShards) change() {
	name := m.names[m.r.IntN(len(m.names))]
	shard := m.owner[m.bucket(name)]
	if shard < 0 {
		return // nothing changes in a frozen bucket
	}
	m.index++
	var c protocol.SemaphoreChange
	switch v := m.there[name]; {
	case v > 0 && !m.kept[name] && m.r.IntN(3) == 0:
		m.there[name] = 0
		c.Kind = protocol.ChangeDeleted
	case v > 0:
		m.there[name] = m.index
		c = protocol.SemaphoreChange{Kind: protocol.ChangeData, Version: m.index}
	default:
		m.there[name] = m.index
		c = protocol.SemaphoreChange{Kind: protocol.ChangeCreated, Limit: 1, Version: m.index}
	}
	m.queues[shard] = append(m.queues[shard], &protocol.Delta{
		Node: 7, Name: []byte(name), Index: m.index, Changes: []protocol.SemaphoreChange{c},
	})
}

func (m *movingShards) deliver(shard int) {
	q := m.queues[shard]
	if len(q) == 0 {
		return
	}
	m.queues[shard] = q[1:]
	switch x := q[0].(type) {
	case *protocol.Snapshot:
		m.b.page(uint64(shard+1), x)
	case *protocol.Delta:
		m.b.delta(uint64(shard+1), x)
	}
}

func (m *movingShards) read() bool {
	var ev WatchEvent
	ok, err := m.b.w.Next(&ev)
	if err != nil {
		m.t.Fatal(err)
	}
	switch {
	case !ok:
		return false
	case ev.Kind == WatchDeleted && m.kept[ev.Name]:
		m.t.Fatalf("seed %d: %s was told gone, and has been there all the time", m.seed, ev.Name)
	case ev.Kind == WatchDeleted:
		delete(m.view, ev.Name)
	case ev.Kind == WatchChanged:
		if ev.Version < m.view[ev.Name] {
			m.t.Fatalf("seed %d: %s went back from version %d to %d", m.seed, ev.Name, m.view[ev.Name], ev.Version)
		}
		m.view[ev.Name] = ev.Version
	}
	return true
}

// drain ends all moves, delivers all there is, and compares.
func (m *movingShards) drain() {
	for b := range m.owner {
		if m.owner[b] < 0 {
			m.owner[b], m.epoch[b] = m.from[b], m.epoch[b]+1
			m.restart(m.from[b])
		}
	}
	for shard := range testShards {
		for len(m.queues[shard]) > 0 {
			m.deliver(shard)
		}
	}
	for m.read() {
	}
	if !m.b.w.synced {
		m.t.Fatalf("seed %d: not synced", m.seed)
	}
	for _, name := range m.names {
		if m.view[name] != m.there[name] {
			m.t.Fatalf("seed %d: %s is told at version %d, and is at %d", m.seed, name, m.view[name], m.there[name])
		}
	}
}
