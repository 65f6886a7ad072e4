package shard

import (
	"crypto/subtle"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
)

// homeSession is a session at home in this shard.
//
// Invariant: it is in its node's sessions and in Machine.byCreateID until it ends; detached ones
// have a timer scheduled, attached ones have not. One that a take-over detached counts as attached
// here until it is swept.
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
func (m *Machine) applyStart(c *rawCommand) {
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
		m.repeatStart(c, s, x)
		return
	}
	if m.endedCreateIDs.has(create, m.logTime) {
		m.reply(protocol.StatusSessionExpired, textCreateEnded)
		return
	}
	n := m.nodes[x.Node]
	if n == nil {
		text := textNoNode
		if m.isDropped(x.Node) {
			text = textNodeDropped
		}
		m.reply(protocol.StatusNotFound, text)
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
		description: m.interner.intern(x.Description), snapMark: m.snapMark, home: s, sessionUse: &unused,
	}
	s.key, s.createID, s.nonce, s.client, s.created =
		[protocol.KeyLen]byte(x.Key), create, x.Nonce, m.interner.internBytes(c.client), m.batch.wall
	s.lastSeen, s.generation, s.timeout, s.attached = m.logTime, m.takeovers.generation, uint32(x.Timeout), true
	m.sessions.add(s.sessionRecord)
	m.byCreateID.add(s)
	n.addSession(s)
	m.replyAttached(s)
}

// repeatStart answers a start that was sent again because its answer was lost: it attaches the
// session to the connection of the retry.
func (m *Machine) repeatStart(c *rawCommand, s *homeSession, x *protocol.SessionStart) {
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
		m.attachTo(s, c)
		m.replyAttached(s)
	}
}

// applyAttach attaches an existing session. The order of the checks is the specification's.
func (m *Machine) applyAttach(c *rawCommand) {
	x := &m.batch.attach
	if !m.decode(x, c.body) || !m.valid(x) {
		return
	}
	s := m.homeSession(x.Session, x.Node)
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
		s.setDescription(m.interner.intern(x.Description)) // beyond the quota of bytes if need be: an attach keeps a session alive
	}
	m.attachTo(s, c)
	m.replyAttached(s)
}

// attachTo makes a session attached and cancels its deadline.
func (m *Machine) attachTo(s *homeSession, c *rawCommand) {
	m.touch(s.sessionRecord)
	m.unschedule(s)
	s.sessionRecord.detached = false
	s.attached, s.generation, s.lastSeen = true, m.takeovers.generation, m.logTime
	if s.client != string(c.client) {
		s.client = m.interner.internBytes(c.client)
	}
}

// replyAttached answers a start or attach. EventSessionAttached comes first: when the client has
// the reply it may use the session at once.
func (m *Machine) replyAttached(s *homeSession) {
	out := m.batch.out
	grace := s.node.config.GracePeriod
	out.List = append(out.List,
		Event{Kind: EventSessionAttached, Command: m.batch.command, Session: s.id, Node: s.node.id,
			Epoch: s.epoch, Timeout: uint64(s.timeout),
			Grace: grace, Text: s.description},
		Event{Kind: EventReply, Command: m.batch.command, Session: s.id, Node: s.node.id, Epoch: s.epoch,
			Timeout: uint64(s.timeout), Grace: grace, Result: uint64(s.node.config.ReadConsistency)})
}

