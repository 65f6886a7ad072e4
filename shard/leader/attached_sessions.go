package leader

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
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

// MayAttachUnlogged reports whether an attach of a session may be answered before the log has it (a
// RELAXED attach). The key is compared by the caller, and the node's config asked.
//
// The answer lets the client believe in the session for less than its timeout from the moment it
// sent the request. So it is given only when the session cannot end earlier under any leader, and
// whatever becomes of the attach itself:
//
//   - The session is detached, and its deadline in the log is at least its timeout away, and the
//     age of the last barrier more. A leader that takes over keeps the deadline (shard.Machine),
//     and goes on from a log time that this leader has stamped. It took over after that barrier
//     began, which may be earlier than now by the age. Furthest is a log time that this leader
//     cannot have passed. The state must be at or after that barrier: age is looked up before the
//     view.
//   - No attach was sent between the one that the log has and this one: clients number each
//     attempt. Another leader, which this one does not know of yet, may otherwise have attached the
//     session and detached it again, and such a detach waits for the timeout alone. A client leaves
//     a number out behind a start or an attach that it sent more than once, since another leader
//     may have had the copy.
//   - It is the same client as before, by its nonce. Two clients do not know of each other's
//     numbers, so the log decides between them.
//   - Timeout and description stay what they are: nothing the client counts on is only in memory.
//
// After an unplanned change of leader that holds for about a grace period, in which all sessions
// come back together. After a planned one it does not hold: those attaches take the way through the
// log.
func MayAttachUnlogged(v *shard.SessionView, m *protocol.SessionAttach, furthest, age uint64) bool {
	return !v.Attached && v.Node == m.Node && m.Epoch == v.Epoch+1 && m.Nonce == v.Nonce &&
		m.Timeout == v.Timeout && m.Description == v.Description &&
		v.Deadline >= furthest+age+v.Timeout
}

// detachAll takes all sessions off a connection and detaches them, as of the last receive on it.
func (l *liveness) detachAll(c *conn, link protocol.Link) {
	for _, s := range c.sessions {
		s.conn, s.index = nil, int32(link)
		s.at = max(c.last, s.at)
		if s.detachID == 0 {
			l.queueDetach(s, link)
		}
	}
	clear(c.sessions)
	c.sessions, c.undecided = c.sessions[:0], 0
}

func (l *liveness) queueDetach(s *session, link protocol.Link) {
	s.index = -int32(link)
	l.detachQueue = append(l.detachQueue, s)
}

// flushDetaches proposes the detaches that are queued, as fast as the limiter permits.
func (l *liveness) flushDetaches(p *proposals) {
	for (len(l.detachQueue) > 0 || l.unlogged && l.expires) && p.limiter.tokens > 0 {
		f, body := proposal{stood: l.unlogged}, shard.DetachBody{}
		if l.unlogged {
			body.Stood, body.StoodAt, l.unlogged = l.stood, l.stoodAt, false
		}
		for len(l.detachQueue) > 0 && p.limiter.tokens > 0 && len(f.sessions) < MaxExpiries {
			s := l.detachQueue[0]
			l.detachQueue[0] = nil
			l.detachQueue = l.detachQueue[1:]
			if !s.detachQueued() {
				continue // attached again, or ended
			}
			s.unqueue()
			p.limiter.tokens--
			f.sessions = append(f.sessions, s)
			body.Sessions = append(body.Sessions, shard.DetachItem{Session: s.id, Epoch: s.epoch, LastContact: s.at, Link: s.link()})
		}
		if len(f.sessions) == 0 && body.Stood == 0 {
			return
		}
		id := p.propose(shard.CmdDetach, shard.AppendDetach(nil, body), f)
		for _, s := range f.sessions {
			s.detachID = id
		}
	}
}

// detachesDone handles the outcome of the command that detaches these sessions.
func (l *liveness) detachesDone(command uint64, list []*session, applied bool) {
	for _, s := range list {
		if l.sessions.Get(s.id) != s || s.detachID != command {
			continue // the log has decided it already
		}
		s.detachID = 0
		if s.conn != nil {
			s.conn.undecided--
		}
		switch {
		case applied:
			// The machine did not have it attached under this epoch.
			l.forgetDetached(s)
		case s.conn == nil:
			l.queueDetach(s, s.link())
		}
	}
}
