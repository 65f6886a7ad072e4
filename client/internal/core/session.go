package core

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/sessionstate"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Session is a session as the engine sees it. Its fields that begin with a capital do not change
// once it is started.
type Session struct {
	ID      uint64
	Node    uint64 // id of the coordination node
	Tier    uint8
	Relaxed bool          // how the node is read, as of the start
	Grace   time.Duration // the node's

	Owner any // the driver's

	// Set before the start.
	Path        string
	Key         [protocol.KeyLen]byte
	Nonce       uint64
	Timeout     time.Duration // that is asked for
	Description string
	Parent      uint64        // the session whose command starts this one; 0: none
	KeepAlive   time.Duration // most between pings; 0: as the timeout needs

	machine     *sessionstate.Machine
	timer       timer
	jumped      time.Duration // Engine.jumped, as far as machine knows
	err         error         // why it is over
	stopped     bool          // nothing is left to do for it
	attachment  *attachment   // nil: it is not attached
	attach      *attach       // that is under way; nil: none is
	attachDelay attachDelay
	unhurried   bool     // the next attach may wait a little
	trouble     *trouble // what has kept it from being renewed; nil: nothing has
	epoch       uint64   // the highest attach epoch that was asked for
	requests    sessionRequests
	waiting     list // requests that wait for an attachment
	unordered   list // releases that wait for Low
	later       list // releases that wait for the work under a lost lease to stop
	closing     list // closes that wait for the answer to the stop
	numbers     numbers
	names       nameSet
	namedAt     int                 // place in Engine.named, from 1; 0: it is not in
	inQueue     map[uint64]*Acquire // by number: those that wait in a queue at the server
	oneShots    map[uint64]*OneShot // by id
	ways        []*Way

	// What is to be done after the step; see resolve.
	queued      bool // it is in Engine.tasks
	detached    bool // an attachment is over, with results that would come over it
	ordered     bool // Low has risen
	unconfirmed bool // leases are to be asked about
	stopHeard   bool // nothing is left to do for it at the server

	prev, next *Session // in the list of its connection
}

// live makes the session a live one after its start or restore was answered on a connection. If that
// was sent more than once, one attach epoch is left out after it: the server answers an attach with
// the next epoch from memory, because no leader can have attached the session in between, but
// another leader may have had a copy. Another session of this engine with the id is taken over.
func (s *Session) live(e *Engine, c *Conn, reply *protocol.SessionReply, sent moment, repeated bool) {
	s.ID, s.Tier, s.Grace = reply.Session, protocol.SessionTier(reply.Session), millis(reply.Grace)
	if s.epoch = max(s.epoch, reply.Epoch); repeated {
		s.epoch++
	}
	s.machine = sessionstate.Start(sent.at, millis(reply.Timeout), millis(reply.Grace))
	s.timer.of = s
	s.jumped = sent.jumped
	before := e.sessions[s.ID]
	e.sessions[s.ID] = s
	e.timeouts.Add(s.Timeout)
	if before != nil {
		before.takenAway(e)
	}
	e.look.due(e)
	if !s.bind(e, c, reply) {
		s.machine.ConnLost(e.now)
	}
	s.due(e)
}

// moment is when something was sent that begins a session.
type moment struct {
	at     time.Duration
	jumped time.Duration // Engine.jumped then
}

// Err is nil while the session lives.
func (s *Session) Err() error { return s.err }

// Stopped reports whether nothing is left to do for the session: the server knows that it is over.
func (s *Session) Stopped() bool { return s.stopped }

// held reports whether what the session holds may be relied on now.
func (s *Session) held(e *Engine) bool {
	s.catchUp(e)
	return s.err == nil && s.machine.Held(e.now)
}

// due is the session's timer.
func (s *Session) due(e *Engine) {
	s.catchUp(e)
	s.machine.Tick(e.now)
	s.changed(e)
}

