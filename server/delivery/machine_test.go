package delivery

import (
	"encoding/binary"
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/shard"
)

// TestMachine drives the hub with the real machine, its changes and its pages: whatever clients do
// and whenever pages are read, each stream ends up with exactly what the machine has.
func TestMachine(t *testing.T) {
	form.Checks(t, form.Size(100, 300, 30_000))
	rapid.Check(t, func(t *rapid.T) { runMachine(t) })
}

type actor struct{ id, seq uint64 }

type machineModel struct {
	*model
	t       *rapid.T
	m       *shard.Machine
	events  shard.Events
	entry   []byte
	batches uint64
	time    uint64
	creates uint64
	actors  []*actor
	lastID  uint64
}

func runMachine(t *rapid.T) {
	x := newMachineModel(1)
	x.t = t
	for range 5 {
		x.actors = append(x.actors, x.startSession())
	}
	act := func(f func()) func(*rapid.T) { return func(t *rapid.T) { x.t = t; f() } }
	t.Repeat(map[string]func(*rapid.T){
		"batch":   act(x.batch),
		"batch2":  act(x.batch),
		"open":    act(x.openOne),
		"page":    act(x.onePage),
		"page2":   act(x.onePage),
		"advance": act(x.advance),
		"stop":    act(x.stopSession),
		"soft":    act(func() { x.anyConn().soft = rapid.IntRange(0, 3).Draw(x.t, "frames") }),
		"read":    act(x.readSome),
		"settle":  act(x.readAll),
	})
	x.t = t
	x.readAll()
}

// newMachineModel has a machine that leads, with all buckets and with the nodes 1 to n.
func newMachineModel(nodes uint64) *machineModel {
	x := &machineModel{model: newModel(WatchOptions{Window: 10 * time.Millisecond, Limits: WatchLimits{CachedPage: 1}}), m: shard.New(testShard), time: 1000}
	const buckets = 16
	x.begin()
	x.add(shard.Command{Kind: shard.CmdTakeOver})
	x.apply()
	x.begin()
	x.add(shard.Command{Kind: shard.CmdBuckets, Body: shard.AppendBuckets(nil, shard.BucketsBody{Total: buckets, Count: buckets})})
	config := protocol.NodeConfig{SelfCheckPeriod: 1000, GracePeriod: 10_000, MaxSessions: 1000, MaxSemaphores: 100,
		MaxBytes: 1 << 30, MaxWaiters: 1000, MaxWatchers: 1000}
	for node := uint64(1); node <= nodes; node++ {
		x.add(shard.Command{Kind: shard.CmdNodePut, Body: shard.AppendNodePut(nil, shard.NodePutBody{Node: node, Revision: 1, Config: config})})
	}
	x.apply()
	return x
}

func (x *machineModel) begin() {
	x.batches++
	x.entry = shard.AppendHeader(x.entry[:0],
		shard.Header{Format: shard.FormatVersion, Epoch: 1 << 16, Seq: x.batches, LogTime: x.time, Wall: x.time})
}

func (x *machineModel) add(c shard.Command) { x.entry = shard.AppendCommand(x.entry, c) }

// request adds a client's request.
func (x *machineModel) request(kind shard.CommandKind, m protocol.Message) {
	x.add(shard.Command{Kind: kind, Node: 1, Epoch: 1, Body: protocol.AppendBody(nil, m)})
}

func (x *machineModel) apply() {
	x.index++
	x.events.Reset()
	x.m.Apply(x.index, x.entry, &x.events)
	x.hub.Changed(x.index, x.events.SemaphoreChanges)
}

func (x *machineModel) startSession() *actor {
	x.creates++
	id := binary.BigEndian.AppendUint64(make([]byte, 8), x.creates)
	x.begin()
	x.request(shard.CmdSessionStart,
		&protocol.SessionStart{Node: 1, CreateID: id, Key: id, Timeout: 10_000, Description: "actor", Nonce: 1})
	x.apply()
	for _, e := range x.events.List {
		if e.Kind == shard.EventReply && e.Status == protocol.StatusOK {
			return &actor{id: e.Session}
		}
	}
	x.t.Fatalf("session did not start: %+v", x.events.List)
	return nil
}

// stopSession ends a session, and with it what it holds and waits for, and starts another.
func (x *machineModel) stopSession() {
	i := rapid.IntRange(0, len(x.actors)-1).Draw(x.t, "actor")
	x.begin()
	x.request(shard.CmdSessionStop, &protocol.SessionStop{Session: x.actors[i].id, Epoch: 1})
	x.apply()
	x.actors[i] = x.startSession()
}

