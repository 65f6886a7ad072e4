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
type streams[F comparable] struct {
	desk  *desk
	what  string       // what they are over, for sentences
	count atomic.Int64 // of streams, so that changes that nobody watches cost one load

	// begin sends the state of what a stream is over and marks it live, or cuts it. mu is held, and the log waits.
	begin func(s *stream[F], m *shard.Machine)
	// refuse says why no stream may be opened now; nil: nothing is ever against it. mu is held.
	refuse func() error

	mu     sync.Mutex
	byName map[string]map[F][]*stream[F] // by node and name
	byConn map[uint64][]*stream[F]
}

// stream is one that was opened.
type stream[F comparable] struct {
	conn, id uint64
	node     uint64
	name     string
	filter   F
	live     bool // the state was sent, and every change since
}

// newStreams makes what has no streams yet; begin is to be set before one is opened.
func newStreams[F comparable](d *desk, what string) streams[F] {
	return streams[F]{desk: d, what: what, byName: make(map[string]map[F][]*stream[F]), byConn: make(map[uint64][]*stream[F])}
}

// nameKey names a process or a track among those of a shard.
func nameKey(node uint64, name []byte) string {
	return string(append(binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(name)), node), name...))
}

// everyStream picks all for cut.
func everyStream(uint64, []byte) bool { return true }

// streamsOf picks those of a coordination node for cut.
func streamsOf(node uint64) func(uint64, []byte) bool {
	return func(n uint64, _ []byte) bool { return n == node }
}

// open opens a stream on a connection; id is the request's, and most is how many watchers the node may have here. Its state is due: the caller has the pager come. Errors:
// BAD_REQUEST, OVERLOADED, and what refuse says.
func (t *streams[F]) open(conn, id, node uint64, name []byte, filter F, most uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	limits := &t.desk.srv.cfg.Limits
	key := nameKey(node, name)
	watchers := 0
	for _, list := range t.byName[key] {
		watchers += len(list)
	}
	switch {
	case slices.ContainsFunc(t.byConn[conn], func(s *stream[F]) bool { return s.id == id }):
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
	if err := t.desk.watchers.Reserve(node, most); err != nil {
		return err
	}
	s := &stream[F]{conn: conn, id: id, node: node, name: string(name), filter: filter}
	if t.byName[key] == nil {
		t.byName[key] = make(map[F][]*stream[F])
	}
	t.byName[key][filter] = append(t.byName[key][filter], s)
	t.byConn[conn] = append(t.byConn[conn], s)
	t.count.Add(1)
	return nil
}

// close closes a stream, if there is one.
func (t *streams[F]) close(conn, id uint64) {
	t.remove(conn, func(s *stream[F]) bool { return s.id == id })
}

// connGone closes the streams of a connection.
func (t *streams[F]) connGone(conn uint64) { t.remove(conn, func(*stream[F]) bool { return true }) }

func (t *streams[F]) remove(conn uint64, which func(*stream[F]) bool) {
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
func (t *streams[F]) drop(s *stream[F]) {
	same := func(x *stream[F]) bool { return x == s }
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
	t.desk.watchers.Release(s.node)
}

// cut ends the streams over what is picked, with the reason.
func (t *streams[F]) cut(which func(node uint64, name []byte) bool, status protocol.Status, text string) {
	if t.count.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []*stream[F]
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
func (t *streams[F]) cutStream(s *stream[F], status protocol.Status, text string) {
	t.drop(s)
	frame := protocol.AppendFrame(nil, protocol.KindStreamCut, s.id, t.desk.id, &protocol.StreamCut{Status: status, Message: text})
	t.desk.Send(s.conn, frame, false)
}

// restart has all streams begin with the state again: changes were missed.
func (t *streams[F]) restart() {
	if t.count.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for conn, list := range t.byConn {
		for _, s := range list {
			s.live = false
		}
		t.desk.PagesDue(t.desk.id, conn)
	}
}

// page sends the state to one stream of the connection that waits for it, and says whether others do. Called inside Exclusive.
func (t *streams[F]) page(conn uint64, m *shard.Machine) (more bool) {
	if t.count.Load() == 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	waits := func(s *stream[F]) bool { return !s.live }
	i := slices.IndexFunc(t.byConn[conn], waits)
	if i < 0 {
		return false
	}
	t.begin(t.byConn[conn][i], m)
	return slices.ContainsFunc(t.byConn[conn], waits)
}

// told sends a stream that is live the news of an entry; one whose connection takes no more waits for the state. body has the news without a frame's head, which alone differs
// between streams. mu is held.
func (t *streams[F]) told(s *stream[F], kind protocol.Kind, body []byte) {
	if s.live && !t.desk.Send(s.conn, protocol.AppendFrameRaw(nil, kind, s.id, t.desk.id, body), true) {
		s.live = false
		t.desk.PagesDue(t.desk.id, s.conn)
	}
}
