package delivery

import (
	"bytes"
	"maps"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// watchStream is one opened Watch.
//
// It is before its first page (lastPaged is nil), between pages (it sees the names up to
// lastPaged), or live. Pages come in order of name, each at its own index. So a name is always
// covered: by a page that is yet to come, or by the deltas after the page that carried it.
type watchStream struct {
	conn   *watchConn
	id     uint64
	node   *watchedNode
	key    string
	prefix bool
	target *target
	index  int // in target.streams

	live      bool
	pageSent  bool // a page was sent
	queued    bool // in conn.pageQueue
	lastPaged []byte
	cursor    []byte // where the next page begins

	known, epoch uint64 // the client's position, until the first page; see protocol.Watch
}

// Open opens a stream on a connection; id is the request's. The stream sees nothing until its first
// page, so no lock of the shard is needed. The reply may be sent after Open returns: PagesDue was
// called, no page has been sent. maxWatchers is how many watchers the coordination node may have
// here. Errors: BAD_REQUEST, WRONG_SHARD, OVERLOADED.
func (h *WatchHub) Open(connID, id uint64, w *protocol.Watch, maxWatchers uint64) error {
	switch {
	case w.Shard != h.shard:
		return protocol.Errorf(protocol.StatusWrongShard,
			"shard %d does not stream shard %d; fetch the map and ask its instance", h.shard, w.Shard)
	case len(w.Name) == 0 && !w.Prefix:
		return protocol.Errorf(protocol.StatusBadRequest,
			"name is empty; watch a name of 1 to %d bytes, or a prefix", protocol.MaxNameLen)
	case len(w.Name) > protocol.MaxNameLen:
		return protocol.Errorf(protocol.StatusBadRequest, "name has %d bytes; at most %d are allowed",
			len(w.Name), protocol.MaxNameLen)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return errClosed
	}
	var open int
	if c := h.conns[connID]; c != nil {
		if c.streams[id] != nil {
			return protocol.Errorf(protocol.StatusBadRequest,
				"watch id %d is in use on this connection; each request needs its own", id)
		}
		open = len(c.streams)
	}
	if limit := h.opt.Limits.Streams; open >= limit {
		return protocol.Errorf(protocol.StatusOverloaded,
			"streams per connection are limited to %d; close one or watch a prefix", limit)
	}
	if err := h.opt.Quota.Reserve(w.Node, maxWatchers); err != nil {
		return err
	}
	n := h.nodeOrNew(w.Node)
	s := &watchStream{node: n, id: id, key: string(w.Name), prefix: w.Prefix, known: w.Known, epoch: w.Epoch}
	watchers := 0
	if w.Prefix {
		s.known = 0
		s.target = n.prefixes.get(s.key)
		s.target.node = n
		watchers = len(s.target.streams)
	} else {
		named := n.nameOrNew(w.Name)
		s.target = &named.exact
		watchers = len(s.target.streams) + named.count
	}
	if limit := h.opt.Limits.Watchers; watchers >= limit {
		h.opt.Quota.Release(w.Node)
		return h.tooManyWatchers()
	}
	s.conn = h.connOrNew(connID)
	s.conn.streams[id] = s
	s.index = len(s.target.streams)
	s.target.streams = append(s.target.streams, s)
	h.active.Add(1)
	h.queuePage(s)
	return nil
}

func (h *WatchHub) tooManyWatchers() error {
	return protocol.Errorf(protocol.StatusOverloaded,
		"watchers per semaphore are limited to %d; watch a prefix, or share a connection", h.opt.Limits.Watchers)
}

// Close closes a stream. It reports whether there was one. Deltas that are on their way may still
// arrive.
func (h *WatchHub) Close(connID, id uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.conns[connID]
	if c == nil || c.streams[id] == nil {
		return false
	}
	h.remove(c.streams[id])
	h.removeConnIfUnused(c)
	return true
}

func (h *WatchHub) closeStream(conn, id uint64) { h.Close(conn, id) }

func (h *WatchHub) sendDue(conn uint64, m *shard.Machine, maxBytes int) (more bool) {
	return h.Page(conn, m.Semaphores(), maxBytes)
}

func (h *WatchHub) waits(conn uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.conns[conn]
	return c != nil && len(c.pageQueue) > 0
}

// Page sends the next snapshot page that a stream of this connection waits for. Its streams take
// turns. Page reports whether more are due. It is called inside Shard.Exclusive, so that the page's
// index matches the hub's, and when the connection has room. maxBytes is the approximate
// size of a page; a page with a single large semaphore may be larger.
func (h *WatchHub) Page(connID uint64, m SnapshotReader, maxBytes int) (more bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.conns[connID]
	if c == nil || len(c.pageQueue) == 0 {
		return false
	}
	s := c.pageQueue[0]
	h.unqueue(s)
	if s.known > 0 && h.resume(s, m) {
		h.removeConnIfUnused(c)
		return len(c.pageQueue) > 0
	}
	p := &h.page
	*p = protocol.Snapshot{Semaphores: p.Semaphores[:0], Runs: p.Runs[:0]}
	next, err := m.StreamSnapshot(s.node.id, []byte(s.key), s.prefix, s.cursor, maxBytes, p)
	if err != nil {
		h.cutStream(s, protocol.StatusOf(err), messageOf(err))
		h.removeConnIfUnused(c)
		return len(c.pageQueue) > 0
	}
	p.First, p.Last = !s.pageSent, len(next) == 0
	h.stats.PagesRead++
	n := len(p.Semaphores)
	page := &cachedPage{rest: protocol.AppendSnapshotRest(nil, p), index: p.Index, next: bytes.Clone(next),
		last: p.Last, items: n > 0, room: maxBytes}
	if n > 0 {
		s.lastPaged = append(s.lastPaged[:0], p.Semaphores[n-1].Name...)
	}
	if p.First && !s.prefix {
		h.startHistoryAt(s, p)
	}
	if !s.prefix {
		h.pages.keep(s.node.names[s.key], s.cursor, page)
	}
	h.sendPage(s, page, p.Index)
	clear(p.Semaphores)
	return len(c.pageQueue) > 0
}

// sendPage sends a page to a stream, and moves the stream behind it.
func (h *WatchHub) sendPage(s *watchStream, p *cachedPage, index uint64) {
	c := s.conn
	s.pageSent = true
	h.head = protocol.AppendSnapshotHead(h.head[:0], s.id, h.shard, index, len(p.rest))
	h.stats.Pages++
	h.send.SendPage(c.id, h.head, p.rest)
	if p.last {
		s.live, s.lastPaged, s.cursor = true, nil, nil
		return
	}
	s.cursor = p.next
	h.queueAgain(s)
}

// CachedPage sends the next page that a stream of this connection waits for, if it was encoded for
// another stream. It reports whether it did, and whether more are due. It needs no lock of the
// shard.
func (h *WatchHub) CachedPage(connID uint64, maxBytes int) (sent, more bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.conns[connID]
	if c == nil || len(c.pageQueue) == 0 || c.pageQueue[0].known > 0 {
		return false, false
	}
	s := c.pageQueue[0]
	if s.prefix {
		return false, false
	}
	p := h.pages.find(s.node.names[s.key], s.cursor, maxBytes)
	if p == nil {
		return false, false
	}
	h.unqueue(s)
	index := p.index
	if s.node.pending[s.key] == nil { // nothing has happened to the name since
		index = h.applied.Load()
	}
	if p.items {
		s.lastPaged = append(s.lastPaged[:0], s.key...)
	}
	h.sendPage(s, p, max(index, p.index))
	return true, len(c.pageQueue) > 0
}

// remove removes a stream from all tables but h.conns.
func (h *WatchHub) remove(s *watchStream) {
	c, t := s.conn, s.target
	delete(c.streams, s.id)
	if s.queued {
		c.pageQueue = slices.DeleteFunc(c.pageQueue, func(d *watchStream) bool { return d == s })
	}
	last := len(t.streams) - 1
	t.streams[s.index] = t.streams[last]
	t.streams[s.index].index = s.index
	t.streams[last] = nil
	t.streams = t.streams[:last]
	h.active.Add(-1)
	h.opt.Quota.Release(s.node.id)
	if s.prefix {
		if last == 0 {
			s.node.prefixes.remove(s.key)
			h.removeNodeIfUnused(s.node)
		}
		return
	}
	w := s.node.names[s.key]
	if last == 0 {
		h.pages.drop(w)
	}
	h.removeNameIfUnused(w)
	h.dropHistoryIfUnused(s.node, s.key)
}

// cut ends the streams that match, each with the reason.
func (h *WatchHub) cut(match func(*watchStream) bool, status protocol.Status, message string) {
	for _, c := range h.conns {
		for _, s := range c.streams {
			if match(s) {
				h.cutStream(s, status, message)
			}
		}
		h.removeConnIfUnused(c)
	}
}

func (h *WatchHub) cutStream(s *watchStream, status protocol.Status, message string) {
	h.stats.Cut++
	h.remove(s)
	frame := protocol.AppendFrame(nil, protocol.KindStreamCut, s.id, h.shard,
		&protocol.StreamCut{Status: status, Message: message})
	h.send.Send(s.conn.id, frame, false)
}

func messageOf(err error) string {
	if e, ok := err.(*protocol.Error); ok {
		return e.Message
	}
	return err.Error()
}

func anyStream(*watchStream) bool { return true }

// restart puts streams of a connection before their first snapshot page.
func (h *WatchHub) restart(c *watchConn, which func(*watchStream) bool) {
	for _, id := range slices.Sorted(maps.Keys(c.streams)) {
		s := c.streams[id]
		if !which(s) {
			continue
		}
		s.live, s.pageSent, s.known = false, false, 0
		s.lastPaged, s.cursor = nil, nil
		h.queuePage(s)
	}
}

func (h *WatchHub) queuePage(s *watchStream) {
	c := s.conn
	if s.queued {
		return
	}
	h.queueAgain(s)
	if len(c.pageQueue) == 1 {
		h.send.PagesDue(h.shard, c.id)
	}
}

// queueAgain puts a stream behind those of its connection that wait for a page.
func (h *WatchHub) queueAgain(s *watchStream) {
	s.queued = true
	s.conn.pageQueue = append(s.conn.pageQueue, s)
}

// unqueue takes the stream of a connection whose turn it is.
func (h *WatchHub) unqueue(s *watchStream) {
	s.conn.pageQueue = slices.Delete(s.conn.pageQueue, 0, 1)
	s.queued = false
}
