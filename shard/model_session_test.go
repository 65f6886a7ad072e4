package shard

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/signalbox-dev/signalbox/protocol"
)

// session finds a record of a session that has not ended.
func (m *model) session(id uint64) *modelSession {
	for _, s := range m.sessions {
		if s.id == id {
			return s
		}
	}
	return nil
}

// alive reports whether the session exists: an overdue one does not, whether its end was logged or
// not.
func (m *model) alive(s *modelSession) bool {
	return !s.ended && (!s.home || s.attached || m.now <= s.deadline)
}

func badText(s string) bool { return len(s) > 1024 || !utf8.ValidString(s) }

// badReason reports whether operators' reasons must be given.
func badReason(s string) bool { return badText(s) || strings.Trim(s, " ") == "" }

func (m *model) start(o op, x *protocol.SessionStart) {
	if len(x.CreateID) != 16 || len(x.Key) != 16 || x.Timeout > 30*60*1000 || badText(x.Description) || x.Nonce == 0 {
		m.reply(protocol.StatusBadRequest)
		return
	}
	create := [protocol.KeyLen]byte(x.CreateID)
	if m.total == 0 || !m.active[protocol.HomeBucket(create, m.total)] {
		m.reply(protocol.StatusWrongShard)
		return
	}
	for _, s := range m.sessions {
		if !s.home || s.create != create {
			continue
		}
		switch {
		case !m.alive(s) || s.node != x.Node:
			m.countRule("start again of one that is overdue, or elsewhere")
			m.reply(protocol.StatusSessionExpired)
		case s.key == [protocol.KeyLen]byte(x.Key) && s.epoch == 1 && s.nonce != x.Nonce:
			m.countRule("start again with another nonce")
			m.reply(protocol.StatusBadSession)
		case s.key != [protocol.KeyLen]byte(x.Key) || s.epoch > 1:
			m.countRule("start again with a wrong key, or after an attach")
			m.reply(protocol.StatusBadSession)
		default:
			m.countRule("start again")
			m.attached(o, s)
		}
		return
	}
	if _, ended := m.goneCreates[create]; ended {
		m.countRule("start again after the end")
		m.reply(protocol.StatusSessionExpired)
		return
	}
	n := m.node(x.Node)
	if n == nil {
		m.reply(protocol.StatusNotFound)
		return
	}
	count := 0
	for _, s := range m.sessions {
		if s.home && s.node == n.id {
			count++
		}
	}
	if count >= m.share(n.config.MaxSessions) {
		m.countRule("quota of sessions")
		m.reply(protocol.StatusPreconditionFailed)
		return
	}
	if m.full(n.id, 512+len(x.Description)) {
		m.reply(protocol.StatusPreconditionFailed)
		return
	}
	b := protocol.HomeBucket(create, m.total)
	m.ids[b]++
	s := &modelSession{
		id: protocol.MakeSessionID(m.tier, uint16(b), m.ids[b]), node: n.id, home: true,
		epoch: 1, desc: x.Description, low: 1, answers: map[uint64]modelAnswer{},
		key: [protocol.KeyLen]byte(x.Key), create: create, nonce: x.Nonce, timeout: x.Timeout, created: m.wall,
	}
	m.sessions = append(m.sessions, s)
	m.attached(o, s)
}

// attached makes a session attached, and answers.
func (m *model) attached(o op, s *modelSession) {
	s.attached, s.since, s.client, s.leader = true, m.now, o.client, m.leader
	e := Event{Kind: EventReply, Command: m.command, Session: s.id, Node: s.node, Epoch: s.epoch,
		Timeout: s.timeout, Grace: m.node(s.node).config.GracePeriod}
	bound := e
	bound.Kind, bound.Text = EventSessionAttached, s.desc
	m.emit(bound) // before the reply, which lets the client go on
	e.Result = uint64(m.node(s.node).config.ReadConsistency)
	m.emit(e)
}

