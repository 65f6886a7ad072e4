package session

import (
	"sync"
	"time"
)

// How long, and how many sessions, endedSessions remembers.
const (
	endedTTL = time.Minute
	maxEnded = 1 << 16
)

// endedSessions remembers sessions that ended lately: the connection, and why. A session's bindings
// end with it, but shards other than its home are notified later, and not of the reason. Only then
// do they end its accepted acquires, and the results must still reach the client. The zero value is
// ready.
type endedSessions struct {
	mu    sync.Mutex
	ends  map[uint64]sessionEnd // by session
	queue []endedSession        // in order of time
}

type sessionEnd struct {
	conn   uint64 // id of the connection
	reason string
}

type endedSession struct {
	session uint64
	at      time.Duration
}

func (x *endedSessions) add(session uint64, end sessionEnd, now time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for len(x.queue) > 0 && (now-x.queue[0].at > endedTTL || len(x.queue) >= maxEnded) {
		delete(x.ends, x.queue[0].session)
		x.queue = x.queue[1:]
	}
	if x.ends == nil {
		x.ends = make(map[uint64]sessionEnd)
	}
	x.ends[session] = end
	x.queue = append(x.queue, endedSession{session, now})
}

// end is how a session ended, zero if that is not known.
func (x *endedSessions) end(session uint64) sessionEnd {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.ends[session]
}
