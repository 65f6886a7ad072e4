package leader

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/leader/idset"
)

// liveness knows which sessions at home here are attached on which connections, notices silence,
// and answers pings. What it takes off a connection it detaches in the log.
type liveness struct {
	*leadership
	conns       map[uint64]*conn
	sessions    idset.Table[*session]
	checks      checks
	pings       barrierQueue[*conn]
	latePings   []*conn // their pings wait for the next tick
	detachQueue []*session
}

func newLiveness(s *leadership) liveness {
	return liveness{leadership: s, conns: make(map[uint64]*conn)}
}

func (v *liveness) bind(connID, id, attachEpoch, timeout uint64) {
	s := v.sessions.Get(id)
	if s != nil && attachEpoch < s.epoch {
		return
	}
	if s != nil && attachEpoch > s.epoch {
		// A queued or proposed detach of the older epoch is void: the machine finds a newer epoch
		// and ignores it.
		v.leave(s)
		s = nil
	}
	if s == nil {
		s = &session{id: id, epoch: attachEpoch}
		v.sessions.Put(s)
	}
	s.timeout = uint32(min(timeout, math.MaxUint32))
	s.unqueue()
	if s.conn == nil || s.conn.id != connID {
		v.leave(s)
		v.bindTo(s, connID)
		return
	}
	s.conn.includeTimeout(s)
	v.scheduleCheck(s.conn)
}

func (v *liveness) bindTo(s *session, connID uint64) {
	s.at = v.clock.now()
	c := v.conns[connID]
	if connID == 0 || c != nil && c.cut {
		v.queueDetach(s)
		return
	}
	if c == nil {
		// Check with the next tick: the connection may have closed before the attach was applied.
		c = &conn{id: connID, last: s.at, shortest: s.silenceLimit()}
		v.conns[connID] = c
		v.checkAt(c, s.at)
	}
	s.conn, s.index = c, int32(len(c.sessions))
	c.sessions = append(c.sessions, s)
	if s.detachID != 0 {
		c.undecided++
	}
	c.includeTimeout(s)
	v.scheduleCheck(c)
}

// remove takes a session off its connection.
func (v *liveness) remove(s *session) {
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
func (v *liveness) leave(s *session) {
	c := s.conn
	v.remove(s)
	if c != nil && len(c.sessions) == 0 && !c.cut {
		v.forget(c)
	}
}

func (v *liveness) forget(c *conn) {
	c.forgotten = true
	delete(v.conns, c.id)
}

func (v *liveness) detached(id, attachEpoch uint64) {
	if s := v.sessions.Get(id); s != nil && s.epoch <= attachEpoch {
		v.forgetDetached(s)
	}
}

// forgetDetached forgets a detached session. If its client has attached it again on an open
// connection, that connection is cut: its client believes in the session.
func (v *liveness) forgetDetached(s *session) {
	v.sessions.Remove(s.id)
	s.unqueue()
	if c := s.conn; c != nil {
		v.remove(s)
		v.cut(c, "a session on this connection was detached; attach it again")
	}
}

func (v *liveness) ended(id uint64) {
	if s := v.sessions.Remove(id); s != nil {
		s.unqueue()
		v.leave(s)
	}
}

// frozen takes the sessions at home in these buckets off their connections, without a detach.
func (v *liveness) frozen(first, count uint32) {
	var left []*session
	for s := range v.sessions.All() { // sorted below
		if inRun(s.id, first, count) {
			left = append(left, s)
		}
	}
	slices.SortFunc(left, func(a, b *session) int { return cmp.Compare(a.id, b.id) })
	for _, s := range left {
		v.sessions.Remove(s.id)
		s.unqueue()
		v.leave(s)
	}
}

// inRun reports whether a session of this shard's tier is at home in the buckets.
func inRun(session uint64, first, count uint32) bool {
	b := protocol.SessionBucket(session)
	return b >= first && b-first < count
}

func (v *liveness) closed(id, lastHeard uint64) {
	c := v.conns[id]
	if c == nil {
		return
	}
	v.heardAt(c, lastHeard)
	v.detachAll(c)
	v.forget(c)
}

// heardAt notes when something was received on a connection, by the monotonic clock.
func (v *liveness) heardAt(c *conn, at uint64) { c.last = max(c.last, v.clock.at(at)) }

// cut detaches all sessions of a connection and asks for it to be closed. Until it is closed it
// stays known, so that it gets no pong.
func (v *liveness) cut(c *conn, reason string) {
	if !c.cut {
		c.cut = true
		v.cutConn(c.id, reason)
	}
	v.detachAll(c)
	v.checkAt(c, v.clock.now()+DefaultSelfCheck)
}

func (v *liveness) cutAll(heard Heard, reason string) {
	for _, c := range v.inOrder() {
		if at, _ := heard(c.id); !c.cut {
			v.heardAt(c, at)
			v.cut(c, reason)
		}
	}
}

// takeOff takes the sessions at home here off all connections at the end of the leadership, without
// a detach.
func (v *liveness) takeOff() {
	for _, c := range v.inOrder() {
		if !c.cut {
			v.cutConn(c.id, "")
		}
	}
}

func (v *liveness) inOrder() []*conn {
	return slices.SortedFunc(maps.Values(v.conns), func(a, b *conn) int { return cmp.Compare(a.id, b.id) })
}