// homeSession finds a living session of the node at its home, or answers.
func (m *model) homeSession(id, node uint64) *modelSession {
	if !m.isHome(id) {
		m.reply(protocol.StatusWrongShard)
		return nil
	}
	s := m.session(id)
	if s == nil || s.node != node || !m.alive(s) {
		if s != nil && s.node == node {
			m.countRule("overdue session counts as gone")
		}
		m.reply(protocol.StatusSessionExpired)
		return nil
	}
	return s
}

func (m *model) attach(o op, x *protocol.SessionAttach) {
	if len(x.Key) != 16 || x.Timeout > 30*60*1000 || badText(x.Description) || x.Nonce == 0 {
		m.reply(protocol.StatusBadRequest)
		return
	}
	s := m.homeSession(x.Session, x.Node)
	if s == nil {
		return
	}
	if x.Epoch < s.epoch || s.key != [protocol.KeyLen]byte(x.Key) {
		m.countRule("attach refused")
		m.reply(protocol.StatusBadSession)
		return
	}
	if x.Epoch == s.epoch && x.Nonce != s.nonce {
		m.countRule("another client's attach with an equal epoch")
		m.reply(protocol.StatusBadSession)
		return
	}
	if x.Epoch == s.epoch {
		m.countRule("attach sent again")
	}
	if !s.attached {
		m.countRule("detached session attached again")
	}
	if x.Epoch > s.epoch && s.attached {
		m.countRule("session taken over")
	}
	s.epoch, s.nonce, s.timeout, s.desc = x.Epoch, x.Nonce, x.Timeout, x.Description
	m.attached(o, s)
}

func (m *model) detach(d DetachItem) {
	s := m.session(d.Session)
	if s == nil || !s.home || !s.attached || s.epoch != d.Epoch {
		return
	}
	s.attached, s.link = false, d.Link
	s.deadline = min(max(d.LastContact, s.since), m.now) + s.timeout
	switch {
	case s.timeout == 0:
		m.countRule("detached with timeout 0")
	case s.deadline < m.now:
		m.countRule("detached after its deadline")
	case d.LastContact < s.since:
		m.countRule("heard of before it was attached")
	}
	m.emit(Event{Kind: EventSessionDetached, Session: s.id, Node: s.node, Epoch: s.epoch, Text: s.desc})
	if s.timeout == 0 {
		m.end(s, protocol.EndExpired, "")
	}
}

func (m *model) stop(o op, x *protocol.SessionStop) {
	s := m.homeSession(x.Session, o.node)
	if s == nil {
		return
	}
	if x.Epoch < s.epoch || o.epoch < s.epoch {
		m.reply(protocol.StatusBadSession)
		return
	}
	m.reply(protocol.StatusOK)
	m.end(s, protocol.EndStopped, "")
}

func (m *model) kill(x *protocol.SessionKill) {
	if badReason(x.Reason) {
		m.reply(protocol.StatusBadRequest)
		return
	}
	if s := m.homeSession(x.Session, x.Node); s != nil {
		m.reply(protocol.StatusOK)
		m.end(s, protocol.EndKilled, x.Reason)
	}
}

// takeOver detaches the sessions that are attached: they have their timeout and the grace period
// from now on, or the timeout alone if the leader before transferred. What is left to the others
// stays as it is.
func (m *model) takeOver() {
	m.leader++
	for _, s := range m.sessions {
		if !s.home {
			continue
		}
		if !s.attached {
			if s.deadline < m.now {
				m.countRule("take-over of a session that is overdue")
			} else {
				m.countRule("take-over of a detached session")
			}
			continue
		}
		s.attached, s.link, s.deadline = false, protocol.LinkLeader, m.now+s.timeout
		if m.handed && s.timeout > 0 {
			m.countRule("planned take-over of an attached session")
			continue
		}
		n := m.node(s.node)
		if n.grace(m.now) > n.config.GracePeriod {
			m.countRule("take-over with the grace period of before")
		}
		m.countRule("take-over of an attached session")
		s.deadline += n.grace(m.now)
	}
	m.handed = false
}

