package delivery

import (
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// ObjectStreams are the streams over one kind of object, of one shard on this instance. F
// distinguishes streams over the same object.
//
// A stream begins with the object's state, read and sent inside Exclusive, so that the changes that
// follow are those of later entries. A connection that takes no more gets the state again when it
// has room, so nothing is queued here. Lock order: that of a hub.
type ObjectStreams[F comparable] struct {
	objectKind
	shard  uint64
	send   Sender
	limits WatchLimits
	quota  *WatcherQuota
	leader Leader
	count  atomic.Int64 // of streams, so that an unwatched change costs one load

	// sendState sends the state of a stream's object and marks the stream live, or cuts it. mu is
	// held, and the log waits.
	sendState func(s *objectStream[F], m *shard.Machine)

	mu     sync.Mutex
	closed bool
	byName map[string]map[F][]*objectStream[F] // by node and name
	byConn map[uint64][]*objectStream[F]
}

// objectKind is a kind of object that is watched by its name.
type objectKind struct {
	// for error sentences: "track", and the verb for a stream's use of it
	what, use string
	bucket    func(node uint64, name []byte, total uint32) uint32 // of the object
	// streams exist only while this instance leads the shard
	leaderOnly bool
}

// objectStream is one that was opened.
type objectStream[F comparable] struct {
	conn, id uint64
	node     uint64
	name     string
	filter   F
	live     bool // the state was sent, and every change since
}

// newObjectStreams creates the streams of a hosted shard; sendState is set before one is opened.
func newObjectStreams[F comparable](h *Hubs, kind objectKind) ObjectStreams[F] {
	return ObjectStreams[F]{
		objectKind: kind, shard: h.id, send: h.Semaphores.send, limits: h.Semaphores.opt.Limits, quota: &h.Quota,
		leader: h.leader,
		byName: make(map[string]map[F][]*objectStream[F]), byConn: make(map[uint64][]*objectStream[F]),
	}
}

// NameKey identifies a process or a track among those of a shard.
func NameKey(node uint64, name []byte) string {
	return string(append(binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(name)), node), name...))
}

// Open opens a stream on a connection; id is the request's. maxWatchers is how many watchers the
// coordination node may have here. The stream's state is due: Page sends it. Errors: BAD_REQUEST,
// OVERLOADED, and UNAVAILABLE for a leader's stream on an instance that does not lead.
func (o *ObjectStreams[F]) Open(conn, id, node uint64, name []byte, filter F, maxWatchers uint64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	key := NameKey(node, name)
	watchers := 0
	for _, list := range o.byName[key] {
		watchers += len(list)
	}
	switch {
	case o.closed:
		return errClosed
	case slices.ContainsFunc(o.byConn[conn], func(s *objectStream[F]) bool { return s.id == id }):
		return protocol.Errorf(protocol.StatusBadRequest,
			"watch id %d is in use on this connection; each request needs its own", id)
	case len(o.byConn[conn]) >= o.limits.Streams:
		return protocol.Errorf(protocol.StatusOverloaded,
			"streams over a %s are limited to %d per connection; close one", o.what, o.limits.Streams)
	case watchers >= o.limits.Watchers:
		return protocol.Errorf(protocol.StatusOverloaded, "watchers per %s are limited to %d; share a connection",
			o.what, o.limits.Watchers)
	}
	if o.leaderOnly && !o.leader.Leading() { // leadershipLost takes the lock after this, or had it before
		return protocol.Errorf(protocol.StatusUnavailable, "shard %d has no leader here now; fetch the map and retry",
			o.shard)
	}
	if err := o.quota.Reserve(node, maxWatchers); err != nil {
		return err
	}
	s := &objectStream[F]{conn: conn, id: id, node: node, name: string(name), filter: filter}
	if o.byName[key] == nil {
		o.byName[key] = make(map[F][]*objectStream[F])
	}
	o.byName[key][filter] = append(o.byName[key][filter], s)
	o.byConn[conn] = append(o.byConn[conn], s)
	o.count.Add(1)
	return nil
}

func (o *ObjectStreams[F]) shut() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
}

// Deleted cuts the streams over an object that was deleted.
func (o *ObjectStreams[F]) Deleted(node uint64, name []byte) {
	o.cut(func(n uint64, x []byte) bool { return n == node && string(x) == string(name) },
		protocol.StatusNotFound, "the "+o.what+" was deleted; nothing is left to "+o.use)
}

func (o *ObjectStreams[F]) nodeDropped(node uint64) {
	o.cutNodes(func(n uint64) bool { return n == node }, protocol.StatusNotFound, textNodeDropped)
}

