package client

import (
	"context"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/core"
)

// Observer is notified of acquires and of what they hold, and of what the client does to reach the
// cluster, for logs, traces and metrics. Acquire, TryAcquire and all recipes report to it. Package
// client/otelsignalbox, a module of its own, has one for OpenTelemetry.
//
// Its calls come on the caller's goroutine, or on another one of the client's, and must not block.
// Any number may run at once, so a change may be reported a moment after the one that followed it.
// Without an Observer nothing is measured and nothing is allocated.
type Observer interface {
	// AcquireStarted is called when a call begins to acquire a semaphore, with the context of the
	// call. The result gets the rest of it; nil: nothing more is to be reported.
	AcquireStarted(ctx context.Context, a AcquireStart) AcquireObserver
	// ConnectionChanged is called when a connection is made, could not be made, or is lost.
	ConnectionChanged(ConnectionChange)
	// SessionChanged is called when a session is attached, again too, is detached, or has ended.
	SessionChanged(SessionChange)
	// RequestRetried is called before a request of any kind is sent again.
	RequestRetried(RequestRetry)
}

// AcquireObserver is notified of one acquire, and of what it holds.
type AcquireObserver interface {
	// AcquireEnded is called once, when the call is about to return.
	AcquireEnded(AcquireEnd)
	// HoldEnded is called once, after AcquireEnded without an error, when the lease has ended. It
	// is called before Release and Session.Close return. After a loss it may be late.
	HoldEnded(HoldEnd)
}

// AcquireStart is an acquire that begins.
type AcquireStart struct {
	Session uint64
	Node    string // path of the coordination node
	Name    string // of the semaphore
	Count   uint64 // units
	Try     bool   // it does not wait
}

// AcquireEnd is how an acquire ended.
type AcquireEnd struct {
	Err      error         // nil: the units are held. ErrNotAcquired, also of TryAcquire, and the errors of Acquire
	Wait     time.Duration // from the call to its return
	Queued   bool          // the server put it into the semaphore's queue
	Attempts int           // how often it was sent, more than once after lost connections and moves
	Shard    uint64        // that answered last; 0: none was found
	Token    uint64        // the fencing token; 0: nothing is held
}

// HoldEnd is how a hold ended.
type HoldEnd struct {
	Held  time.Duration // since AcquireEnded
	Cause error         // nil: released. ErrSessionClosed: with its session. Otherwise it was lost, as Lease.Lost says
}

// ConnectionState is the state of a connection: made or lost.
type ConnectionState uint8

const (
	// ConnectionMade: an instance has answered.
	ConnectionMade ConnectionState = 1
	// ConnectionFailed: none could be made. The client tries again while something needs it.
	ConnectionFailed ConnectionState = 2
	// ConnectionLost: one that was made is over.
	ConnectionLost ConnectionState = 3
)

// ConnectionChange is a connection that is made, could not be made, or is lost.
type ConnectionChange struct {
	State    ConnectionState
	Instance uint64 // id; 0: whichever would answer
	Address  string // of ConnectionMade: that answered
	Err      error  // why not; nil for ConnectionMade
}

// SessionChange is a session that is attached, is detached, or has ended.
type SessionChange struct {
	Session  uint64
	Node     string // path of the coordination node
	State    State  // Attached, on Instance; Detached; or Expired
	Instance uint64 // of Attached
	Shard    uint64 // of Attached: the session's home
	Err      error  // of Expired: why, as Session.Err says
}

// RequestRetry is a request that is to be sent again.
type RequestRetry struct {
	Request  string // its kind, as the protocol names it: acquire, describe, session_attach
	Session  uint64 // 0: it belongs to none
	Instance uint64 // that it was sent to, or was to be; 0: whichever would answer
	Shard    uint64 // that serves it; 0: none
	Err      error  // the refusal, or why nothing was answered
}

// notify notifies an observer of what the engine notices.
func notify(to Observer, n core.Notice) {
	connection := func(state ConnectionState) {
		to.ConnectionChanged(ConnectionChange{State: state, Instance: n.Instance, Address: n.Address, Err: n.Err})
	}
	session := func(state State) {
		to.SessionChanged(SessionChange{
			Session: n.Session, Node: n.Node, State: state, Instance: n.Instance, Shard: n.Shard, Err: n.Err,
		})
	}
	switch n.Kind {
	case core.ConnMade:
		connection(ConnectionMade)
	case core.ConnFailed:
		connection(ConnectionFailed)
	case core.ConnLost:
		connection(ConnectionLost)
	case core.SessionAttached:
		session(Attached)
	case core.SessionDetached:
		session(Detached)
	case core.SessionOver:
		session(Expired)
	case core.RequestRetried:
		to.RequestRetried(RequestRetry{
			Request: n.Request.String(), Session: n.Session, Instance: n.Instance, Shard: n.Shard, Err: n.Err,
		})
	}
}
