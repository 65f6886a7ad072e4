package leader

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/container"
)

// liveness knows which sessions at home here are attached on which connections, notices silence,
// and answers pings. What it takes off a connection it detaches in the log.
type liveness struct {
	*leadership
	conns       map[uint64]*conn
	sessions    container.IDTable[session, *session]
	checks      container.Heap[check]
	pings       barrierQueue[*conn]
	latePings   []*conn // their pings wait for the next tick
	detachQueue []*session
}

func newLiveness(s *leadership) liveness {
	return liveness{leadership: s, conns: make(map[uint64]*conn)}
}

func (l *liveness) bind(connID, id, attachEpoch, timeout uint64) {
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
	l.longest = max(l.longest, timeout)
	s.unqueue()
	if s.conn == nil || s.conn.id != connID {
		l.leave(s)
		l.bindTo(s, connID)
		return
	}
	s.conn.includeTimeout(s)
	l.scheduleCheck(s.conn)
}

func (l *liveness) bindTo(s *session, connID uint64) {
	s.at = l.clock.now()
	c := l.conns[connID]
	if connID == 0 || c != nil && c.cut {
		if s.detachID == 0 { // else one is proposed, which counts for this attach too
			l.queueDetach(s, protocol.LinkClosed)
		}
		return
	}
	if c == nil {
		// Check with the next tick: the connection may have closed before the attach was applied.
		c = &conn{id: connID, last: s.at, shortest: s.silenceLimit()}
		l.conns[connID] = c
		l.checkAt(c, s.at)
	}
	s.conn, s.index = c, int32(len(c.sessions))
	c.sessions = append(c.sessions, s)
	if s.detachID != 0 {
		c.undecided++
	}
	c.includeTimeout(s)
	l.scheduleCheck(c)
}

// remove takes a session off its connection.
func (l *liveness) remove(s *session) {
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
func (l *liveness) leave(s *session) {
	c := s.conn
	l.remove(s)
	if c != nil && len(c.sessions) == 0 && !c.cut {
		l.forget(c)
	}
}

func (l *liveness) forget(c *conn) {
	c.forgotten = true
	delete(l.conns, c.id)
}

func (l *liveness) detached(id, attachEpoch uint64) {
	if s := l.sessions.Get(id); s != nil && s.epoch <= attachEpoch {
		l.forgetDetached(s)
	}
}

// forgetDetached forgets a detached session. If its client has attached it again on an open
// connection, that connection is cut: its client believes in the session.
func (l *liveness) forgetDetached(s *session) {
	l.sessions.Remove(s.id)
	s.unqueue()
	if c := s.conn; c != nil {
		l.remove(s)
		l.cut(c, protocol.LinkCut, "a session on this connection was detached; attach it again")
	}
}

func (l *liveness) ended(id uint64) {
	if s := l.sessions.Remove(id); s != nil {
		s.unqueue()
		l.leave(s)
	}
}

// frozen takes the sessions at home in these buckets off their connections, without a detach. Those
// whose detach is undecided stay known: their buckets may come back before it is decided.
func (l *liveness) frozen(first, count uint32) {
	var left []*session
	for s := range l.sessions.All() { // sorted below
		if inRun(s.id, first, count) {
			left = append(left, s)
		}
	}
	slices.SortFunc(left, func(a, b *session) int { return cmp.Compare(a.id, b.id) })
	for _, s := range left {
		s.unqueue()
		l.leave(s)
		if s.detachID == 0 {
			l.sessions.Remove(s.id)
		}
	}
}

// inRun reports whether a session of this shard's tier is at home in the buckets.
func inRun(session uint64, first, count uint32) bool {
	b := protocol.SessionBucket(session)
	return b >= first && b-first < count
}

func (l *liveness) closed(id, lastHeard uint64, link protocol.Link) {
	c := l.conns[id]
	if c == nil {
		return
	}
	l.heardAt(c, lastHeard)
	l.detachAll(c, link)
	l.forget(c)
}

// heardAt notes when something was received on a connection, by the monotonic clock.
func (l *liveness) heardAt(c *conn, at uint64) { c.last = max(c.last, l.clock.at(at)) }

// cut detaches all sessions of a connection and asks for it to be closed. Until it is closed it
// stays known, so that it gets no pong.
func (l *liveness) cut(c *conn, link protocol.Link, reason string) {
	if !c.cut {
		c.cut = true
		l.cutConn(c.id, reason)
	}
	l.detachAll(c, link)
	l.checkAt(c, l.clock.now()+DefaultSelfCheck)
}

func (l *liveness) cutAll(heard Heard, reason string) {
	for _, c := range l.inOrder() {
		if at, _ := heard(c.id); !c.cut {
			l.heardAt(c, at)
			l.cut(c, protocol.LinkCut, reason)
		}
	}
}

// takeOff takes the sessions at home here off all connections at the end of the leadership, without
// a detach.
func (l *liveness) takeOff() {
	for _, c := range l.inOrder() {
		if !c.cut {
			l.cutConn(c.id, "")
		}
	}
}

func (l *liveness) inOrder() []*conn {
	return slices.SortedFunc(maps.Values(l.conns), func(a, b *conn) int { return cmp.Compare(a.id, b.id) })
}