// catchUp takes the latest pong of the home shard into account, and jumps of the clock.
func (s *Session) catchUp(e *Engine) {
	if a := s.attachment; a != nil {
		s.machine.Renewed(a.renewal.at)
	}
	if e.jumped-s.jumped > s.machine.Timeout()/2 {
		s.machine.ClockJumped(e.now) // what was sent before it proves nothing
		s.changed(e)
	}
	s.jumped = e.jumped
}

// connLost is called when the session is not attached any more.
func (s *Session) connLost(e *Engine) {
	s.catchUp(e)
	if a := s.attachment; a != nil && a.conn.over {
		noteFailure(e, s, a.conn.instance, a.conn.heard, a.conn.Err)
	}
	s.detach(e)
	s.machine.ConnLost(e.now)
	s.changed(e)
}

// end is the end of the session.
func (s *Session) end(e *Engine, cause sessionstate.Cause, err error) {
	if s.err == nil {
		s.err = err
	}
	s.machine.Ended(cause)
	s.changed(e)
}

// endedByServer: a server says that the session is gone. cause is why, as far as the server says.
// If it does not, the session was not renewed, unless it was in time: then it ended for another reason.
func (s *Session) endedByServer(e *Engine, cause lossCause, why error) {
	err := s.err
	switch {
	case err != nil:
	case cause == unexplained && e.now >= s.machine.Deadline():
		err = notRenewed(e, s, fmt.Errorf("%w (%w)", ErrSessionExpired, why))
	default:
		err = lostBy(e, s, cause, fmt.Errorf("%w (%w)", ErrSessionExpired, why))
	}
	s.end(e, sessionstate.EndedByServer, err)
}

// renewedAt is when the last request was sent that renewed the session.
func (s *Session) renewedAt() time.Duration {
	at := s.machine.RenewedAt()
	if a := s.attachment; a != nil {
		at = max(at, a.renewal.at)
	}
	return at
}

// takenAway: another holder has the session.
func (s *Session) takenAway(e *Engine) {
	s.end(e, sessionstate.TakenOver, lostBy(e, s, takenOver, ErrTakenOver))
}

// changed has the session do what its machine asks for after the step. Err is set at once.
func (s *Session) changed(e *Engine) {
	if s.err == nil && s.machine.State() == sessionstate.Expired {
		s.err = notRenewed(e, s, ErrNotRenewed)
	}
	s.enqueue(e)
}

func (s *Session) enqueue(e *Engine) { e.enqueue(s, &s.queued) }

// resolve implements task: what has happened to the session concerns its requests now.
func (s *Session) resolve(e *Engine) {
	s.queued = false
	if s.detached {
		s.detached = false
		s.resultsLost(e)
	}
	s.act(e)
	if s.attachment != nil && !s.waiting.empty() {
		s.waiting.drain(e.send)
	}
	if s.ordered {
		s.ordered = false
		s.unordered.drain(e.send)
	}
	if s.unconfirmed {
		s.unconfirmed = false
		s.confirm(e)
	}
	if s.stopHeard {
		s.stopHeard = false
		s.forget(e)
	}
}

// act does what the machine asks for.
func (s *Session) act(e *Engine) {
	r := s.machine.Take()
	if r.Ping && s.attachment != nil {
		s.attachment.conn.keepAlive.pingFor(e, s.attachment, r.PingSince)
	}
	if r.Attach {
		s.reattach(e)
	}
	if r.Changed {
		e.ready.Event = append(e.ready.Event, Event{Kind: SessionChanged, Session: s, State: r.State, Err: s.err})
		switch r.State {
		case sessionstate.Detached:
			e.noteSession(SessionDetached, s)
		case sessionstate.Expired:
			e.noteSession(SessionOver, s)
		}
	}
	switch {
	case r.Changed && r.State == sessionstate.Expired:
		s.expired(e, r.Stop)
	case r.Stop: // it was attached after its end
		e.send(&newStop(s, nil).Request)
	}
	if at, ok := s.machine.Next(); ok {
		e.timers.set(&s.timer, at)
	} else {
		e.timers.stop(&s.timer)
	}
}