// end ends a session at its home.
func (m *model) end(s *modelSession, reason protocol.EndReason, text string) {
	s.ended, s.ending = true, &protocol.Ending{Reason: reason}
	if heard := s.deadline - s.timeout; reason == protocol.EndExpired && !s.attached {
		s.ending.Link, s.ending.Silent, s.ending.Steady = s.link, m.now-min(m.now, heard), s.leader == m.leader
		if m.stoodAt > heard {
			m.countRule("the shard stood still while a session was not heard")
			s.ending.Stood = min(m.stood, m.stoodAt-heard)
		}
	}
	m.sessions = without(m.sessions, s)
	if _, remembered := m.goneCreates[s.create]; !remembered {
		m.goneCreates[s.create] = m.now + Retention
	}
	m.releaseAll(s)
	m.emit(Event{Kind: EventSessionEnded, Session: s.id, Node: s.node, Reason: reason, Text: text, Ending: s.ending})
}

// releaseAll takes everything from an ended session, in order of name.
func (m *model) releaseAll(s *modelSession) {
	for _, sem := range m.byName(s.node) {
		if r := sem.entryOf(s); r != nil {
			if !r.owner {
				m.result(sem, r, protocol.StatusSessionExpired, 0)
			}
			m.remove(sem, r, true)
			m.process(sem)
		}
	}
}

// Remote sessions.

// requestSession is the session of a request, or nil when the request is answered.
func (m *model) requestSession(id, node, epoch uint64, description string) *modelSession {
	s := m.session(id)
	switch {
	case id == 0:
		m.reply(protocol.StatusSessionExpired)
		return nil
	case m.isHome(id):
		if s == nil || s.node != node || !m.alive(s) {
			m.reply(protocol.StatusSessionExpired)
			return nil
		}
		if epoch != s.epoch {
			m.countRule("request under another epoch at home")
			m.reply(protocol.StatusBadSession)
			return nil
		}
		return s
	case s == nil:
		if _, gone := m.goneIDs[id]; gone {
			m.countRule("gone remote session refused")
			m.reply(protocol.StatusSessionExpired)
			return nil
		}
		s = &modelSession{id: id, node: node, epoch: epoch, low: 1, answers: map[uint64]modelAnswer{}}
		m.sessions = append(m.sessions, s)
	case s.node != node:
		m.reply(protocol.StatusSessionExpired)
		return nil
	case epoch < s.epoch:
		m.countRule("request of a remote session under an older epoch")
		m.reply(protocol.StatusBadSession)
		return nil
	}
	s.epoch, s.used = epoch, m.now
	if description != "" && len(description) <= 1024 {
		if description != s.desc {
			m.countRule("remote session described by a request")
		}
		s.desc = description
	}
	return s
}

// idle reports whether a session has no entries.
func (m *model) idle(s *modelSession) bool {
	return !slices.ContainsFunc(m.sems, func(sem *modelSemaphore) bool { return sem.entryOf(s) != nil })
}

func (m *model) remotesEnded(ends []RemoteEnd) {
	var gone []*modelSession
	for _, x := range ends {
		id := x.Session
		if m.isHome(id) {
			continue
		}
		m.tombstone(id)
		if s := m.session(id); s != nil && !slices.Contains(gone, s) {
			if x.Ending != (protocol.Ending{}) {
				s.ending = &x.Ending
			}
			gone = append(gone, s)
		}
	}
	m.endRemotes(gone)
}

func (m *model) tombstone(id uint64) {
	if _, remembered := m.goneIDs[id]; !remembered {
		m.goneIDs[id] = m.now + Retention
	}
}

// endRemotes ends remote sessions. None of them is there any more when the first one's units are
// given to others.
func (m *model) endRemotes(gone []*modelSession) {
	for _, s := range gone {
		s.ended = true
		m.sessions = without(m.sessions, s)
		m.tombstone(s.id)
	}
	for _, s := range gone {
		if !m.idle(s) {
			m.countRule("gone remote session released")
		}
		m.releaseAll(s)
	}
}

func (m *model) remoteUpdate(x RemoteUpdateBody) {
	if len(x.Description) > 1024 {
		m.reply(protocol.StatusBadRequest)
		return
	}
	if s := m.session(x.Session); s != nil && !s.home && x.Epoch >= s.epoch {
		s.epoch, s.desc = x.Epoch, x.Description
	}
	m.reply(protocol.StatusOK)
}
