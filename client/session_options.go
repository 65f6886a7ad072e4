package client

import (
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/millis"
	"github.com/signalbox-dev/signalbox/client/internal/session"
	"github.com/signalbox-dev/signalbox/protocol"
)

// DefaultTimeout is the timeout of sessions that are started without one.
const DefaultTimeout = 10 * time.Second

// SessionOption is an option of Client.Session and Client.Restore.
type SessionOption func(*sessionOptions)

type sessionOptions struct {
	timeout     time.Duration
	keepAlive   time.Duration
	description string
	onState     func(State)
	onStopped   func(error)
}

// Timeout is how long the server keeps the session after the last sign of this client: 100 ms .. 30 min, default 10 s. A short one frees what a dead client held
// sooner; a long one survives longer pauses and outages. Leases are believed in for 0.85 of it after the last sign that the server confirmed. With a
// long grace period of the node, the shortest possible timeout is a 24th of that (417 ms with the default of 10 s), and a shorter one is enlarged.
func Timeout(d time.Duration) SessionOption { return func(o *sessionOptions) { o.timeout = d } }

// KeepAlive is the time between keep-alives of the session's connection, at most and by default (0) a quarter of the timeout, and at least 10 ms. One keep-alive covers all
// sessions of a connection; the shortest period of them counts.
func KeepAlive(d time.Duration) SessionOption { return func(o *sessionOptions) { o.keepAlive = d } }

// Description says to people what the session is, like "billing@host1": in describe, beside what it holds. At most 1,024 bytes of UTF-8.
func Description(text string) SessionOption {
	return func(o *sessionOptions) { o.description = text }
}

// OnState is called with every change of the session's state, in order, from a goroutine of its own. It may be late: Held and Lease.Context are
// what to rely on.
func OnState(f func(State)) SessionOption { return func(o *sessionOptions) { o.onState = f } }

// OnStopped is called once, after the last OnState, when the session is over for good, with why: what Session.Err says.
func OnStopped(f func(cause error)) SessionOption {
	return func(o *sessionOptions) { o.onStopped = f }
}

func sessionOptionsOf(opts []SessionOption) (o sessionOptions, err error) {
	o.timeout = DefaultTimeout
	for _, f := range opts {
		f(&o)
	}
	if o.timeout < session.MinTimeout || o.timeout > session.MaxTimeout {
		return o, protocol.Errorf(protocol.StatusBadRequest, "session timeout is %s; it must be %s to %s", o.timeout, session.MinTimeout, session.MaxTimeout)
	}
	o.timeout = millis.Duration(millis.Of("session timeout", o.timeout, &err))
	millis.Of("keep-alive", o.keepAlive, &err) // it stays here, but what is no time is refused alike
	return o, err
}

// period between keep-alives for a session with this timeout in force.
func (o *sessionOptions) period(timeout time.Duration) time.Duration {
	p := session.KeepAlive(timeout)
	if o.keepAlive > 0 {
		p = min(p, max(o.keepAlive, 10*time.Millisecond))
	}
	return p
}
