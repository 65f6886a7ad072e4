package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/client/internal/driver"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Loss is the end of a session or a lease that its holder did not ask for: what happened, for how
// long, and what to change. errors.As finds it in Lease.Lost and Session.Err, in the causes of their
// contexts, in the errors of Run and Supervise, and in what an Observer gets:
//
//	if loss, ok := errors.AsType[*client.Loss](lease.Lost()); ok {
//		log.Print(loss.Cause, loss.Advice)
//	}
type Loss = core.Loss

// Outcomes of leases and sessions. errors.Is finds them in the errors that methods of this package
// return, and in the causes of their contexts.
var (
	// ErrNotAcquired: the wait ended before the semaphore could be acquired, or a Try found it held.
	ErrNotAcquired = core.ErrNotAcquired

	// ErrAlreadyHeld: the session holds the semaphore already. A session has one entry per
	// semaphore: change it through its lease, or use another session.
	ErrAlreadyHeld = core.ErrAlreadyHeld

	// ErrDeadlock: the acquire left the queue, because the session was in a deadlock; see
	// FailOnDeadlock. The error is a *DeadlockError too.
	ErrDeadlock = errors.New("deadlock: these sessions wait for each other, and none of them can go on")

	// ErrReleased is the cause of a lease's context after the holder released the lease.
	ErrReleased = core.ErrReleased

	// ErrLeaseLost: the lease ended while the session lives, without a release by its holder: by a
	// forced release, by the deletion of the semaphore, or at a bound.
	ErrLeaseLost = core.ErrLeaseLost

	// ErrMaxHold: the lease was held for as long as it may be, see MaxHold and SemaphoreConfig.MaxHold.
	// errors.Is(err, ErrLeaseLost) is true too.
	ErrMaxHold = core.ErrMaxHold

	// ErrPreempted: a waiter preempted the lease, and the Grace of the semaphore is over.
	// errors.Is(err, ErrLeaseLost) is true too.
	ErrPreempted = core.ErrPreempted

	// ErrSessionExpired: the session and all its leases are gone, because the session was not
	// renewed in time or the server ended it. Start a new one. errors.Is(err,
	// protocol.StatusSessionExpired) is true too.
	ErrSessionExpired = core.ErrSessionExpired

	// ErrNotRenewed: the session expired because no answer from its home shard renewed it in time.
	// The error is a *Loss, which says why. If the credentials were refused, errors.Is(err,
	// ErrUnauthenticated) is true. errors.Is(err, ErrSessionExpired) is true too.
	ErrNotRenewed = core.ErrNotRenewed

	// ErrTakenOver: another process restored the session. errors.Is(err, ErrSessionExpired) is true
	// too.
	ErrTakenOver = core.ErrTakenOver

	// ErrSessionClosed: the session's holder closed it.
	ErrSessionClosed = core.ErrSessionClosed

	// ErrClientClosed: the client was closed.
	ErrClientClosed = core.ErrClosed

	// ErrUnreachable: no connection could be made before the context ended.
	ErrUnreachable = core.ErrUnreachable

	// ErrOutcomeUnknown: a request was sent, and the context or the session ended before its
	// outcome was known, or a change of a lease was refused when it was sent again. It may or may
	// not have taken effect: check before repeating it.
	ErrOutcomeUnknown = driver.ErrOutcomeUnknown
)

// ErrHandshake: an endpoint was reached, but this configuration cannot connect to it. Its
// certificate is not trusted or is for another name, it requires another client certificate, only
// one side speaks TLS, or the address is not for clients. Open fails with it at once when no
// endpoint does better, and about TLS also while others are down. A client that was connected before
// keeps trying, because certificates get replaced.
var ErrHandshake = core.ErrHandshake

// ErrOtherCluster: an instance of another cluster answers at an endpoint, or at the address of an
// instance that is gone. It is an ErrHandshake. A cluster that was restored from a backup is another
// one: what ran before must be restarted, or open another client.
var ErrOtherCluster = core.ErrOtherCluster

// The outcomes that a server answers, for errors.Is.
var (
	ErrBadRequest         error = protocol.StatusBadRequest         // the request is malformed or out of range
	ErrNotFound           error = protocol.StatusNotFound           // what it names does not exist
	ErrAlreadyExists      error = protocol.StatusAlreadyExists      // what it creates exists
	ErrPreconditionFailed error = protocol.StatusPreconditionFailed // the state does not allow it
	ErrBadSession         error = protocol.StatusBadSession         // the session is not this client's
	ErrAborted            error = protocol.StatusAborted            // it was ended by somebody else
	ErrOverloaded         error = protocol.StatusOverloaded         // a limit is reached; the message names it
	ErrUnavailable        error = protocol.StatusUnavailable        // nobody can serve it now
	ErrUnauthenticated    error = protocol.StatusUnauthenticated    // the credentials are missing or wrong
	ErrForbidden          error = protocol.StatusForbidden          // the identity lacks the right
	ErrUnsupported        error = protocol.StatusUnsupported        // the server does not know the request
)

// Retryable reports whether nothing was applied, so that the same call may succeed later. The methods
// of this package retry by themselves until their context ends, so Retryable matters for errors that
// the end of a context caused.
func Retryable(err error) bool {
	if errors.Is(err, ErrOutcomeUnknown) {
		return false
	}
	return protocol.Retryable(err) || errors.Is(err, ErrUnreachable)
}

// answered reports whether the server decided about a request that failed like this.
func answered(err error) bool { return driver.Answered(err) }

// interrupted is the error of a call whose context ended.
func interrupted(ctx context.Context) error { return driver.Undecided(driver.Interrupted(ctx)) }

func withOp(op, name string, err error) error { return driver.WithOp(op, name, err) }

// isNotFound reports whether a semaphore does not exist, which recipes take for an empty one, or its
// node does not: see [Node.checkLives].
func isNotFound(err error) bool { return errors.Is(err, protocol.StatusNotFound) }

func closeError(r core.Result) error {
	if r.Err != nil {
		return fmt.Errorf("close session: %w", driver.Err(r))
	}
	return nil
}
