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
// do they end its queued acquires, and the results must still reach the client. The zero value is
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

func (e *endedSessions) add(session uint64, end sessionEnd, now time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.queue) > 0 && (now-e.queue[0].at > endedTTL || len(e.queue) >= maxEnded) {
		delete(e.ends, e.queue[0].session)
		e.queue = e.queue[1:]
	}
	if e.ends == nil {
		e.ends = make(map[uint64]sessionEnd)
	}
	e.ends[session] = end
	e.queue = append(e.queue, endedSession{session, now})
}

// end is how a session ended, zero if that is not known.
func (e *endedSessions) end(session uint64) sessionEnd {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ends[session]
}
