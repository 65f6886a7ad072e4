package core

import (
	"slices"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// modelLog is the log of a shard: who holds its names, as of each index.
type modelLog struct {
	entries []modelEntryAt
	applied map[uint64]uint64 // by instance: how far it is
}

// modelEntryAt: from its index on, a name is held under an order id; 0: it does not exist.
type modelEntryAt struct {
	at    time.Duration
	name  string
	order uint64
}

func (l *modelLog) last() uint64 { return uint64(len(l.entries)) }

// at is who holds the names at an index.
func (l *modelLog) at(index uint64) map[string]uint64 {
	state := map[string]uint64{}
	for _, x := range l.entries[:index] {
		state[x.name] = x.order
	}
	return state
}

// modelStream is a stream that an instance serves.
type modelStream struct {
	kind   protocol.Kind
	id     uint64
	shard  uint64
	name   string
	prefix bool
	begun  bool
	index  uint64 // what was sent
	known  uint64 // what the client knows
}

func (st *modelStream) concerns(name string) bool {
	return name == st.name || st.prefix && strings.HasPrefix(name, st.name)
}

// holderChanged appends to the log of a name's shard, if another one holds it.
func (w *world) holderChanged(name string) {
	l := w.log(shardOfName(name))
	order := uint64(0)
	if n := w.names[name]; n != nil && len(n.queue) > 0 {
		order = n.queue[0].order
	}
	if l.at(l.last())[name] != order {
		l.entries = append(l.entries, modelEntryAt{w.now, name, order})
		l.applied[w.leaders[shardOfName(name)]] = l.last()
	}
}

func (w *world) log(shard uint64) *modelLog {
	l := w.logs[shard]
	if l == nil {
		l = &modelLog{applied: map[uint64]uint64{}}
		w.logs[shard] = l
	}
	return l
}

// apply lets replicas catch up, each at its own pace.
func (w *world) apply() {
	for shard := range uint64(worldShards) {
		l := w.log(shard + 1)
		for i := range uint64(worldInstances) {
			if w.rng.IntN(4) == 0 || w.quiet {
				l.applied[i+1] = min(l.last(), l.applied[i+1]+w.rng.Uint64N(4)+1)
			}
		}
	}
}

// openStream serves a request that opens a stream.
func (k *worldConn) openStream(h protocol.Header, refuse func(protocol.Status, protocol.Failure), answer func(protocol.Message)) {
	w := k.c.w
	st := &modelStream{kind: h.Kind, id: h.ID, shard: shardOfBucket(h.Arg)}
	if h.Kind == protocol.KindWatch {
		var m protocol.Watch
		_ = protocol.DecodeBody(&m, h.Body)
		st.shard, st.name, st.prefix, st.known = m.Shard, string(m.Name), m.Prefix, m.Known
	}
	if w.chance(20) {
		refuse([]protocol.Status{protocol.StatusOverloaded, protocol.StatusUnavailable}[w.rng.IntN(2)], protocol.Failure{})
		return
	}
	w.counts["stream opened"]++
	k.streams = append(k.streams, st)
	answer(&protocol.Empty{})
}

// serveStreams sends what the instance has applied.
func (k *worldConn) serveStreams() {
	w := k.c.w
	for _, st := range slices.Clone(k.streams) {
		l := w.log(st.shard)
		now := l.applied[k.instance]
		switch {
		case w.chance(300):
			w.counts["stream cut"]++
			k.streams = slices.DeleteFunc(k.streams, func(x *modelStream) bool { return x == st })
			k.sendFrom(st.shard, protocol.KindStreamCut, st.id, &protocol.StreamCut{Status: protocol.StatusUnavailable})
		case st.kind == protocol.KindProcessWatch && (!st.begun || now > st.index):
			if !st.begun || w.chance(10) {
				k.sendFrom(st.shard, protocol.KindProcessState, st.id, &protocol.ProcessState{
					First: true, Last: true, Exists: true, Status: protocol.ProcessStatus{Name: []byte("p"), Index: now},
				})
			} else {
				k.sendFrom(st.shard, protocol.KindProcessChanges, st.id, &protocol.ProcessChanges{Revision: now})
			}
			st.begun, st.index = true, now
		case st.kind == protocol.KindProcessWatch:
		case !st.begun && st.known > now:
			w.counts["stream resumed too early"]++
			k.streams = slices.DeleteFunc(k.streams, func(x *modelStream) bool { return x == st })
			k.sendFrom(st.shard, protocol.KindStreamCut, st.id, &protocol.StreamCut{Status: protocol.StatusUnavailable})
		case !st.begun && st.known > 0 && !w.chance(5):
			k.resume(st, l, now)
		case !st.begun || w.chance(200):
			k.snapshot(st, l, now)
		default:
			k.deltas(st, l, st.index, now)
			st.index = now
		}
	}
}

// snapshot sends the state, in one page or in two, between which a change may come.
func (k *worldConn) snapshot(st *modelStream, l *modelLog, now uint64) {
	state := l.at(now)
	var items []protocol.SnapshotItem
	for _, name := range worldNames {
		if order := state[name]; order != 0 && st.concerns(name) && shardOfName(name) == st.shard {
			items = append(items, protocol.SnapshotItem{
				Name: []byte(name), Limit: protocol.Forever, Version: 1, Owners: []protocol.Owner{{OrderID: order}},
			})
		}
	}
	first := &protocol.Snapshot{Index: now, First: true, Last: true, Semaphores: items}
	if st.prefix {
		runs := []protocol.BucketRun{{Count: worldBuckets / 2}, {Count: worldBuckets / 2}}
		runs[st.shard-1].Epoch = 1
		first.Runs = runs
	}
	st.begun, st.index = true, now
	if len(items) < 2 {
		k.sendFrom(st.shard, protocol.KindSnapshot, st.id, first)
		return
	}
	first.Semaphores, first.Last = items[:1], false
	k.sendFrom(st.shard, protocol.KindSnapshot, st.id, first)
	k.c.w.counts["snapshot of two pages"]++
	later := min(l.last(), now+2)
	k.deltas(st, l, now, later)
	state = l.at(later)
	second := &protocol.Snapshot{Index: later, Last: true}
	for _, name := range worldNames {
		if order := state[name]; order != 0 && name > string(items[0].Name) && st.concerns(name) && shardOfName(name) == st.shard {
			second.Semaphores = append(second.Semaphores, protocol.SnapshotItem{
				Name: []byte(name), Limit: protocol.Forever, Version: 1, Owners: []protocol.Owner{{OrderID: order}},
			})
		}
	}
	k.sendFrom(st.shard, protocol.KindSnapshot, st.id, second)
	st.index = later
	l.applied[k.instance] = max(l.applied[k.instance], later)
}

// resume sends what the client lacks, in one delta or in two, of which the first may have older
// changes too.
func (k *worldConn) resume(st *modelStream, l *modelLog, now uint64) {
	k.c.w.counts["stream resumed"]++
	m := &protocol.Snapshot{Index: now, First: true, Last: true, Resumed: true}
	middle := st.known + k.c.w.rng.Uint64N(now-st.known+1)
	for _, part := range [][2]uint64{{k.c.w.rng.Uint64N(st.known + 1), middle}, {middle, now}} {
		if list := k.merged(l, st.name, part[0], part[1]); len(list) > 0 {
			m.Deltas = protocol.AppendFrame(m.Deltas, protocol.KindDelta, 0, st.shard,
				&protocol.Delta{Node: 7, Name: []byte(st.name), Index: part[1], Changes: list})
		}
	}
	k.sendFrom(st.shard, protocol.KindSnapshot, st.id, m)
	st.begun, st.index = true, now
}

// deltas sends the changes behind an index up to another one, merged.
func (k *worldConn) deltas(st *modelStream, l *modelLog, from, to uint64) {
	if to <= from {
		return
	}
	before, after := l.at(from), l.at(to)
	for _, name := range worldNames {
		was, is := before[name], after[name]
		list := k.changes(was, is)
		if len(list) == 0 || !st.concerns(name) {
			continue
		}
		k.delta(st.shard, &protocol.Delta{Node: 7, Name: []byte(name), Index: to, Changes: list})
	}
}

// merged are the changes of a name between two indexes, which may have begun before what the client
// knows: whatever was there meanwhile is removed, as a delta of the server has it.
func (k *worldConn) merged(l *modelLog, name string, from, to uint64) (list []protocol.SemaphoreChange) {
	was, is := l.at(from)[name], l.at(to)[name]
	for i := from + 1; i <= to; i++ {
		switch now := l.at(i)[name]; {
		case now == was:
		case was == 0 || now == 0:
			list = []protocol.SemaphoreChange{{Kind: protocol.ChangeDeleted}}
			was = now
		default:
			list = append(list, protocol.SemaphoreChange{Kind: protocol.ChangeOwnerRemoved, Owner: protocol.Owner{OrderID: was}})
			was = now
		}
	}
	if is == 0 || len(list) == 0 {
		return list
	}
	if list[0].Kind == protocol.ChangeDeleted {
		list = append(list, protocol.SemaphoreChange{Kind: protocol.ChangeCreated, Limit: protocol.Forever, Version: 1})
	}
	return append(list, protocol.SemaphoreChange{Kind: protocol.ChangeOwnerAdded, Owner: protocol.Owner{OrderID: is}})
}

// changes make a name held under another order id; 0: it does not exist.
func (k *worldConn) changes(was, is uint64) (list []protocol.SemaphoreChange) {
	if was == is {
		return nil
	}
	if is == 0 || was == 0 || k.c.w.rng.IntN(2) == 0 {
		list = append(list, protocol.SemaphoreChange{Kind: protocol.ChangeDeleted})
		was = 0
	}
	if is != 0 && was == 0 {
		list = append(list, protocol.SemaphoreChange{Kind: protocol.ChangeCreated, Limit: protocol.Forever, Version: 1})
	}
	if was != 0 {
		list = append(list, protocol.SemaphoreChange{Kind: protocol.ChangeOwnerRemoved, Owner: protocol.Owner{OrderID: was}})
	}
	if is != 0 {
		list = append(list, protocol.SemaphoreChange{Kind: protocol.ChangeOwnerAdded, Owner: protocol.Owner{OrderID: is}})
	}
	return list
}

// delta goes out once for all streams of the connection that it concerns: here each has its own, and
// one that comes twice is right too.
func (k *worldConn) delta(shard uint64, m *protocol.Delta) {
	k.sendFrom(shard, protocol.KindDelta, 0, m)
}

func (k *worldConn) sendFrom(shard uint64, kind protocol.Kind, id uint64, m protocol.Message) {
	k.send(kind, id, shard, m)
}

// worldWatch is a consumer.
type worldWatch struct {
	c      *worldClient
	watch  *Watch
	stream *Stream
	ready  bool
	synced bool

	held    map[string]uint64 // as its events have it
	highest map[string]uint64 // of the order ids that it has seen
	index   uint64            // of the newest event of a stream
}

// Done implements Waiter.
func (x *worldWatch) Done() { x.ready = true }

// subscribe begins the subscriptions of a client.
func (c *worldClient) subscribe() {
	for _, name := range []string{"a", "c", ""} {
		x := &worldWatch{c: c, held: map[string]uint64{}, highest: map[string]uint64{}}
		x.watch = &Watch{Waiter: x, Node: 7, Name: name, Prefix: name == ""}
		c.watches = append(c.watches, x)
		c.e.Watch(c.now(), x.watch)
	}
	x := &worldWatch{c: c}
	x.stream = &Stream{
		Waiter: x, Kind: protocol.KindProcessWatch, Msg: &protocol.ProcessWatch{Node: 7, Name: []byte("p")},
		To: Target{Of: AtBucket}, Decode: func() Decoder { return decodeState },
	}
	c.watches = append(c.watches, x)
	c.e.Stream(c.now(), x.stream)
}

// take is a consumer that is slow, and sometimes very.
func (x *worldWatch) take() {
	w := x.c.w
	for x.ready && (w.quiet || w.rng.IntN(3) != 0) {
		if x.stream != nil {
			event, ok, err := x.stream.Next()
			if err != nil {
				w.t.Fatalf("a stream has ended: %v", err)
			}
			if x.ready = ok; ok {
				e := event.(stateEvent)
				if e.index < x.index {
					w.t.Fatalf("a stream goes back from %d to %d", x.index, e.index)
				}
				x.index = e.index
				w.counts["stream event"]++
			}
			continue
		}
		var ev WatchEvent
		ok, err := x.watch.Next(&ev)
		if err != nil {
			w.t.Fatalf("a watch has ended: %v", err)
		}
		if x.ready = ok; !ok {
			continue
		}
		w.counts["watch event"]++
		switch ev.Kind {
		case WatchInterrupted:
			w.counts["watch interrupted"]++
			x.synced = false
		case WatchSynced:
			x.synced = true
		}
		for _, o := range ev.Removed {
			if x.held[ev.Name] != o.OrderID {
				w.t.Fatalf("a watch of %q removes owner %d of %s, which has %d", x.watch.Name, o.OrderID, ev.Name, x.held[ev.Name])
			}
			delete(x.held, ev.Name)
		}
		for _, o := range ev.Added {
			if o.OrderID <= x.highest[ev.Name] {
				w.t.Fatalf("a watch of %q goes back: owner %d of %s after %d", x.watch.Name, o.OrderID, ev.Name, x.highest[ev.Name])
			}
			x.highest[ev.Name], x.held[ev.Name] = o.OrderID, o.OrderID
		}
	}
}

// atRest: a consumer has the state of the cluster.
func (x *worldWatch) atRest() {
	w := x.c.w
	if x.stream != nil {
		if want := w.log(1).last(); x.index != want {
			w.t.Errorf("a stream is at %d; the shard is at %d (%v)", x.index, want, x.stream.Last())
		}
		return
	}
	if !x.synced {
		w.t.Errorf("the watch of %q is not synced at rest: %v", x.watch.Name, x.watch.Last())
	}
	for _, name := range worldNames {
		if name != x.watch.Name && !x.watch.Prefix {
			continue
		}
		l := w.log(shardOfName(name))
		if want := l.at(l.last())[name]; x.held[name] != want {
			w.t.Errorf("the watch of %q has owner %d of %s; the cluster has %d", x.watch.Name, x.held[name], name, want)
		}
	}
}
