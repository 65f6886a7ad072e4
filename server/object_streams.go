package server

import (
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// streams are the streams over the processes, or over the tracks, of one shard on this instance. F is what streams over the same one may differ in.
//
// A stream begins with the state of what it is over, read and sent inside Exclusive, so that the changes which follow it are those of later entries. A connection that takes no
// more gets the state again when it has room; so nothing is queued here. Lock order: that of a hub.
type objectStreams[F comparable] struct {
	host  *shardHost
	what  string       // what they are over, for sentences
	count atomic.Int64 // of streams, so that changes that nobody watches cost one load

	// begin sends the state of what a stream is over and marks it live, or cuts it. mu is held, and the log waits.
	sendInitial func(s *objectStream[F], m *shard.Machine)
	// refuse says why no stream may be opened now; nil: nothing is ever against it. mu is held.
	refuse func() error

	mu     sync.Mutex
	byName map[string]map[F][]*objectStream[F] // by node and name
	byConn map[uint64][]*objectStream[F]
}

// stream is one that was opened.
type objectStream[F comparable] struct {
	conn, id uint64
	node     uint64
	name     string
	filter   F
	live     bool // the state was sent, and every change since
}

// newObjectStreams makes what has no streams yet; begin is to be set before one is opened.
func newObjectStreams[F comparable](d *shardHost, what string) objectStreams[F] {
	return objectStreams[F]{host: d, what: what, byName: make(map[string]map[F][]*objectStream[F]), byConn: make(map[uint64][]*objectStream[F])}
}

// nameKey names a process or a track among those of a shard.
func nameKey(node uint64, name []byte) string {
	return string(append(binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(name)), node), name...))
}

// allObjects picks all for cut.
func allObjects(uint64, []byte) bool { return true }

// objectsOf picks those of a coordination node for cut.
func objectsOf(node uint64) func(uint64, []byte) bool {
	return func(n uint64, _ []byte) bool { return n == node }
}

// open opens a stream on a connection; id is the request's, and most is how many watchers the node may have here. Its state is due: the caller has the pager come. Errors:
// BAD_REQUEST, OVERLOADED, and what refuse says.
func (t *objectStreams[F]) open(conn, id, node uint64, name []byte, filter F, most uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	limits := &t.host.server.cfg.Limits
	key := nameKey(node, name)
	watchers := 0
	for _, list := range t.byName[key] {
		watchers += len(list)
	}
	switch {
	case slices.ContainsFunc(t.byConn[conn], func(s *objectStream[F]) bool { return s.id == id }):
		return protocol.Errorf(protocol.StatusBadRequest, "watch id %d is in use on this connection; each request needs its own", id)
	case len(t.byConn[conn]) >= limits.MaxStreams:
		return protocol.Errorf(protocol.StatusOverloaded, "streams over a %s are limited to %d per connection; close one", t.what, limits.MaxStreams)
	case watchers >= limits.MaxWatchers:
		return protocol.Errorf(protocol.StatusOverloaded, "watchers per %s are limited to %d; share a connection", t.what, limits.MaxWatchers)
	}
	if t.refuse != nil {
		if err := t.refuse(); err != nil {
			return err
		}
	}
	if err := t.host.watchers.Reserve(node, most); err != nil {
		return err
	}
	s := &objectStream[F]{conn: conn, id: id, node: node, name: string(name), filter: filter}
	if t.byName[key] == nil {
		t.byName[key] = make(map[F][]*objectStream[F])
	}
	t.byName[key][filter] = append(t.byName[key][filter], s)
	t.byConn[conn] = append(t.byConn[conn], s)
	t.count.Add(1)
	return nil
}

// close closes a stream, if there is one.
func (t *objectStreams[F]) close(conn, id uint64) {
	t.remove(conn, func(s *objectStream[F]) bool { return s.id == id })
}

// connGone closes the streams of a connection.
func (t *objectStreams[F]) connGone(conn uint64) {
	t.remove(conn, func(*objectStream[F]) bool { return true })
}

func (t *objectStreams[F]) remove(conn uint64, which func(*objectStream[F]) bool) {
	if t.count.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range slices.Clone(t.byConn[conn]) {
		if which(s) {
			t.drop(s)
		}
	}
}

// drop takes a stream out of the tables. mu is held.
func (t *objectStreams[F]) drop(s *objectStream[F]) {
	same := func(x *objectStream[F]) bool { return x == s }
	key := nameKey(s.node, []byte(s.name))
	filters := t.byName[key]
	if filters[s.filter] = slices.DeleteFunc(filters[s.filter], same); len(filters[s.filter]) == 0 {
		delete(filters, s.filter)
	}
	if len(filters) == 0 {
		delete(t.byName, key)
	}
	if t.byConn[s.conn] = slices.DeleteFunc(t.byConn[s.conn], same); len(t.byConn[s.conn]) == 0 {
		delete(t.byConn, s.conn)
	}
	t.count.Add(-1)
	t.host.watchers.Release(s.node)
}

// cut ends the streams over what is picked, with the reason.
func (t *objectStreams[F]) cut(which func(node uint64, name []byte) bool, status protocol.Status, text string) {
	if t.count.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []*objectStream[F]
	for _, on := range t.byConn {
		for _, s := range on {
			if which(s.node, []byte(s.name)) {
				list = append(list, s)
			}
		}
	}
	for _, s := range list {
		t.cutStream(s, status, text)
	}
}

// cutStream ends a stream with the reason. mu is held.
func (t *objectStreams[F]) cutStream(s *objectStream[F], status protocol.Status, text string) {
	t.drop(s)
	frame := protocol.AppendFrame(nil, protocol.KindStreamCut, s.id, t.host.id, &protocol.StreamCut{Status: status, Message: text})
	t.host.Send(s.conn, frame, false)
}

// restart has all streams begin with the state again: changes were missed.
func (t *objectStreams[F]) restartAll() {
	if t.count.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for conn, list := range t.byConn {
		for _, s := range list {
			s.live = false
		}
		t.host.PagesDue(t.host.id, conn)
	}
}

// page sends the state to one stream of the connection that waits for it, and says whether others do. Called inside Exclusive.
func (t *objectStreams[F]) sendPage(conn uint64, m *shard.Machine) (more bool) {
	if t.count.Load() == 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	waits := func(s *objectStream[F]) bool { return !s.live }
	i := slices.IndexFunc(t.byConn[conn], waits)
	if i < 0 {
		return false
	}
	t.sendInitial(t.byConn[conn][i], m)
	return slices.ContainsFunc(t.byConn[conn], waits)
}

// told sends a stream that is live the news of an entry; one whose connection takes no more waits for the state. body has the news without a frame's head, which alone differs
// between streams. mu is held.
func (t *objectStreams[F]) sendChange(s *objectStream[F], kind protocol.Kind, body []byte) {
	if s.live && !t.host.Send(s.conn, protocol.AppendFrameRaw(nil, kind, s.id, t.host.id, body), true) {
		s.live = false
		t.host.PagesDue(t.host.id, s.conn)
	}
}
