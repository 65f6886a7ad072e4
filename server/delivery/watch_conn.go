package delivery

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

func (i *watchIndex) connOrNew(id uint64) *watchConn {
	c := i.conns[id]
	if c == nil {
		c = &watchConn{id: id, streams: make(map[uint64]*watchStream)}
		i.conns[id] = c
	}
	return c
}

// removeConnIfUnused removes a connection that watches nothing any more.
func (i *watchIndex) removeConnIfUnused(c *watchConn) {
	if c.oneShots.head == nil && len(c.streams) == 0 {
		delete(i.conns, c.id)
	}
}