// expired ends what ends with the session, and has the server end it if that may not know.
func (s *Session) expired(e *Engine, stop bool) {
	last := s.attachment
	s.detach(e)
	if s.attach != nil {
		e.withdraw(&s.attach.Request)
		s.attach.state, s.attach = Over, nil
	}
	e.timers.stop(&s.attachDelay.timer)
	e.timeouts.Remove(s.Timeout)
	s.forgetBounds(e)
	unname(e, s)
	for _, r := range s.openRequests() {
		e.step(r, inEnded, s.err)
	}
	missed(e, s.oneShots)
	if stop {
		e.send(&newStop(s, last).Request)
	} else {
		s.forget(e)
	}
}

// forget drops the session when nothing is left to do for it.
func (s *Session) forget(e *Engine) {
	s.stopped = true
	known := e.sessions[s.ID] == s // else another object of the client has it
	if known {
		delete(e.sessions, s.ID)
	}
	for _, c := range slices.Clone(e.conns) {
		if known {
			delete(c.detachedUpTo, s.ID)
		}
		if epoch := c.presented[s]; epoch != 0 {
			delete(c.presented, s)
			if known {
				s.takeTicketBack(e, c, epoch)
			}
		}
	}
	s.closing.drain(func(r *Request) { e.complete(r, Result{}) })
}

// notKnownOn is called when a request was refused because the session is not known where it was
// sent. See R5.
func (s *Session) notKnownOn(e *Engine, r *Request, c *Conn) {
	switch a := s.attachment; {
	case a != nil && a.conn == c:
		// The server may have forgotten all sessions of that home, and a pong for one must not
		// renew the others.
		c.detachHome(e, a.shard)
	case a != nil && r.att == a && r.badSessions > 1:
		// The ticket was shown again, and did not help: an attach whose answer is not here has a higher
		// epoch, and the shard knows it.
		s.connLost(e)
	default:
		delete(c.presented, s)
	}
}

// openRequests are those of a session that are not over, in a fixed order.
func (s *Session) openRequests() (all []*Request) {
	for r := s.requests.first; r != nil; r = r.behind {
		all = append(all, r)
	}
	add := func(r *Request) {
		if !r.listed {
			all = append(all, r)
		}
	}
	s.later.each(add)
	s.names.each(func(n *name) { n.queue.each(add) })
	return all
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
		return errors.New("its coordination node was deleted") // the message says the same
	}
	if message != "" {
		what += ": " + message
	}
	return errors.New(what)
}

// clockLook has the driver tick while there are sessions, a twentieth of the shortest timeout apart,
// 50 ms .. 1 s. It compares the clocks then. The runtime's timers stop while the machine is
// suspended, so deadlines would be found late otherwise.
type clockLook struct{ timer timer }

func (l *clockLook) due(e *Engine) {
	if len(e.sessions) > 0 {
		l.timer.of = l
		e.timers.set(&l.timer, e.now+min(max(e.timeouts.Or(time.Hour)/20, 50*time.Millisecond), time.Second))
	}
}

// InForce is the session timeout in force.
func (s *Session) InForce() time.Duration { return s.machine.Timeout() }

// jumpAhead keeps the bounds of a session by a clock that has jumped ahead.
func (s *Session) jumpAhead(e *Engine) {
	s.names.each(func(n *name) {
		if l := n.lease; l != nil && l.over == nil && l.bound != nil {
			l.bound.arm(e)
		}
	})
}

// forgetBounds stops the timers of leases that end with their session.
func (s *Session) forgetBounds(e *Engine) {
	s.names.each(func(n *name) {
		if l := n.lease; l != nil && l.bound != nil {
			e.timers.stop(&l.bound.timer)
		}
	})
}
