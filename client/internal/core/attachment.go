package core

import (
	"bytes"
	"errors"
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/sessionstate"
	"github.com/signalbox-dev/signalbox/protocol"
)

// attachment binds a session to one connection. It is never changed, except that it ends.
type attachment struct {
	conn    *Conn
	shard   uint64 // home
	epoch   uint64
	ticket  []byte
	renewal *renewal
	pinged  uint64        // id of the last ping before it
	period  time.Duration // of its pings
	over    bool
}

// sessionList is the sessions that are attached on a connection, in the order in which they were.
type sessionList struct{ first, last *Session }

func (l *sessionList) add(s *Session) {
	if s.prev = l.last; l.last != nil {
		l.last.next = s
	} else {
		l.first = s
	}
	l.last = s
}

func (l *sessionList) remove(s *Session) {
	if s.prev != nil {
		s.prev.next = s.next
	} else {
		l.first = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	} else {
		l.last = s.prev
	}
	s.prev, s.next = nil, nil
}

// bind attaches the session to a connection; false if the connection, or the attach, is over.
func (s *Session) bind(e *Engine, c *Conn, reply *protocol.SessionReply) bool {
	if c.over || c.detachedUpTo[s.ID] >= reply.Epoch {
		return false
	}
	delete(c.detachedUpTo, s.ID)
	s.detach(e)
	s.attachment = &attachment{
		conn: c, shard: reply.Shard, epoch: reply.Epoch, ticket: bytes.Clone(reply.Ticket),
		renewal: c.renewal(reply.Shard), pinged: c.keepAlive.lastPing, period: s.period(millis(reply.Timeout)),
	}
	c.sessions.add(s)
	c.keepAlive.add(e, s.attachment.period)
	e.noteSession(SessionAttached, s)
	return true
}

// period is that of the pings for the session, with a timeout in force.
func (s *Session) period(timeout time.Duration) time.Duration {
	const least = 10 * time.Millisecond
	p := sessionstate.KeepAlive(timeout)
	if s.KeepAlive > 0 {
		p = min(p, max(s.KeepAlive, least))
	}
	return p
}

// detach ends the session's attachment, if there is one. Results of queues would not come any more:
// what waits for one is sent again after the step.
func (s *Session) detach(e *Engine) {
	a := s.attachment
	if a == nil {
		return
	}
	a.over = true
	a.conn.sessions.remove(s)
	a.conn.keepAlive.remove(e, a.period)
	s.attachment, s.unhurried = nil, false
	s.detached = true
	s.enqueue(e)
}

// resultsLost sends again what waits for a result over an attachment that is over. Of other requests
// the answer of the server is awaited.
func (s *Session) resultsLost(e *Engine) {
	for _, w := range s.waiters() {
		if w.state == Queued && w.att.over {
			e.step(&w.Request, inLost, errConnLost)
		}
	}
	for _, w := range slices.Clone(s.ways) {
		if w.state == Queued && w.att.over {
			e.step(&w.Request, inLost, errConnLost)
		}
	}
}

// Events about attachments overtake the replies to attaches, so a connection remembers what is void
// on it. See R6.

// maxEarly bounds what a connection keeps for sessions that are not known.
const maxEarly = 1024

// noteDetached records that attaches of a session up to an epoch are void on the connection.
func (c *Conn) noteDetached(session, epoch uint64) {
	if _, noted := c.detachedUpTo[session]; noted || len(c.detachedUpTo) < maxEarly {
		put(&c.detachedUpTo, session, max(c.detachedUpTo[session], epoch))
	}
}

// takenOver: a server says on a connection that the session was attached elsewhere under an epoch.
// If it is one that this client used, it did so on another connection. If it is the attachment's
// own, a start that was sent twice arrived in the wrong order: the session is then attached on a
// connection that this client gave up.
func (s *Session) takenOver(e *Engine, c *Conn, epoch uint64) {
	switch a := s.attachment; {
	case epoch > s.epoch:
		s.takenAway(e)
	case a != nil && a.conn == c && a.epoch <= epoch:
		s.connLost(e)
	}
}

var errMoved = errors.New("the session's shard moves, or has another leader")

// detachedByServer: the session's home moves, or has another leader.
func (s *Session) detachedByServer(e *Engine, c *Conn, epoch uint64) {
	if a := s.attachment; a != nil && a.conn == c && a.epoch <= epoch {
		s.catchUp(e)
		noteFailure(e, s, c.instance, c.heard, errMoved)
		s.detach(e)
		s.unhurried = true
		s.machine.ConnLost(e.now)
		s.changed(e)
	}
}

