package shard

import "github.com/signalbox-dev/signalbox/protocol"

// session is a session at home in this shard.
//
// Invariant: it is in its node's sessions and in Machine.creates until it ends; detached ones have
// a timer armed, attached ones have not. One that a take-over detached counts as attached here
// until it is settled.
//
// What the shard's semaphores know of it is its party, which stays as a guest when the home leaves this shard.
type session struct {
	*party
	due        timer // in its bucket's time
	key        [protocol.KeyLen]byte
	create     [protocol.KeyLen]byte // create id
	nonce      uint64                // of the start or attach that made the attach epoch: the client that holds the session
	client     string                // address of the client, for people
	created    uint64                // wall clock
	since      uint64                // log time of the last attach
	generation uint64                // of the take-over under which attached and the timer were written
	timeout    uint32                // ms
	attached   bool
}

func sessionLess(a, b *session) bool { return a.id < b.id }

// newSession makes a session and its party in one piece of memory.
func newSession() *session {
	var x struct {
		session
		own party
	}
	x.session.party = &x.own
	x.own.home = &x.session
	return &x.session
}

func (s *session) clock() *timer { return &s.due }

func (s *session) deadline() (deadlineKind, uint64, uint32) { return deadlineSession, s.id, 0 }

// applyStart makes a session, or answers again for its create id.
func (m *Machine) applyStart(c *rawCommand) {
	x := &m.run.start
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
	if s := m.creates[create]; s != nil {
		m.startAgain(c, s, x)
		return
	}
	if m.ended.has(create, m.logTime) {
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
	if !m.room(n, weightSession+uint64(len(x.Description))) {
		m.reply(protocol.StatusPreconditionFailed, textBytesQuota(n.config.MaxBytes))
		return
	}
	b.sessions++
	s := newSession()
	*s.party = party{
		id: protocol.MakeSessionID(m.tier, uint16(b.number), b.sessions), node: n, epoch: 1, low: 1, desc: m.texts.of(x.Description), mark: m.mark, home: s,
	}
	s.key, s.create, s.nonce, s.client, s.created = [protocol.KeyLen]byte(x.Key), create, x.Nonce, m.texts.ofBytes(c.client), m.run.wall
	s.since, s.generation, s.timeout, s.attached = m.logTime, m.takeovers.generation, uint32(x.Timeout), true
	m.parties[s.id] = s.party
	m.creates[create] = s
	n.addSession(s)
	m.replyAttached(s)
}

// startAgain answers a start that was sent again because its answer was lost: it attaches the session to the connection of the retry.
func (m *Machine) startAgain(c *rawCommand, s *session, x *protocol.SessionStart) {
	switch {
	case !m.alive(s.party) || s.node.id != x.Node:
		m.reply(protocol.StatusSessionExpired, textCreateEnded)
	case !equalKeys(s.key[:], x.Key):
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
	x := &m.run.attach
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
	case !equalKeys(s.key[:], x.Key):
		m.reply(protocol.StatusBadSession, textWrongKey)
		return
	case x.Epoch == s.epoch && x.Nonce != s.nonce && !plantNonceIgnored:
		m.reply(protocol.StatusBadSession, textOtherHolder)
		return
	}
	m.touchParty(s.party)
	s.epoch, s.nonce, s.timeout = x.Epoch, x.Nonce, uint32(x.Timeout)
	if s.desc != x.Description {
		s.redescribe(m.texts.of(x.Description)) // beyond the quota of bytes if need be: an attach keeps a session alive
	}
	m.attachTo(s, c)
	m.replyAttached(s)
}

// attachTo makes a session attached and cancels its deadline.
func (m *Machine) attachTo(s *session, c *rawCommand) {
	m.touchParty(s.party)
	m.cancel(s)
	s.party.detached = false
	s.attached, s.generation, s.since = true, m.takeovers.generation, m.logTime
	if s.client != string(c.client) {
		s.client = m.texts.ofBytes(c.client)
	}
}

// replyAttached answers a start or attach. The reply comes second: who delivers may have sent it before the next event is looked at, and a client that has
// it may use the session at once.
func (m *Machine) replyAttached(s *session) {
	out := m.run.out
	grace := s.node.config.GracePeriod
	out.List = append(out.List,
		Event{Kind: EventSessionAttached, Command: m.run.command, Session: s.id, Node: s.node.id, Epoch: s.epoch, Timeout: uint64(s.timeout),
			Grace: grace, Text: s.desc},
		Event{Kind: EventReply, Command: m.run.command, Session: s.id, Node: s.node.id, Epoch: s.epoch, Timeout: uint64(s.timeout), Grace: grace})
}

// homeSession finds a living session of a node in its home bucket; it answers the command if there is none. A session of another node is
// answered for as one that never was.
func (m *Machine) homeSession(id, node uint64) *session {
	if m.homeBucket(id) == nil {
		m.reply(protocol.StatusWrongShard, textWrongShard)
		return nil
	}
	p := m.parties[id]
	switch {
	case m.isDropped(node):
		m.reply(protocol.StatusSessionExpired, textNodeDropped)
		return nil
	case p == nil || p.home == nil || p.node.id != node || !m.alive(p):
		m.reply(protocol.StatusSessionExpired, textSessionGone)
		return nil
	}
	return p.home
}

// applyDetach detaches sessions whose connection ended or fell silent. Timeout 0 ends them at once.
func (m *Machine) applyDetach(c *rawCommand) {
	r := reader{b: c.body}
	n := r.count()
	items := r.b
	for range n {
		r.uvarint()
		r.uvarint()
		r.uvarint()
	}
	if r.bad || len(r.b) != 0 {
		m.reply(protocol.StatusBadRequest, textMalformed)
		return
	}
	r = reader{b: items}
	for range n {
		id, epoch, heard := r.uvarint(), r.uvarint(), r.uvarint()
		if p := m.parties[id]; p != nil && p.home != nil && p.epoch == epoch && m.alive(p) && m.homeBucket(id) != nil {
			m.detach(p.home, heard)
		}
	}
	m.reply(protocol.StatusOK, "")
}

func (m *Machine) detach(s *session, heard uint64) {
	if attached, _ := m.attached(s); !attached {
		return
	}
	m.touchParty(s.party)
	s.attached = false
	m.run.out.List = append(m.run.out.List, Event{Kind: EventSessionDetached, Session: s.id, Node: s.node.id, Epoch: s.epoch, Text: s.desc})
	if s.timeout == 0 {
		m.endSession(s, protocol.EndExpired, textExpired)
		return
	}
	heard = min(max(heard, s.since), m.logTime)
	m.arm(s, addSaturated(m.bucketOf(s).at(heard), uint64(s.timeout)))
}

// applyStop ends a session at its client's wish.
func (m *Machine) applyStop(c *rawCommand) {
	x := &m.run.stop
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
	x := &m.run.kill
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

// endSession ends a session: from here on it is unknown. Its waiters are answered first, then its end is told. What does not fit into the work of this
// Apply is released in the next ones, in silence, for nothing may be told to a session after its end.
func (m *Machine) endSession(s *session, reason protocol.EndReason, text string) {
	m.touchParty(s.party)
	m.cancel(s)
	delete(m.creates, s.create)
	m.ended.add(s.create, m.logTime)
	s.node.removeSession(s)
	s.gone = true
	s.weighAnswers()
	done := m.releaseAll(s.party, text)
	m.run.out.List = append(m.run.out.List, Event{Kind: EventSessionEnded, Session: s.id, Node: s.node.id, Reason: reason, Text: text})
	m.layOut(s.party, done)
}

// layOut puts a gone party where the rest of its entries is looked after, if there is a rest. done: all that can be released now is.
func (m *Machine) layOut(p *party, done bool) {
	switch {
	case !p.busy():
		delete(m.parties, p.id)
	case done:
		m.stranded = append(m.stranded, p)
	default:
		m.dying = append(m.dying, p)
	}
}

// mayChange says whether an entry may be released: those in copies that are not active stay as they are, unless their node is gone.
func (e *entry) mayChange() bool { return e.sem.bucket.state == bucketActive || e.sem.node.dropped }

// releaseAll takes a gone party's entries out, in order of name, and then ends its memberships, as far as the work of this Apply goes: done says that no other may be released. Its
// waiters are answered with text, or not at all if that is empty.
func (m *Machine) releaseAll(p *party, text string) (done bool) {
	for e := p.held.first; e != nil; {
		following := next(e, byName)
		if e.mayChange() {
			if m.run.released <= 0 {
				return false
			}
			m.run.released--
			if e.waiting && text != "" {
				m.result(e, protocol.StatusSessionExpired, 0, text)
			}
			m.leave(e)
		}
		e = following
	}
	return m.vacate(p) && m.desert(p)
}

// bury goes on with the entries of sessions that have ended.
func (m *Machine) bury() {
	for len(m.dying) > 0 && m.run.released > 0 {
		p := m.dying[0]
		text := "" // nothing may be told to a session after its end
		if p.home == nil {
			text = goneText(p)
		}
		if !m.releaseAll(p, text) {
			return
		}
		m.touchParty(p)
		m.dying[0] = nil
		m.dying = m.dying[1:]
		m.layOut(p, true)
	}
}

// equalKeys compares in a time that does not depend on where the keys differ.
func equalKeys(a, b []byte) bool {
	if len(a) != len(b) {
		return false
	}
	var d byte
	for i := range a {
		d |= a[i] ^ b[i]
	}
	return d == 0
}