func (o *ObjectStreams[F]) bucketsFrozen(run bucketRun) {
	o.cut(run.has(o.bucket), protocol.StatusWrongShard,
		"the "+o.what+"'s bucket moves to another shard; fetch the map and ask its instance")
}

func (o *ObjectStreams[F]) bucketsActive() {} // a stream is of one bucket

func (o *ObjectStreams[F]) leadershipLost() {
	if o.leaderOnly {
		o.cut(func(uint64, []byte) bool { return true }, protocol.StatusUnavailable,
			"the shard is led elsewhere now; fetch the map and watch again")
	}
}

func (o *ObjectStreams[F]) closeStream(conn, id uint64) {
	o.remove(conn, func(s *objectStream[F]) bool { return s.id == id })
}

func (o *ObjectStreams[F]) connClosed(conn uint64) {
	o.remove(conn, func(*objectStream[F]) bool { return true })
}

func (o *ObjectStreams[F]) remove(conn uint64, which func(*objectStream[F]) bool) {
	if o.count.Load() == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range slices.Clone(o.byConn[conn]) {
		if which(s) {
			o.drop(s)
		}
	}
}

// drop removes a stream from the tables. mu is held.
func (o *ObjectStreams[F]) drop(s *objectStream[F]) {
	same := func(x *objectStream[F]) bool { return x == s }
	key := NameKey(s.node, []byte(s.name))
	filters := o.byName[key]
	if filters[s.filter] = slices.DeleteFunc(filters[s.filter], same); len(filters[s.filter]) == 0 {
		delete(filters, s.filter)
	}
	if len(filters) == 0 {
		delete(o.byName, key)
	}
	if o.byConn[s.conn] = slices.DeleteFunc(o.byConn[s.conn], same); len(o.byConn[s.conn]) == 0 {
		delete(o.byConn, s.conn)
	}
	o.count.Add(-1)
	o.quota.Release(s.node)
}

func (o *ObjectStreams[F]) cutNodes(which func(node uint64) bool, status protocol.Status, text string) {
	o.cut(func(node uint64, _ []byte) bool { return which(node) }, status, text)
}

// cut ends the streams over the selected objects, with the reason.
func (o *ObjectStreams[F]) cut(which func(node uint64, name []byte) bool, status protocol.Status, text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var list []*objectStream[F]
	for _, on := range o.byConn {
		for _, s := range on {
			if which(s.node, []byte(s.name)) {
				list = append(list, s)
			}
		}
	}
	for _, s := range list {
		o.cutStream(s, status, text)
	}
}

// cutStream ends a stream with the reason. mu is held.
func (o *ObjectStreams[F]) cutStream(s *objectStream[F], status protocol.Status, text string) {
	o.drop(s)
	frame := protocol.AppendFrame(nil, protocol.KindStreamCut, s.id, o.shard,
		&protocol.StreamCut{Status: status, Message: text})
	o.send.Send(s.conn, frame, false)
}

// snapshotInstalled restarts all streams from the state, because changes were missed.
func (o *ObjectStreams[F]) snapshotInstalled() {
	if o.count.Load() == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for conn, list := range o.byConn {
		for _, s := range list {
			s.live = false
		}
		o.send.PagesDue(o.shard, conn)
	}
}

func (o *ObjectStreams[F]) sendDue(conn uint64, m *shard.Machine, _ int) (more bool) {
	if o.count.Load() == 0 {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	i := slices.IndexFunc(o.byConn[conn], (*objectStream[F]).waits)
	if i < 0 {
		return false
	}
	o.sendState(o.byConn[conn][i], m)
	return slices.ContainsFunc(o.byConn[conn], (*objectStream[F]).waits)
}

func (o *ObjectStreams[F]) waits(conn uint64) bool {
	if o.count.Load() == 0 {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.ContainsFunc(o.byConn[conn], (*objectStream[F]).waits)
}

func (s *objectStream[F]) waits() bool { return !s.live }

// sendChange sends a change to a live stream. If its connection takes no more, the stream waits for
// the state. body is the change without the frame's head, which alone differs between streams. mu
// is held.
func (o *ObjectStreams[F]) sendChange(s *objectStream[F], kind protocol.Kind, body []byte) {
	if s.live && !o.send.Send(s.conn, protocol.AppendFrameRaw(nil, kind, s.id, o.shard, body), true) {
		s.live = false
		o.send.PagesDue(o.shard, s.conn)
	}
}

// Len is the number of open streams.
func (o *ObjectStreams[F]) Len() int { return int(o.count.Load()) }

// Waiting is the number of streams that wait for the state.
func (o *ObjectStreams[F]) Waiting() (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, list := range o.byConn {
		for _, s := range list {
			if !s.live {
				n++
			}
		}
	}
	return n
}
