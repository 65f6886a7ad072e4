package session

import (
	"sync"
	"time"
)

// How long, and of how many sessions, endedSessions remembers the connection.
const (
	endedTTL = time.Minute
	maxEnded = 1 << 16
)

// endedSessions remembers the connections of sessions that ended lately. A session's bindings end
// with it, but shards other than its home are notified later. Only then do they end its accepted
// acquires, and the results must still reach the client. The zero value is ready.
type endedSessions struct {
	mu    sync.Mutex
	conns map[uint64]uint64 // session -> id of the connection
	queue []endedSession    // in order of time
}

type endedSession struct {
	session uint64
	at      time.Duration
}

func (x *endedSessions) add(session, conn uint64, now time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for len(x.queue) > 0 && (now-x.queue[0].at > endedTTL || len(x.queue) >= maxEnded) {
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
