// Package belief is the SDK's logic of a session, what its holder may rely on and until when, for
// those who simulate the SDK or write a client of their own.
//
//	m := belief.Start(sent, timeout, grace) // the start was sent then, and has been answered
//	m.Vouched(sent)                         // a keep-alive sent then was answered
//	if m.Held(now) { ... }
//
// The types are those of the SDK itself, whose rules are in client/internal/session/DESIGN.md.
// Times are on one monotonic clock of the caller.
package belief

import (
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/session"
)

// Machine holds what may be believed of one session.
type Machine = session.Machine

// Ready is what came out of a machine's inputs.
type Ready = session.Ready

// States, and causes of an end.
const (
	Attached = session.Attached
	Detached = session.Detached
	Expired  = session.Expired

	ServerSaid = session.EndedByServer
	Closed     = session.Closed
)

// Start makes the machine of a session whose start was sent then and has been answered.
func Start(sent, timeout, grace time.Duration) *Machine { return session.Start(sent, timeout, grace) }

// KeepAlive is how often a connection must send a ping for a session with this timeout.
func KeepAlive(timeout time.Duration) time.Duration { return session.KeepAlive(timeout) }
