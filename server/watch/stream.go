package watch

import (
	"bytes"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// stream is one opened Watch.
//
// It is before its first page (passed is nil), between pages (it sees the names up to passed, the last name its pages carried), or live. Pages
// come in order of name, each at its own index, so that a name is always covered: by a page that is yet to come, or by the deltas after the page that
// carried it.
type stream struct {
	conn   *conn
	id     uint64
	node   *node
	key    string
	prefix bool
	target *target
	place  int // in target.streams

	live   bool
	begun  bool // a page was sent
	queued bool // in conn.due
	passed []byte
	cursor []byte // where the next page begins
}

// Open opens a stream on a connection; id is the request's. It sees nothing until its first page, so no lock of the shard is needed, and the
// reply may be sent after Open returns: PagesDue was called, no page has been sent. most is how many watchers the coordination node may have here. Errors: BAD_REQUEST,
// WRONG_SHARD, OVERLOADED.
func (h *Hub) Open(connID, id uint64, w *protocol.Watch, most uint64) error {
	switch {
	case w.Shard != h.shard:
		return protocol.Errorf(protocol.StatusWrongShard, "shard %d does not stream shard %d; fetch the map and ask its instance", h.shard, w.Shard)
	case len(w.Name) == 0 && !w.Prefix:
		return protocol.Errorf(protocol.StatusBadRequest, "name is empty; watch a name of 1 to %d bytes, or a prefix", protocol.MaxNameLen)
	case len(w.Name) > protocol.MaxNameLen:
		return protocol.Errorf(protocol.StatusBadRequest, "name has %d bytes; at most %d are allowed", len(w.Name), protocol.MaxNameLen)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var open int
	if c := h.conns[connID]; c != nil {
		if c.streams[id] != nil {
			return protocol.Errorf(protocol.StatusBadRequest, "watch id %d is in use on this connection; each request needs its own", id)
		}
		open = len(c.streams)
	}
	if limit := h.opt.Limits.Streams; open >= limit {
		return protocol.Errorf(protocol.StatusOverloaded, "streams per connection are limited to %d; close one or watch a prefix", limit)
	}
	if err := h.opt.Quota.Take(w.Node, most); err != nil {
		return err
	}
	n := h.nodeFor(w.Node)
	s := &stream{node: n, id: id, key: string(w.Name), prefix: w.Prefix}
	watchers := 0
	if w.Prefix {
		s.target = n.prefixes.get(s.key)
		s.target.node = n
		watchers = len(s.target.streams)
	} else {
		named := n.nameFor(w.Name)
		s.target = &named.exact
		watchers = len(s.target.streams) + named.count
	}
	if limit := h.opt.Limits.Watchers; watchers >= limit {
		h.opt.Quota.Give(w.Node)
		return h.tooManyWatchers()
	}
	s.conn = h.connFor(connID)
	s.conn.streams[id] = s
	s.place = len(s.target.streams)
	s.target.streams = append(s.target.streams, s)
	h.load.Add(1)
	h.wantPage(s)
	return nil
}

func (h *Hub) tooManyWatchers() error {
	return protocol.Errorf(protocol.StatusOverloaded, "watchers per semaphore are limited to %d; watch a prefix, or share a connection", h.opt.Limits.Watchers)
}

// Close closes a stream. It answers whether there was one. Deltas that are on their way may still arrive.
func (h *Hub) Close(connID, id uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.conns[connID]
	if c == nil || c.streams[id] == nil {
		return false
	}
	h.remove(c.streams[id])
	h.forget(c)
	return true
}

// Page sends the next snapshot page that a stream of this connection waits for, its streams taking turns, and answers whether more are due. To be
// called inside Shard.Exclusive, which makes the page's index and what the hub was told agree, and when the connection has room. maxBytes
// is about the size of a page; one that carries a single large semaphore is larger.
func (h *Hub) Page(connID uint64, m Pages, maxBytes int) (more bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.conns[connID]
	if c == nil || len(c.due) == 0 {
		return false
	}
	s := c.due[0]
	c.due = slices.Delete(c.due, 0, 1)
	s.queued = false
	p := &h.page
	*p = protocol.Snapshot{Semaphores: p.Semaphores[:0], Runs: p.Runs[:0]}
	next, err := m.StreamSnapshot(s.node.id, []byte(s.key), s.prefix, s.cursor, maxBytes, p)
	if err != nil {
		h.cutStream(s, protocol.StatusOf(err), messageOf(err))
		h.forget(c)
		return len(c.due) > 0
	}
	p.First, p.Last = !s.begun, len(next) == 0
	s.begun = true
	h.frames.reset()
	h.frames.add(protocol.KindSnapshot, s.id, h.shard, p)
	h.frames.seal()
	h.stats.Pages++
	h.send.Send(c.id, h.frames.blocks[0], false)
	h.frames.reset()
	if n := len(p.Semaphores); n > 0 {
		s.passed = append(s.passed[:0], p.Semaphores[n-1].Name...)
	}
	if p.Last {
		s.live, s.passed, s.cursor = true, nil, nil
	} else {
		s.cursor = bytes.Clone(next)
		s.queued = true
		c.due = append(c.due, s)
	}
	clear(p.Semaphores)
	return len(c.due) > 0
}

// remove takes a stream out of all tables but h.conns.
func (h *Hub) remove(s *stream) {
	c, t := s.conn, s.target
	delete(c.streams, s.id)
	if s.queued {
		c.due = slices.DeleteFunc(c.due, func(d *stream) bool { return d == s })
	}
	last := len(t.streams) - 1
	t.streams[s.place] = t.streams[last]
	t.streams[s.place].place = s.place
	t.streams[last] = nil
	t.streams = t.streams[:last]
	h.load.Add(-1)
	h.opt.Quota.Give(s.node.id)
	if s.prefix {
		if last == 0 {
			s.node.prefixes.remove(s.key)
			h.tidyNode(s.node)
		}
		return
	}
	h.tidyName(s.node.names[s.key])
}

// cut ends the streams that match, each with the reason.
func (h *Hub) cut(match func(*stream) bool, status protocol.Status, message string) {
	for _, c := range h.conns {
		for _, s := range c.streams {
			if match(s) {
				h.cutStream(s, status, message)
			}
		}
		h.forget(c)
	}
}

func (h *Hub) cutStream(s *stream, status protocol.Status, message string) {
	h.stats.Cut++
	h.remove(s)
	frame := protocol.AppendFrame(nil, protocol.KindStreamCut, s.id, h.shard, &protocol.StreamCut{Status: status, Message: message})
	h.send.Send(s.conn.id, frame, false)
}

func messageOf(err error) string {
	if e, ok := err.(*protocol.Error); ok {
		return e.Message
	}
	return err.Error()
}
