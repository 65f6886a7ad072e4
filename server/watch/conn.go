package watch

import (
	"maps"
	"slices"
)

// conn is a connection that watches something in this shard.
type conn struct {
	id      uint64
	streams map[uint64]*stream
	due     []*stream // wait for a snapshot page, in turn
	shots   shotList
	count   int // one-shot watches

	seq  uint64 // flush that hits belongs to
	hits int    // streams that lead here in that flush
}

func (h *Hub) connFor(id uint64) *conn {
	c := h.conns[id]
	if c == nil {
		c = &conn{id: id, streams: make(map[uint64]*stream)}
		h.conns[id] = c
	}
	return c
}

// forget forgets a connection that watches nothing any more.
func (h *Hub) forget(c *conn) {
	if c.shots.head == nil && len(c.streams) == 0 {
		delete(h.conns, c.id)
	}
}

// Behind says that a connection cannot take what it is sent: its streams get no more deltas and start again from a snapshot as soon as
// there is room (PagesDue). Send answering false has the same effect.
func (h *Hub) Behind(id uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.conns[id]; c != nil && len(c.streams) > 0 {
		h.stats.Behind++
		h.restart(c, everyStream)
	}
}

func everyStream(*stream) bool { return true }

// restart puts streams of a connection before their first snapshot page.
func (h *Hub) restart(c *conn, which func(*stream) bool) {
	for _, id := range slices.Sorted(maps.Keys(c.streams)) {
		s := c.streams[id]
		if !which(s) {
			continue
		}
		s.live, s.begun = false, false
		s.passed, s.cursor = nil, nil
		h.wantPage(s)
	}
}

func (h *Hub) wantPage(s *stream) {
	c := s.conn
	if s.queued {
		return
	}
	s.queued = true
	c.due = append(c.due, s)
	if len(c.due) == 1 {
		h.send.PagesDue(h.shard, c.id)
	}
}
