package server

import (
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// How long, and of how many, an instance remembers on which connection a session was when it ended.
const (
	endedSessionsTTL = time.Minute
	maxEndedSessions = 1 << 16
)

// departed is the connections of sessions that ended lately. A session that ends takes its bindings along, but shards that
// are not its home hear of its end later: until then they cannot end its accepted acquires, whose results must still
// find their way.
type endedSessions struct {
	mu    sync.Mutex
	conns map[uint64]uint64 // session -> id of the connection
	queue []endedSession    // in order of time
}

type endedSession struct {
	session uint64
	at      time.Duration
}

// note remembers the connection of a session that ends.
func (x *endedSessions) add(session, conn uint64, now time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for len(x.queue) > 0 && (now-x.queue[0].at > endedSessionsTTL || len(x.queue) >= maxEndedSessions) {
		delete(x.conns, x.queue[0].session)
		x.queue = x.queue[1:]
	}
	if x.conns == nil {
		x.conns = make(map[uint64]uint64)
	}
	x.conns[session] = conn
	x.queue = append(x.queue, endedSession{session, now})
}

// conn is the connection that a session had when it ended, 0 for none.
func (x *endedSessions) conn(session uint64) uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.conns[session]
}

// resultConn is the connection for the result of an accepted acquire.
func (s *Server) resultConn(e *shard.Event) *conn {
	c := s.bindings.conn(e.Session)
	if c == nil && e.Status == protocol.StatusSessionExpired {
		c = s.conns.get(s.bindings.ended.conn(e.Session))
	}
	return c
}