// batch applies a few requests of any kind; many are refused, which must show nowhere.
func (x *machineModel) batch() {
	x.begin()
	for range rapid.IntRange(1, 12).Draw(x.t, "requests") {
		a := rapid.SampledFrom(x.actors).Draw(x.t, "actor")
		a.seq++
		head := protocol.Head{Session: a.id, Seq: a.seq, Low: a.seq}
		name := []byte(rapid.SampledFrom([]string{"a", "ab", "b", "e1", "e2"}).Draw(x.t, "name"))
		data := []byte(rapid.StringMatching(`[xyz]{0,20}`).Draw(x.t, "data"))
		n := rapid.Uint64Range(1, 4).Draw(x.t, "n")
		switch rapid.IntRange(0, 9).Draw(x.t, "request") {
		case 0, 1:
			x.request(shard.CmdCreate, &protocol.Create{Head: head, Name: name, Limit: n, Data: data})
		case 2:
			x.request(shard.CmdUpdate, &protocol.Update{Head: head, Name: name, Data: data})
		case 3:
			x.request(shard.CmdResize, &protocol.Resize{Head: head, Name: name, Limit: n})
		case 4:
			x.request(shard.CmdDelete, &protocol.Delete{Head: head, Name: name, Force: n > 1})
		case 5, 6:
			x.request(shard.CmdRelease, &protocol.Release{Head: head, Name: name})
		default:
			x.request(shard.CmdAcquire, &protocol.Acquire{Head: head, Name: name, Count: n, Timeout: (n - 1) * 1000,
				Data: data, Ephemeral: name[0] == 'e'})
		}
	}
	x.apply()
}

// advance moves both clocks: windows end, waiters time out.
func (x *machineModel) advance() {
	ms := rapid.IntRange(1, 1500).Draw(x.t, "ms")
	x.time += uint64(ms)
	x.model.advance(x.now + time.Duration(ms)*time.Millisecond)
	x.begin()
	x.apply()
}

func (x *machineModel) anyConn() *client { return x.conn(rapid.Uint64Range(1, 2).Draw(x.t, "conn")) }

func (x *machineModel) openOne() {
	c := x.anyConn()
	x.lastID++
	w := protocol.Watch{Shard: testShard, Node: 1, Name: []byte(rapid.SampledFrom([]string{"", "a", "ab", "e"}).Draw(x.t, "key"))}
	w.Prefix = len(w.Name) == 0 || rapid.Bool().Draw(x.t, "prefix")
	c.views[x.lastID] = &streamView{node: 1, key: string(w.Name), prefix: w.Prefix}
	if err := x.hub.Open(c.id, x.lastID, &w, noQuota); err != nil {
		x.t.Fatal(err)
	}
}

func (x *machineModel) onePage() {
	if c := x.anyConn(); c.soft == 0 || len(c.queue) < c.soft {
		room := rapid.IntRange(1, 400).Draw(x.t, "bytes")
		if sent, _ := x.hub.CachedPage(c.id, room); !sent {
			x.hub.Page(c.id, x.m.Semaphores(), room)
		}
	}
}

func (x *machineModel) readSome() {
	c := x.anyConn()
	for range rapid.IntRange(0, len(c.queue)).Draw(x.t, "frames") {
		c.read(x.t)
	}
}

func (x *machineModel) readAll() {
	x.model.advance(x.now + time.Second)
	for _, c := range x.conns {
		for more := true; more; {
			for len(c.queue) > 0 {
				c.read(x.t)
			}
			more = x.hub.Page(c.id, x.m.Semaphores(), 100)
		}
		for len(c.queue) > 0 {
			c.read(x.t)
		}
		for id, v := range c.views {
			want := x.truth(v)
			if !v.live || !maps.EqualFunc(v.sems, want, semaphore.equal) {
				x.t.Fatalf("conn %d stream %d (%q prefix %v, live %v) has %v\nthe machine has %v", c.id, id, v.key,
					v.prefix, v.live, v.sems, want)
			}
		}
	}
}

// truth is what the machine has of a stream, by describing one semaphore after another.
func (x *machineModel) truth(v *streamView) map[string]semaphore {
	sems := make(map[string]semaphore)
	for _, name := range []string{"a", "ab", "b", "e1", "e2"} {
		if name != v.key && (!v.prefix || len(name) < len(v.key) || name[:len(v.key)] != v.key) {
			continue
		}
		var d protocol.DescribeReply
		err := x.m.Semaphores().Describe(&protocol.Describe{Node: 1, Name: []byte(name), Flags: protocol.WithOwners}, &d)
		if protocol.StatusOf(err) == protocol.StatusNotFound {
			continue
		}
		if err != nil || len(d.Cursor) > 0 {
			x.t.Fatalf("describe %s: %v, cursor %x", name, err, d.Cursor)
		}
		s := semaphore{limit: d.Limit, version: d.Version, ephemeral: d.Ephemeral, data: string(d.Data), owners: make(map[uint64]string)}
		for _, o := range d.Owners {
			s.owners[o.OrderID] = string(o.Data)
		}
		sems[name] = s
	}
	return sems
}