// homeSession finds a living session of a node in its home bucket; it answers the command if there
// is none. A session of another node is answered for as one that never was.
func (m *Machine) homeSession(id, node uint64) *homeSession {
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
func (m *Machine) applyDetach(c *rawCommand) {
	r := varint.Reader{Rest: c.body}
	n := r.Count(varint.NoLimit)
	items := r.Rest
	for range n {
		r.Uint()
		r.Uint()
		r.Uint()
	}
	if r.Failed || len(r.Rest) != 0 {
		m.reply(protocol.StatusBadRequest, textMalformed)
		return
	}
	r = varint.Reader{Rest: items}
	for range n {
		id, epoch, lastContact := r.Uint(), r.Uint(), r.Uint()
		if p := m.sessions.get(id); p != nil && p.home != nil && p.epoch == epoch &&
			m.alive(p) && m.activeHomeBucket(id) != nil {
			m.detach(p.home, lastContact)
		}
	}
	m.reply(protocol.StatusOK, "")
}

func (m *Machine) detach(s *homeSession, lastContact uint64) {
	if attached, _ := m.attached(s); !attached {
		return
	}
	m.touch(s.sessionRecord)
	s.attached = false
	m.batch.out.List = append(m.batch.out.List,
		Event{Kind: EventSessionDetached, Session: s.id, Node: s.node.id, Epoch: s.epoch, Text: s.description})
	if s.timeout == 0 {
		m.endSession(s, protocol.EndExpired, textExpired)
		return
	}
	lastContact = min(max(lastContact, s.lastSeen), m.logTime)
	m.schedule(s, addSaturated(m.homeBucketOf(s).timeAt(lastContact), uint64(s.timeout)))
}

// applyStop ends a session at its client's wish.
func (m *Machine) applyStop(c *rawCommand) {
	x := &m.batch.stop
	if !m.decode(x, c.body) || !m.valid(x) {
		return
	}
	s := m.homeSession(x.Session, c.node)
	if s == nil {
		return
	}
	if x.Epoch < s.epoch || c.epoch < s.epoch {
		m.reply(protocol.StatusBadSession, textTakenOver)
		return
	}
	m.reply(protocol.StatusOK, "")
	m.endSession(s, protocol.EndStopped, textStopped)
}

// applyKill ends a session at an operator's wish.
func (m *Machine) applyKill(c *rawCommand) {
	x := &m.batch.kill
	if !m.decode(x, c.body) || !m.valid(x) {
		return
	}
	s := m.homeSession(x.Session, x.Node)
	if s == nil {
		return
	}
	m.reply(protocol.StatusOK, "")
	m.endSession(s, protocol.EndKilled, x.Reason)
}

// endSession ends a session: from now on it is unknown. Its waiters are answered first, then its
// end is reported. What does not fit into the work of this Apply is released in the next ones,
// without events to the session: none may follow its end.
func (m *Machine) endSession(s *homeSession, reason protocol.EndReason, text string) {
	m.touch(s.sessionRecord)
	m.unschedule(s)
	m.byCreateID.remove(s)
	m.endedCreateIDs.add(s.createID, m.logTime)
	s.node.removeSession(s)
	s.ended, s.endReason = true, reason
	s.chargeAnswers()
	done := m.releaseAll(s.sessionRecord, text)
	m.batch.out.List = append(m.batch.out.List,
		Event{Kind: EventSessionEnded, Session: s.id, Node: s.node.id, Reason: reason, Text: text})
	m.deferRelease(s.sessionRecord, done)
}

// deferRelease queues an ended record that still has references. done: everything that can be
// released now is.
func (m *Machine) deferRelease(p *sessionRecord, done bool) {
	switch {
	case !p.hasReferences():
		m.sessions.remove(p)
	case done:
		m.orphaned = append(m.orphaned, p)
	default:
		m.ending = append(m.ending, p)
	}
}

// mayChange says whether an entry may be released: those in copies that are not active stay as they
// are, unless their node is gone.
func (e *entry) mayChange() bool {
	return e.semaphore.bucket.state == bucketActive || e.semaphore.node.dropped
}

// releaseAll releases an ended session's entries, in order of name, then its hosted objects, as far
// as the work of this Apply goes. done says that no other can be released. Its waiters are answered
// with text, or not at all if that is empty.
func (m *Machine) releaseAll(p *sessionRecord, text string) (done bool) {
	for e := p.entries.first; e != nil; {
		following := next(e, byName)
		if e.mayChange() {
			if m.batch.releaseBudget <= 0 {
				return false
			}
			m.batch.releaseBudget--
			if e.waiting && text != "" {
				m.emitResult(e, protocol.StatusSessionExpired, 0, text)
			}
			m.releaseEntry(e)
		}
		e = following
	}
	return m.endHoldings(p)
}

// purgeEnding continues the release of ended sessions.
func (m *Machine) purgeEnding() {
	for len(m.ending) > 0 && m.batch.releaseBudget > 0 {
		p := m.ending[0]
		text := "" // no event follows the end of a session
		if p.home == nil {
			text = endText(p)
		}
		if !m.releaseAll(p, text) {
			return
		}
		m.touch(p)
		m.ending[0] = nil
		m.ending = m.ending[1:]
		m.deferRelease(p, true)
	}
}
