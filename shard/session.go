package shard

import (
	"crypto/subtle"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
)

// homeSession is a session at home in this shard.
//
// Invariant: it is in its node's sessions and in sessionTable.byCreateID until it ends; detached
// ones have a timer scheduled, attached ones have not. One that a take-over detached counts as
// attached here until it is swept.
//
// What the shard's semaphores know of it is its session record, which stays as a remote session
// when the home leaves this shard.
type homeSession struct {
	*sessionRecord
	client     string // address of the client, for people
	key        [protocol.KeyLen]byte
	createID   [protocol.KeyLen]byte
	nonce      uint64 // of the start or attach that made the attach epoch: the client that holds the session
	created    uint64 // wall clock
	generation uint64 // of the take-over under which attached and the timer were written
	timeout    uint32 // ms
	attached   bool
	link       protocol.Link // of one that is detached: why
}

func homeSessionLess(a, b *homeSession) bool { return a.id < b.id }

// newHomeSession makes a home session and its record in one piece of memory.
func newHomeSession() *homeSession {
	var x struct {
		homeSession
		own sessionRecord
	}
	x.homeSession.sessionRecord = &x.own
	x.own.home, x.own.sessionUse = &x.homeSession, &unused
	return &x.homeSession
}

func (s *homeSession) deadlineKey() (deadlineKind, uint64, uint32) { return deadlineSession, s.id, 0 }

// applyStart makes a session, or answers again for its create id.
func applyStart(m *Machine, c *rawCommand) {
	x := &m.batch.start
	if !m.decode(x, c.body) || !m.valid(x) {
		return
	}
	create := [protocol.KeyLen]byte(x.CreateID)
	if len(m.buckets) == 0 {
		m.reply(protocol.StatusWrongShard, textWrongShard)
		return
	}
	b := &m.buckets[protocol.HomeBucket(create, uint32(len(m.buckets)))]
	if b.state != bucketActive {
		m.reply(protocol.StatusWrongShard, textWrongShard)
		return
	}
	if s := m.byCreateID.get(create); s != nil {
		repeatStart(m, c, s, x)
		return
	}
	if m.endedCreateIDs.Has(create, m.logTime) {
		m.reply(protocol.StatusSessionExpired, textCreateEnded)
		return
	}
	n := m.nodes[x.Node]
	if n == nil {
		m.replyError(noNode(m, x.Node))
		return
	}
	if !m.roomForSession(n) {
		m.reply(protocol.StatusPreconditionFailed, textSessionQuota(n.config.MaxSessions))
		return
	}
	if !m.roomForBytes(n, sessionBytes+uint64(len(x.Description))) {
		m.reply(protocol.StatusPreconditionFailed, textBytesQuota(n.config.MaxBytes))
		return
	}
	b.sessionCounter++
	s := newHomeSession()
	*s.sessionRecord = sessionRecord{
		id: protocol.MakeSessionID(m.tier, uint16(b.number), b.sessionCounter), node: n, epoch: 1,
		description: m.interner.String(x.Description), snapMark: m.snapMark, home: s, sessionUse: &unused,
	}
	s.key, s.createID, s.nonce, s.client, s.created =
		[protocol.KeyLen]byte(x.Key), create, x.Nonce, m.interner.Bytes(c.sender), m.wall
	s.lastSeen, s.generation, s.timeout, s.attached = m.logTime, m.takeovers.generation, uint32(x.Timeout), true
	m.sessions.add(s.sessionRecord)
	m.byCreateID.add(s)
	n.addSession(s, x.Parent)
	m.replyAttached(s)
}

// repeatStart answers a start that was sent again because its answer was lost: it attaches the
// session to the connection of the retry.
func repeatStart(m *Machine, c *rawCommand, s *homeSession, x *protocol.SessionStart) {
	switch {
	case !m.alive(s.sessionRecord) || s.node.id != x.Node:
		m.reply(protocol.StatusSessionExpired, textCreateEnded)
	case subtle.ConstantTimeCompare(s.key[:], x.Key) == 0:
		m.reply(protocol.StatusBadSession, textWrongKey)
	case s.epoch > 1:
		m.reply(protocol.StatusBadSession, textTakenOver)
	case s.nonce != x.Nonce:
		m.reply(protocol.StatusBadSession, textOtherHolder)
	default:
		s.attach(m, c)
		m.replyAttached(s)
	}
}

// applyAttach attaches an existing session. The order of the checks is the specification's.
func applyAttach(m *Machine, c *rawCommand) {
	x := &m.batch.attach
	if !m.decode(x, c.body) || !m.valid(x) {
		return
	}
	s := requireHomeSession(m, x.Session, x.Node)
	switch {
	case s == nil:
		return
	case x.Epoch < s.epoch:
		m.reply(protocol.StatusBadSession, textTakenOver)
		return
	case subtle.ConstantTimeCompare(s.key[:], x.Key) == 0:
		m.reply(protocol.StatusBadSession, textWrongKey)
		return
	case x.Epoch == s.epoch && x.Nonce != s.nonce:
		m.reply(protocol.StatusBadSession, textOtherHolder)
		return
	}
	m.touch(s.sessionRecord)
	s.epoch, s.nonce, s.timeout = x.Epoch, x.Nonce, uint32(x.Timeout)
	if s.description != x.Description {
		// beyond the quota of bytes if need be: an attach keeps a session alive
		s.setDescription(m.interner.String(x.Description))
	}
	s.attach(m, c)
	m.replyAttached(s)
}

// attach makes a session attached and cancels its deadline.
func (s *homeSession) attach(m *Machine, c *rawCommand) {
	m.touch(s.sessionRecord)
	m.unschedule(s)
	s.sessionRecord.detached = false
	s.attached, s.link, s.generation, s.lastSeen = true, 0, m.takeovers.generation, m.logTime
	if s.client != string(c.sender) {
		s.client = m.interner.Bytes(c.sender)
	}
}

