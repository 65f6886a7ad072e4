package delivery

import (
	"maps"
	"slices"
)

// watchConn is a connection that watches something in this shard.
type watchConn struct {
	id        uint64
	streams   map[uint64]*watchStream
	pageQueue []*watchStream // wait for a snapshot page, in turn
	oneShots  oneShotList
	count     int // one-shot watches

	flushSeq uint64 // the flush that hits belongs to
	hits     int    // streams that lead here in that flush
}

func (h *WatchHub) connOrNew(id uint64) *watchConn {
	c := h.conns[id]
	if c == nil {
		c = &watchConn{id: id, streams: make(map[uint64]*watchStream)}
		h.conns[id] = c
	}
	return c
}

// removeConnIfUnused removes a connection that watches nothing any more.
func (h *WatchHub) removeConnIfUnused(c *watchConn) {
	if c.oneShots.head == nil && len(c.streams) == 0 {
		delete(h.conns, c.id)
	}
}

func anyStream(*watchStream) bool { return true }

// restart puts streams of a connection before their first snapshot page.
func (h *WatchHub) restart(c *watchConn, which func(*watchStream) bool) {
	for _, id := range slices.Sorted(maps.Keys(c.streams)) {
		s := c.streams[id]
		if !which(s) {
			continue
		}
		s.live, s.pageSent = false, false
		s.lastPaged, s.cursor = nil, nil
		h.queuePage(s)
	}
}

func (h *WatchHub) queuePage(s *watchStream) {
	c := s.conn
	if s.queued {
		return
	}
	s.queued = true
	c.pageQueue = append(c.pageQueue, s)
	if len(c.pageQueue) == 1 {
		h.send.PagesDue(h.shard, c.id)
	}
}
