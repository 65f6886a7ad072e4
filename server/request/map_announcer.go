package request

import (
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/fanout"
	"github.com/signalbox-dev/signalbox/server/transport"
)

// mapAnnouncer notifies clients of newer maps, and of shards that serve more buckets. A planned
// change makes dozens of either in a second, and to notify thousands of connections of each one
// takes more of the processors than the change. So all connections are notified at a bounded pace.
// Those whose requests were refused, because the map has changed or is about to, are notified at
// once.
type mapAnnouncer struct {
	server *Server

	mu    sync.Mutex
	paces map[uint64]*announcePace // by shard; of 0: of the map
}

// announce calls send at once for the clients that wait, and for all connections at the pace of a
// shard, or of the map.
func (a *mapAnnouncer) announce(shard uint64, connections int, send func(all bool)) {
	a.mu.Lock()
	p := a.paces[shard]
	if p == nil {
		p = &announcePace{}
		a.paces[shard] = p
	}
	all, later := p.next(time.Now(), connections)
	a.mu.Unlock()
	if later > 0 {
		time.AfterFunc(later, func() {
			a.mu.Lock()
			p.announced(time.Now())
			a.mu.Unlock()
			send(true)
		})
	}
	send(all)
}

// announceMap notifies clients of a newer map.
func (a *mapAnnouncer) announceMap() {
	a.announce(0, a.server.transport.Connections(), func(all bool) {
		m := &protocol.MapChanged{Version: a.server.Routes().State.MapVersion()}
		a.notify(m, func(c *Client) bool { return c.awaitsMap.Swap(false) || all })
	})
}

// notify sends clients the news about the map.
func (a *mapAnnouncer) notify(m *protocol.MapChanged, whom func(c *Client) bool) {
	defer a.server.Flush()
	a.server.transport.Each(func(conn *transport.Conn) {
		if conn.Established() && whom(conn.Client().(*Client)) {
			conn.Append(protocol.KindMapChanged, 0, 0, m)
		}
	})
}

// awaitsMap reports whether a client which gets this answer waits for a newer map.
func awaitsMap(status protocol.Status) bool {
	return status == protocol.StatusWrongShard || status == protocol.StatusUnavailable
}

// announcePace decides when all connections are notified.
type announcePace struct {
	last time.Time // when they were
	due  bool      // they will be
}

// next takes a newer map. All connections are notified of it now, or after a pause, or by an
// announcement that is due already.
func (p *announcePace) next(now time.Time, connections int) (all bool, later time.Duration) {
	rest := fanout.Pause(connections) - now.Sub(p.last)
	switch {
	case p.due:
		return false, 0
	case rest <= 0:
		p.last = now
		return true, 0
	}
	p.due = true
	return false, rest
}

// announced records that a due announcement was made.
func (p *announcePace) announced(now time.Time) { p.last, p.due = now, false }
