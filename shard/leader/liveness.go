package leader

import (
	"container/heap"
	"math"
)

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
	forgotten bool   // not in Leader.conns any more

	waitingPing, inFlightPing uint64 // the newest ping that waits for a barrier to begin, and for one to end
	pingWaiting, pingInFlight bool
}

// session is an attached session, or one whose detach is undecided. There is one for each session
// at home here, so it has only 48 bytes.
type session struct {
	id, epoch uint64
	conn      *conn  // nil: its detach is queued or proposed
	at        uint64 // log time: of the attach; once conn is nil, of the last receive
	detachID  uint64 // of the proposed detach, 0: none
	timeout   uint32 // ms
	index     int32  // in conn.sessions; inDetachQueue or 0 if conn is nil
}

// inDetachQueue is the index of a session in Leader.detachQueue.
const inDetachQueue = -1

func (s *session) detachQueued() bool { return s.index == inDetachQueue }

// unqueue makes the session's entry in Leader.detachQueue void.
func (s *session) unqueue() {
	if s.index == inDetachQueue {
		s.index = 0
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

// Attached is EventSessionAttached: the session is attached on this connection under this epoch.
// Timeout in ms. Connection 0 stands for one that is closed: the session is detached at once.
func (l *Leader) Attached(now, conn, session, attachEpoch, timeout uint64, description string) {
	l.Bind(now, conn, session, attachEpoch, timeout)
	if l.epoch != 0 {
		l.notifyAlive(session, stateAttached, attachEpoch, description)
	}
}

// Bind registers the liveness of an attach that is answered before it is logged. Attached repeats
// it.
func (l *Leader) Bind(now, connID, id, attachEpoch, timeout uint64) {
	if l.epoch == 0 {
		if connID != 0 {
			l.ready.Cut = append(l.ready.Cut, Cut{connID, "the shard is not led here; connect to its master"})
		}
		return
	}
	l.observe(now)
	s := l.sessions.Get(id)
	if s != nil && attachEpoch < s.epoch {
		return
	}
	if s != nil && attachEpoch > s.epoch {
		// A queued or proposed detach of the older epoch is void: the machine finds a newer epoch
		// and ignores it.
		l.leave(s)
		s = nil
	}
	if s == nil {
		s = &session{id: id, epoch: attachEpoch}
		l.sessions.Put(s)
	}
	s.timeout = uint32(min(timeout, math.MaxUint32))
	s.unqueue()
	if s.conn == nil || s.conn.id != connID {
		l.leave(s)
		l.bindTo(s, connID)
		return
	}
	s.conn.includeTimeout(s)
	l.scheduleCheck(s.conn)
}

func (l *Leader) bindTo(s *session, connID uint64) {
	s.at = l.clock.now()
	c := l.conns[connID]
	if connID == 0 || c != nil && c.cut {
		l.queueDetach(s)
		return
	}
	if c == nil {
		// Check with the next tick: the connection may have closed before the attach was applied.
		c = &conn{id: connID, last: s.at, shortest: s.silenceLimit(), nextCheck: s.at}
		l.conns[connID] = c
		heap.Push(&l.checks, check{c.nextCheck, c.id})
	}
	s.conn, s.index = c, int32(len(c.sessions))
	c.sessions = append(c.sessions, s)
	if s.detachID != 0 {
		c.undecided++
	}
	c.includeTimeout(s)
	l.scheduleCheck(c)
}

func (c *conn) includeTimeout(s *session) { c.shortest = min(c.shortest, s.silenceLimit()) }

// scheduleCheck checks the connection no later than its shortest limit demands.
func (l *Leader) scheduleCheck(c *conn) {
	if at := c.last + c.shortest + 1; at < c.nextCheck {
		c.nextCheck = at
		heap.Push(&l.checks, check{c.nextCheck, c.id})
	}
}

// remove takes a session off its connection.
func (l *Leader) remove(s *session) {
	c := s.conn
	if c == nil {
		return
	}
	last := len(c.sessions) - 1
	c.sessions[s.index] = c.sessions[last]
	c.sessions[s.index].index = s.index
	c.sessions[last] = nil
	c.sessions = c.sessions[:last]
	s.conn, s.index = nil, 0
	if s.detachID != 0 {
		c.undecided--
	}
}

// leave takes a session off its connection, and forgets a connection without sessions unless it is
// being closed.
func (l *Leader) leave(s *session) {
	c := s.conn
	l.remove(s)
	if c != nil && len(c.sessions) == 0 && !c.cut {
		l.forget(c)
	}
}

func (l *Leader) forget(c *conn) {
	c.forgotten = true
	delete(l.conns, c.id)
}

// Detached is EventSessionDetached.
func (l *Leader) Detached(now, id, attachEpoch uint64, description string) {
	if l.epoch == 0 {
		return
	}
	l.observe(now)
	l.notifyAlive(id, stateDetached, attachEpoch, description)
	s := l.sessions.Get(id)
	if s == nil || s.epoch > attachEpoch {
		return
	}
	l.forgetDetached(s)
}

// forgetDetached forgets a detached session. If its client has attached it again on an open
// connection, that connection is cut: its client believes in the session.
func (l *Leader) forgetDetached(s *session) {
	l.sessions.Remove(s.id)
	s.unqueue()
	if c := s.conn; c != nil {
		l.remove(s)
		l.cut(c, "a session on this connection was detached; attach it again")
	}
}

// Ended is EventSessionEnded.
func (l *Leader) Ended(now, id uint64) {
	if l.epoch == 0 {
		return
	}
	l.observe(now)
	if s := l.sessions.Remove(id); s != nil {
		s.unqueue()
		l.leave(s)
	}
	l.notifyEnded(id)
}

// ConnClosed reports a closed connection, and when something was last received on it.
func (l *Leader) ConnClosed(now, id, lastHeard uint64) {
	if l.epoch == 0 {
		return
	}
	l.observe(now)
	c := l.conns[id]
	if c == nil {
		return
	}
	c.last = max(c.last, l.clock.at(lastHeard))
	l.detachAll(c)
	l.forget(c)
}

// cut detaches all sessions of a connection and asks for it to be closed. Until it is closed it
// stays known, so that it gets no pong.
func (l *Leader) cut(c *conn, reason string) {
	if !c.cut {
		c.cut = true
		l.ready.Cut = append(l.ready.Cut, Cut{c.id, reason})
	}
	l.detachAll(c)
	c.nextCheck = l.clock.now() + DefaultSelfCheck
	heap.Push(&l.checks, check{c.nextCheck, c.id})
}

func (l *Leader) detachAll(c *conn) {
	for _, s := range c.sessions {
		s.conn, s.index = nil, 0
		s.at = max(c.last, s.at)
		if s.detachID == 0 {
			l.queueDetach(s)
		}
	}
	clear(c.sessions)
	c.sessions, c.undecided = c.sessions[:0], 0
}

func (l *Leader) queueDetach(s *session) {
	s.index = inDetachQueue
	l.detachQueue = append(l.detachQueue, s)
}

// Ping asks for a pong behind a barrier that begins after this call. A newer ping of the connection
// replaces a waiting one. A connection without sessions at home here gets no pong.
func (l *Leader) Ping(now, id, ping uint64) {
	if l.epoch == 0 {
		return
	}
	l.observe(now)
	c := l.conns[id]
	if c == nil || c.cut {
		return
	}
	// A detach must not be dated before a ping that was answered, whatever the driver reports of
	// the connection later.
	c.last = max(c.last, l.clock.now())
	c.waitingPing = ping
	if !c.pingWaiting {
		c.pingWaiting = true
		l.pingsWaiting = append(l.pingsWaiting, c)
	}
}

func (l *Leader) canPong(c *conn) bool {
	return !c.cut && !c.forgotten && c.undecided == 0 && len(c.sessions) > 0
}

// checkSilence checks the connections whose time has come.
func (l *Leader) checkSilence(heard func(conn uint64) (at uint64, open bool)) {
	now := l.clock.now()
	for len(l.checks) > 0 && l.checks[0].at <= now {
		k := heap.Pop(&l.checks).(check)
		c := l.conns[k.conn]
		if c == nil || c.nextCheck != k.at {
			continue
		}
		at, open := heard(c.id)
		c.last = max(c.last, l.clock.at(at))
		if !open {
			l.detachAll(c)
			l.forget(c)
			continue
		}
		switch {
		case c.cut:
			c.nextCheck = now + DefaultSelfCheck
		case now <= c.last+c.shortest:
			c.nextCheck = c.last + c.shortest + 1
		default:
			next := never
			c.shortest = never
			for _, s := range c.sessions {
				c.includeTimeout(s)
				next = min(next, max(c.last, s.at)+s.silenceLimit()+1)
			}
			if next <= now {
				l.stats.TimedOut++
				l.cut(c, "nothing was heard on this connection for a session's timeout")
				continue
			}
			c.nextCheck = next
		}
		heap.Push(&l.checks, check{c.nextCheck, c.id})
	}
}

// checks is a heap of connections by the log time of their next check. An entry that differs from
// conn.nextCheck is stale.
type checks []check

type check struct{ at, conn uint64 }

func (h checks) Len() int { return len(h) }
func (h checks) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].conn < h[j].conn
}
func (h checks) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *checks) Push(x any)   { *h = append(*h, x.(check)) }
func (h *checks) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