// A session that nobody waits for is attached again within attachDelayShare of its timeout, and
// maxAttachDelay: nothing can be told about its leases before.
const (
	attachDelayShare = 20
	maxAttachDelay   = time.Second
)

// attachDelay lets other sessions attach first. A planned change at a server detaches all sessions
// of some buckets, or of a whole shard, at once.
type attachDelay struct {
	timer timer
	s     *Session
}

func (d *attachDelay) due(e *Engine) { d.s.attachNow(e) }

// reattach attaches the session again. One that a request waits for, or that has operations under
// way, is attached at once.
func (s *Session) reattach(e *Engine) {
	unhurried := s.unhurried && s.waiting.empty() && !s.names.busy()
	s.unhurried = false
	now := e.now
	most := min(s.machine.Timeout()/attachDelayShare, (s.machine.Deadline()-now)/attachDelayShare, maxAttachDelay)
	if !unhurried || most <= 0 {
		s.attachNow(e)
		return
	}
	s.attachDelay.s, s.attachDelay.timer.of = s, &s.attachDelay
	e.timers.set(&s.attachDelay.timer, now+time.Duration(e.random(uint64(most))))
}

// await has a request wait for an attachment.
func (s *Session) await(e *Engine, r *Request) {
	s.waiting.pushBack(r)
	if s.attachDelay.timer.place != 0 {
		s.attachNow(e)
	}
}

// attachNow sends an attach, unless one is under way.
func (s *Session) attachNow(e *Engine) {
	e.timers.stop(&s.attachDelay.timer)
	if s.attach == nil && s.err == nil {
		s.attach = newAttach(s)
		e.send(&s.attach.Request)
	}
}

// attach is an attach of a session until it is answered. The epoch is higher than all that may have
// been applied: it is used up by a sending that was not answered.
type attach struct {
	Request
	s      *Session
	sent   time.Duration
	msg    protocol.SessionAttach
	reply  protocol.SessionReply
	before *stop // that it is for, under one epoch for all tries; nil: the session lives
}

func newAttach(s *Session) *attach {
	a := &attach{s: s}
	a.msg = newAttachRequest(s)
	a.Request = Request{purpose: purpose{
		kind: protocol.KindSessionAttach, message: &a.msg, op: a, to: atBucket, tier: s.Tier,
		arg: uint64(protocol.SessionBucket(s.ID)), limit: max(s.machine.Timeout()/4, 250*time.Millisecond),
	}}
	return a
}

// newAttachRequest is an attach without an epoch.
func newAttachRequest(s *Session) protocol.SessionAttach {
	return protocol.SessionAttach{
		Session: s.ID, Node: s.Node, Key: s.Key[:], Timeout: uint64(s.Timeout.Milliseconds()),
		Description: s.Description, Nonce: s.Nonce,
	}
}

// prepare implements preparer.
func (a *attach) prepare(e *Engine, _ *Conn, _ uint64) {
	a.sent = e.now
	if a.before == nil && (a.msg.Epoch == 0 || a.unanswered) {
		a.s.epoch++
		a.msg.Epoch, a.unanswered = a.s.epoch, false
	}
}

func (a *attach) turn(*Engine) {}

func (a *attach) decode(body []byte) (bool, error) { return false, protocol.DecodeBody(&a.reply, body) }

func (a *attach) decided(e *Engine, err error) {
	s, c := a.s, a.from
	if a.before != nil {
		a.before.attached(e, c, a.msg.Epoch, err)
		return
	}
	switch {
	case err == nil && !s.bind(e, c, &a.reply):
		a.unanswered = true // its epoch is void
		e.send(&a.Request)
	case err == nil:
		a.state, s.attach, s.trouble = Over, nil, nil
		s.machine.Attached(e.now, a.sent, millis(a.reply.Timeout), millis(a.reply.Grace))
		s.unconfirmed = true
		s.changed(e)
	case sessionGone(err):
		s.endedByServer(e, goneBy(err), err)
	case protocol.StatusOf(err) == protocol.StatusBadSession:
		s.takenAway(e)
	default: // such as a missing right: it may be given back before the deadline
		a.failed(e, c.instance, c.heard, err)
		e.pause(&a.Request)
	}
}

// left: a connection was refused for good. The deadline of the session ends the tries.
func (a *attach) left(e *Engine, err error) {
	if a.before != nil {
		e.withdraw(&a.Request)
		a.before.attached(e, nil, 0, err)
	}
}

func (a *attach) over(*Engine, error) {}

// sessionGone reports whether an answer says that the session is over at the server.
func sessionGone(err error) bool {
	st := protocol.StatusOf(err)
	return st == protocol.StatusSessionExpired || st == protocol.StatusNotFound
}