// requireHomeSession finds a living session of a node in its home bucket; it answers the command if
// there is none. A session of another node is answered for as one that never was.
func requireHomeSession(m *Machine, id, node uint64) *homeSession {
	if m.activeHomeBucket(id) == nil {
		m.reply(protocol.StatusWrongShard, textWrongShard)
		return nil
	}
	p := m.sessions.get(id)
	switch {
	case m.isDropped(node):
		m.reply(protocol.StatusSessionExpired, textNodeDropped)
		return nil
	case p == nil || p.home == nil || p.node.id != node || !m.alive(p):
		m.reply(protocol.StatusSessionExpired, textSessionEnded)
		return nil
	}
	return p.home
}

// applyDetach detaches sessions whose connection ended or fell silent. Timeout 0 ends them at once.
func applyDetach(m *Machine, c *rawCommand) {
	r := varint.Reader{Rest: c.body}
	n := r.Count(varint.NoLimit)
	items := r.Rest
	for range n {
		r.Uint()
		r.Uint()
		r.Uint()
		r.Byte()
	}
	stood, stoodAt := r.Uint(), r.Uint()
	if r.Failed || len(r.Rest) != 0 {
		m.reply(protocol.StatusBadRequest, textMalformed)
		return
	}
	if stood > 0 {
		m.stood, m.stoodAt = stood, min(stoodAt, m.logTime)
	}
	r = varint.Reader{Rest: items}
	for range n {
		id, epoch, lastContact, link := r.Uint(), r.Uint(), r.Uint(), protocol.Link(r.Byte())
		if p := m.sessions.get(id); p != nil && p.home != nil && p.epoch == epoch &&
			m.alive(p) && m.activeHomeBucket(id) != nil {
			p.home.detach(m, lastContact, link)
		}
	}
	m.reply(protocol.StatusOK, "")
}

// detach makes a session detached, unless it is, with the time of its last message.
func (s *homeSession) detach(m *Machine, lastContact uint64, link protocol.Link) {
	if attached, _ := m.attached(s); !attached {
		return
	}
	m.touch(s.sessionRecord)
	s.attached, s.link = false, link
	m.batch.out.List = append(m.batch.out.List,
		Event{Kind: EventSessionDetached, Session: s.id, Node: s.node.id, Epoch: s.epoch, Text: s.description})
	lastContact = min(max(lastContact, s.lastSeen), m.logTime)
	m.schedule(s, addSaturated(m.homeBucketOf(s).timeAt(lastContact), uint64(s.timeout)))
	if s.timeout == 0 {
		s.end(m, protocol.EndExpired, textExpired)
	}
}

// applyStop ends a session at its client's wish.
func applyStop(m *Machine, c *rawCommand) {
	x := &m.batch.stop
	if !m.decode(x, c.body) || !m.valid(x) {
		return
	}
	s := requireHomeSession(m, x.Session, c.node)
	if s == nil {
		return
	}
	if x.Epoch < s.epoch || c.epoch < s.epoch {
		m.reply(protocol.StatusBadSession, textTakenOver)
		return
	}
	m.reply(protocol.StatusOK, "")
	s.end(m, protocol.EndStopped, textStopped)
}

// applyKill ends a session at an operator's wish.
func applyKill(m *Machine, c *rawCommand) {
	x := &m.batch.kill
	if !m.decode(x, c.body) || !m.valid(x) {
		return
	}
	s := requireHomeSession(m, x.Session, x.Node)
	if s == nil {
		return
	}
	m.reply(protocol.StatusOK, "")
	s.end(m, protocol.EndKilled, x.Reason)
}

// expire ends a session whose deadline has passed.
func (s *homeSession) expire(m *Machine) {
	if s.node.dropped {
		s.end(m, protocol.EndNodeDropped, textNodeEnd)
		return
	}
	s.end(m, protocol.EndExpired, textExpired)
}

// end ends a session: from now on it is unknown. Its waiters are answered first, then its end is
// reported. What does not fit into the work of this Apply is released in the next ones, without
// events to the session: none may follow its end.
func (s *homeSession) end(m *Machine, reason protocol.EndReason, text string) {
	m.touch(s.sessionRecord)
	how := s.howEnded(m, reason)
	m.unschedule(s)
	m.byCreateID.remove(s)
	remember(&m.endedCreateIDs, s.createID, m.logTime)
	s.node.removeSession(s)
	s.ended, s.endReason = true, reason
	s.endedAs(&how)
	s.chargeAnswers()
	done := s.releaseAll(m, text)
	m.batch.out.List = append(m.batch.out.List,
		Event{Kind: EventSessionEnded, Session: s.id, Node: s.node.id, Reason: reason, Text: text, Ending: &how})
	m.deferRelease(s.sessionRecord, done)
}

// howEnded is how a session ends now. One that was detached has not been heard since a timeout before
// its deadline.
func (s *homeSession) howEnded(m *Machine, reason protocol.EndReason) protocol.Ending {
	how := protocol.Ending{Reason: reason}
	if reason != protocol.EndExpired || s.attached {
		return how
	}
	b := m.homeBucketOf(s)
	now, heard := m.bucketTime(b), s.timer.at-min(s.timer.at, uint64(s.timeout))
	how.Link, how.Silent, how.Steady = s.link, now-min(now, heard), s.generation == m.takeovers.generation
	if m.stoodAt > b.logBase { // before, the bucket was another shard's
		how.Stood = min(m.stood, b.timeAt(m.stoodAt)-min(b.timeAt(m.stoodAt), heard))
	}
	return how
}
