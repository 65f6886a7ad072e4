package leader

import "github.com/signalbox-dev/signalbox/protocol"

// A client pings at a quarter of the shortest timeout of its sessions on a connection. After three
// eighths of it without a ping, one is missing.
const missedPingEighths = 3

// conn is a connection with attached sessions at home in this shard.
//
// Invariant: a pong is sent only if none of the sessions that the client believes attached may have
// a detach in the log. So if one session of a connection times out, the whole connection is cut. If
// a session is attached again under an epoch whose detach is undecided, the connection gets no pong
// until it is decided.
type conn struct {
	id        uint64
	sessions  []*session
	last      uint64 // log time of the last receive, as far as known
	shortest  uint64 // at most the shortest silence limit of its sessions
	nextCheck uint64 // log time; other entries of the heap are stale
	undecided int    // sessions with a proposed, undecided detach
	cut       bool   // being closed: no pongs
	forgotten bool   // not in liveness.conns any more

	// the newest ping that waits for a barrier to begin, or for a tick before that, and for one to end
	waitingPing, inFlightPing uint64
	pingWaiting, pingInFlight bool
}

func (c *conn) includeTimeout(s *session) { c.shortest = min(c.shortest, s.silenceLimit()) }

// missedPing reports whether a ping is missing on the connection.
func (c *conn) missedPing(now uint64) bool {
	missed := func() bool { return now > c.last && 8*(now-c.last) > missedPingEighths*c.shortest }
	if !missed() {
		return false
	}
	c.shortest = never // the session with the shortest timeout may be gone
	for _, s := range c.sessions {
		c.includeTimeout(s)
	}
	return missed()
}

// canPong reports whether no session of the connection may have a detach in the log.
func (c *conn) canPong() bool {
	return !c.cut && !c.forgotten && c.undecided == 0 && len(c.sessions) > 0
}

// atHome reports whether all sessions on a connection are at home in ACTIVE buckets here. After a
// freeze is applied, a session stays on its connection until its client is notified.
func (c *conn) atHome(st State) bool {
	for _, s := range c.sessions {
		if _, active := st.HomeBucket(s.id); !active {
			return false
		}
	}
	return true
}

// session is an attached session, or one whose detach is undecided. There is one for each session
// at home here, so it has only 48 bytes.
type session struct {
	id, epoch uint64
	conn      *conn  // nil: its detach is queued or proposed
	at        uint64 // log time: of the attach; once conn is nil, of the last receive
	detachID  uint64 // of the proposed detach, 0: none
	timeout   uint32 // ms
	index     int32  // in conn.sessions; if conn is nil the link to be logged, below 0 in liveness.detachQueue
}

func (s *session) detachQueued() bool { return s.index < 0 }

// link is what became of the connection of a session that has none any more.
func (s *session) link() protocol.Link { return protocol.Link(s.index) }

// unqueue makes the session's entry in liveness.detachQueue void.
func (s *session) unqueue() {
	if s.detachQueued() {
		s.index = -s.index
	}
}

// Key is the id, for the table.
func (s *session) Key() uint64 { return s.id }

func (s *session) silenceLimit() uint64 {
	if s.timeout == 0 {
		return ZeroTimeoutSilence
	}
	return uint64(s.timeout)
}
