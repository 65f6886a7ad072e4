// Package sessionstate decides how long a session may be relied on. It is the SDK's own step
// machine: it takes the moments at which the server renewed the session, and returns what is to be
// done as data. It has no clock. Times are arguments, on one monotonic clock that goes on while the
// machine sleeps.
//
//	m := sessionstate.Start(sent, timeout, grace) // the start was sent then, and has been answered
//	m.Renewed(sent)                               // a keep-alive sent then was answered
//	if m.Held(now) { ... }
//	r := m.Take() // state changed? attach? tell the server to stop it?
//
// Programs do not need it: a client.Session has Held, and a client.Lease a context that ends in
// time. It is for another client over package protocol.
package sessionstate

import "time"

// State reports whether the session may be relied on.
type State uint8

const (
	// Attached: bound to a connection, and the deadline has not passed.
	Attached State = 1
	// Detached: the connection is lost; everything held is held until the deadline.
	Detached State = 2
	// Expired: over, for good.
	Expired State = 3
)

// String is the name of the state in the protocol: ATTACHED, DETACHED, EXPIRED.
func (s State) String() string {
	switch s {
	case Attached:
		return "ATTACHED"
	case Detached:
		return "DETACHED"
	case Expired:
		return "EXPIRED"
	}
	return "UNKNOWN"
}

// Cause says why a session is over.
type Cause uint8

const (
	None          Cause = iota
	Deadline            // it was not renewed in time; the server may not know yet
	EndedByServer       // the server said that it is gone
	TakenOver           // it was attached elsewhere with a higher epoch
	Closed              // its holder closed it
	numCauses           // number of causes
)

// String is the cause in words for logs.
func (c Cause) String() string {
	if c >= numCauses {
		return "unknown"
	}
	return [...]string{"none", "deadline", "ended-by-server", "taken-over", "closed"}[c]
}

// Ready is the output of the inputs since the last Take.
type Ready struct {
	Changed bool // the state is another one
	State   State
	Cause   Cause // with Expired
	Attach  bool  // attach again, with a higher epoch; answered by Attached or Ended, and not asked again until then
	// send a keep-alive now, unless one was sent at PingSince or later, on the connection, after the
	// attach
	Ping bool
	Stop bool // the session may still be alive at the server: end it there

	PingSince time.Duration // with Ping
}

// Machine holds one session. The zero value is not usable; see Start.
//
// Invariants:
//   - Held(now) is false from renewed+window on, however late inputs are.
//   - Expired is never left.
type Machine struct {
	timeout  time.Duration
	window   time.Duration
	renewed  time.Duration // latest sending time of anything that renewed it
	jumpedAt time.Duration // the clock jumped before that, and only what is sent from then on proves anything; 0: never
	state    State
	cause    Cause
	pending  bool // an attach was asked for
	out      Ready
}

// Start makes the machine of a session whose start was sent then and has been answered.
func Start(sent, timeout, grace time.Duration) *Machine {
	return &Machine{timeout: timeout, window: Window(timeout, grace), renewed: sent, state: Attached}
}

// State is the present state. It may be behind the clock: Tick first, or ask Held.
func (m *Machine) State() State { return m.state }

// Cause says why the state is Expired.
func (m *Machine) Cause() Cause { return m.cause }

// Timeout in force.
func (m *Machine) Timeout() time.Duration { return m.timeout }

// RenewedAt is the latest sending time of anything that renewed the session.
func (m *Machine) RenewedAt() time.Duration { return m.renewed }

// Deadline is the moment from which the session may not be relied on unless it is renewed.
func (m *Machine) Deadline() time.Duration {
	d := m.renewed + m.window
	if m.isSuspect() {
		d = min(d, m.jumpedAt+m.timeout/jumpShare)
	}
	return d
}

// Held reports whether what the session holds may be relied on now.
func (m *Machine) Held(now time.Duration) bool {
	return m.state != Expired && now < m.Deadline() && !m.isSuspect()
}

// Next is when Tick is due. Nothing is due for an expired session.
func (m *Machine) Next() (at time.Duration, ok bool) {
	if m.state == Expired {
		return 0, false
	}
	at = m.Deadline()
	if m.state == Attached && !m.pending {
		at = min(at, m.renewed+m.timeout/reattachShare)
	}
	return at, true
}

// Renewed processes the sending time of a keep-alive that was answered on the connection, and by
// the home shard, that the session is attached to. Answers may come late and in any order; an old
// one proves nothing new. It does not check the deadline: a server that renews the session for a
// later moment had not ended it before.
func (m *Machine) Renewed(sent time.Duration) {
	if m.state != Expired {
		m.renewed = max(m.renewed, sent)
	}
}

// Attached processes the answer of an attach that was sent then.
func (m *Machine) Attached(now, sent, timeout, grace time.Duration) {
	m.pending = false
	if m.state == Expired {
		m.out.Stop = m.cause != EndedByServer && m.cause != TakenOver
		return
	}
	m.timeout, m.window = timeout, Window(timeout, grace)
	m.renewed = max(m.renewed, sent)
	if m.expireIfDue(now) {
		return
	}
	m.setState(Attached)
	if m.isSuspect() { // the jump came while the attach was under way, with nothing to ping
		m.out.Ping = true
	}
}

// ConnLost reports that the connection is gone, or does not know the session any more.
func (m *Machine) ConnLost(now time.Duration) {
	if m.state == Expired || m.expireIfDue(now) {
		return
	}
	m.setState(Detached)
	m.requestAttach()
}

// ClockJumped reports that another clock ran far ahead of this one: the machine may have slept in a
// way that this clock cannot see. after is a moment after the jump: now, or when a keep-alive for
// the session was sent. Nothing is held until something that is sent from then on renews the
// session, within a tenth of the timeout.
func (m *Machine) ClockJumped(after time.Duration) {
	if m.state == Expired || m.expireIfDue(after) {
		return
	}
	m.jumpedAt = max(m.jumpedAt, after)
	m.out.Ping = true
}

// Tick checks the clock.
func (m *Machine) Tick(now time.Duration) {
	if m.state == Expired || m.expireIfDue(now) {
		return
	}
	if m.state == Attached && now >= m.renewed+m.timeout/reattachShare {
		m.requestAttach()
	}
}

// Ended reports that the session is over for good: the server said so, it was taken over, or its
// holder closes it.
func (m *Machine) Ended(cause Cause) {
	if m.state == Expired {
		if cause == EndedByServer {
			m.out.Stop = false
		}
		return
	}
	m.expire(cause)
}

// Take returns what is to be done, once.
func (m *Machine) Take() Ready {
	r := m.out
	r.State, r.Cause = m.state, m.cause
	if r.Ping {
		r.PingSince = m.jumpedAt
	}
	m.out = Ready{}
	return r
}

func (m *Machine) isSuspect() bool { return m.jumpedAt > 0 && m.renewed < m.jumpedAt }

func (m *Machine) expireIfDue(now time.Duration) bool {
	if now < m.Deadline() {
		return false
	}
	m.expire(Deadline)
	return true
}

func (m *Machine) expire(cause Cause) {
	m.cause = cause
	m.setState(Expired)
	m.out.Attach, m.out.Ping = false, false
	m.out.Stop = cause == Deadline || cause == Closed
}

func (m *Machine) setState(s State) {
	if m.state != s {
		m.state = s
		m.out.Changed = true
	}
}

func (m *Machine) requestAttach() {
	if !m.pending {
		m.pending = true
		m.out.Attach = true
	}
}
