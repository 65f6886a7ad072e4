package core

import (
	"errors"
	"fmt"
	"time"

	"github.com/signalbox-dev/signalbox/client/sessionstate"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Session is a session as the engine sees it. Its fields that begin with a capital do not change
// once it is started.
type Session struct {
	ID   uint64
	Node uint64 // id of the coordination node
	Tier uint8

	// Set before the start.
	Path        string
	Key         [protocol.KeyLen]byte
	Nonce       uint64
	Timeout     time.Duration
	Description string

	machine    *sessionstate.Machine
	timer      timer
	err        error // why it is over
	attachment *attachment
	waiting    list // requests that wait for an attachment
	unordered  list // releases that wait for Low
	numbers    Numbers
	names      nameSet
	accepted   map[uint64]*Acquire // by number: those that wait in a queue at the server

	prev, next *Session // in the list of its connection
}

// attachment binds a session to one connection. It is never changed, except that it ends.
type attachment struct {
	conn    *Conn
	shard   uint64 // home
	epoch   uint64
	ticket  []byte
	renewal *renewal
	timeout time.Duration
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

// Why a session is over, beside what a server says.
var (
	ErrNotRenewed     = errors.New("the session was not renewed in time")
	errSessionExpired = errors.New("session is expired for good")
)

// Err is nil while the session lives.
func (s *Session) Err() error { return s.err }

// Held says whether what the session holds may be relied on at a time.
func (s *Session) Held(now time.Duration) bool {
	if s.err != nil {
		return false
	}
	s.catchUp()
	return s.machine.Held(now)
}

// catchUp takes the latest pong of the home shard into account.
func (s *Session) catchUp() {
	if s.attachment != nil {
		s.machine.Renewed(s.attachment.renewal.at)
	}
}

// Start is the start of a session: by the path of its node, once, on a connection that is being
// made or was made to an instance that serves the home.
type Start struct {
	Request
	s      *Session
	create [protocol.KeyLen]byte
	sent   time.Duration
	msg    protocol.SessionStart
	reply  protocol.SessionReply
}

// begin sends the start behind the hello of the first connection.
func (x *Start) begin(e *Engine, s *Session, create [protocol.KeyLen]byte) {
	x.s, x.create, x.sent = s, create, e.now
	x.msg = protocol.SessionStart{
		Path: s.Path, CreateID: x.create[:], Key: s.Key[:], Timeout: uint64(s.Timeout.Milliseconds()),
		Description: s.Description, Nonce: s.Nonce,
	}
	x.Request = Request{
		Waiter: x.Waiter, kind: protocol.KindSessionStart, message: &x.msg, op: x, arg: protocol.HomeOfCreateID,
		to: behindHello, once: true,
	}
	s.numbers.Reset(1)
	e.send(&x.Request)
}

// behindHello is the first connection, whose hello was not sent yet.
func behindHello(e *Engine, r *Request) *Conn {
	if c := e.routes.bootstrap.attempt; c != nil && !c.taken {
		return c
	}
	return anyInstance(e, r)
}

func (x *Start) turn(*Engine) {}

func (x *Start) decode(body []byte) (bool, error) { return false, x.reply.DecodeBody(body) }

func (x *Start) decided(e *Engine, err error) {
	if err != nil {
		e.refuse(&x.Request, err)
		return
	}
	s := x.s
	s.ID, s.Node, s.Tier = x.reply.Session, x.reply.Node, protocol.SessionTier(x.reply.Session)
	s.machine = sessionstate.Start(x.sent, millis(x.reply.Timeout), millis(x.reply.Grace))
	s.timer.of = s
	e.sessions[s.ID] = s
	e.timeouts.Add(s.Timeout)
	s.bind(e, x.via, &x.reply)
	s.act(e)
	e.complete(&x.Request, Result{})
}

func (x *Start) left(e *Engine, err error) { e.fail(&x.Request, err) }
func (x *Start) over(e *Engine, err error) { e.fail(&x.Request, err) }

func millis(n uint64) time.Duration {
	const most = uint64(1<<63-1) / uint64(time.Millisecond)
	return time.Duration(min(n, most)) * time.Millisecond
}

// bind attaches the session to a connection.
func (s *Session) bind(e *Engine, c *Conn, reply *protocol.SessionReply) {
	s.detach(e)
	s.attachment = &attachment{
		conn: c, shard: reply.Shard, epoch: reply.Epoch, ticket: reply.Ticket,
		renewal: c.renewal(reply.Shard), timeout: millis(reply.Timeout),
	}
	c.sessions.add(s)
	c.keepAlive.add(e, s.attachment.timeout)
	s.waiting.drain(e.send)
}

// detach ends the session's attachment, if there is one.
func (s *Session) detach(e *Engine) {
	if a := s.attachment; a != nil {
		s.catchUp()
		a.over = true
		a.conn.sessions.remove(s)
		a.conn.keepAlive.remove(e, a.timeout)
		s.attachment = nil
	}
}

// connLost is called when the session is not attached any more.
func (s *Session) connLost(e *Engine) {
	s.detach(e)
	s.machine.ConnLost(e.now)
	s.act(e)
}

// due is the session's timer.
func (s *Session) due(e *Engine) {
	s.catchUp()
	s.machine.Tick(e.now)
	s.act(e)
}

// end is the end of the session.
func (s *Session) end(e *Engine, cause sessionstate.Cause, err error) {
	if s.err == nil {
		s.err = fmt.Errorf("%w (%w)", errSessionExpired, err)
	}
	s.machine.Ended(cause)
	s.act(e)
}

// act does what the machine asks for.
func (s *Session) act(e *Engine) {
	r := s.machine.Take()
	if r.Changed {
		e.ready.Event = append(e.ready.Event, Event{Kind: SessionChanged, Session: s})
	}
	if r.Changed && r.State == sessionstate.Expired {
		if s.err == nil {
			s.err = ErrNotRenewed
		}
		s.detach(e)
		delete(e.sessions, s.ID)
		e.timeouts.Remove(s.Timeout)
		for _, r := range e.openRequests(s) {
			e.step(r, inEnded, s.err)
		}
	}
	if at, ok := s.machine.Next(); ok {
		e.timers.set(&s.timer, at)
	} else {
		e.timers.stop(&s.timer)
	}
}

// notKnownOn is called when a request was refused because the session is not known where it was
// sent.
func (s *Session) notKnownOn(e *Engine, c *Conn) {
	if a := s.attachment; a != nil && a.conn == c {
		// The server may have forgotten all sessions of that home, and a pong for one must not
		// renew the others. See R5.
		c.detachHome(e, a.shard)
	} else {
		delete(c.presented, s)
	}
}

// present shows the session's ticket on a connection that it is not attached on, once per attach.
// It does not wait for the answer: later requests on the connection are accepted after it, or
// rejected and sent again.
func (s *Session) present(e *Engine, c *Conn) {
	if c.presented[s] >= s.attachment.epoch {
		return
	}
	if c.presented == nil {
		c.presented = make(map[*Session]uint64)
	}
	c.presented[s] = s.attachment.epoch
	p := &present{msg: protocol.PresentTicket{Ticket: s.attachment.ticket, Description: s.Description}, s: s, c: c}
	p.Request = Request{
		kind: protocol.KindPresentTicket, message: &p.msg, op: p, to: toConn(c), once: true,
	}
	e.send(&p.Request)
}

// present is a ticket that is shown.
type present struct {
	Request
	msg protocol.PresentTicket
	s   *Session
	c   *Conn
}

func (p *present) turn(*Engine)                {}
func (p *present) decode([]byte) (bool, error) { return false, nil }
func (p *present) left(*Engine, error)         {}
func (p *present) over(*Engine, error)         {}

func (p *present) decided(_ *Engine, err error) {
	if err != nil {
		delete(p.c.presented, p.s)
	}
	p.state = Over
}

// endReason is why the server ended a session, as an error.
func endReason(reason protocol.EndReason, message string) error {
	what := "ended"
	switch reason {
	case protocol.EndStopped:
		what = "stopped"
	case protocol.EndExpired:
		what = "its timeout passed"
	case protocol.EndKilled:
		what = "killed by an operator"
	case protocol.EndNodeDropped:
		what = "its coordination node was dropped"
	}
	if message != "" {
		what += ": " + message
	}
	return errors.New(what)
}
