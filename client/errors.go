package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/signalbox-dev/signalbox/protocol"
)

// What became of a lease or a session. errors.Is finds them in what the methods of this package
// return and in the causes of their contexts.
var (
	// ErrNotAcquired: the wait ended before the semaphore could be acquired.
	ErrNotAcquired = errors.New("not acquired in time")

	// ErrAlreadyHeld: the session holds the semaphore already. A session has one entry per
	// semaphore: change it through its lease, or use another session.
	ErrAlreadyHeld = errors.New(
		"this session holds the semaphore already; change it through its lease, or acquire with another session")

	// ErrReleased is the cause of a lease's context after the holder released the lease.
	ErrReleased = errors.New("lease was released")

	// ErrLeaseLost: an operator or another client took the lease away while the session lives, by a
	// forced release or by deleting the semaphore.
	ErrLeaseLost = errors.New("lease is lost")

	// ErrSessionExpired: the session and all its leases are gone, because the session was not
	// renewed in time or the server ended it. Start a new one. errors.Is(err,
	// protocol.StatusSessionExpired) is true too.
	ErrSessionExpired error = &sessionError{"session is expired for good; start a new one"}

	// ErrNotRenewed: the session expired because no answer from its home shard renewed it in time.
	// No instance could be reached, or this process was not scheduled, or the credentials were
	// refused, and errors.Is(err, Unauthenticated) is true. errors.Is(err, ErrSessionExpired) is
	// true too.
	ErrNotRenewed error = fmt.Errorf("the session was not renewed in time: %w", ErrSessionExpired)

	// ErrTakenOver: another process restored the session. errors.Is(err, ErrSessionExpired) is true
	// too.
	ErrTakenOver error = fmt.Errorf("session was taken over by another process: %w", ErrSessionExpired)

	// ErrSessionClosed: the session's holder closed it.
	ErrSessionClosed = errors.New("session is closed")

	// ErrClientClosed: the client was closed.
	ErrClientClosed = errors.New("client is closed")

	// ErrUnreachable: no connection could be made before the context ended.
	ErrUnreachable = errors.New("instance cannot be reached")

	// ErrOutcomeUnknown: a request was sent, and the context or the session ended before its
	// outcome was known, or a change of a lease was refused when it was sent again. It may or may
	// not have taken effect: check before repeating it.
	ErrOutcomeUnknown = errors.New("outcome unknown")
)

// The outcomes that a server answers, for errors.Is.
var (
	BadRequest         error = protocol.StatusBadRequest         // the request is malformed or out of range
	NotFound           error = protocol.StatusNotFound           // what it names does not exist
	AlreadyExists      error = protocol.StatusAlreadyExists      // what it creates exists
	PreconditionFailed error = protocol.StatusPreconditionFailed // the state does not allow it
	BadSession         error = protocol.StatusBadSession         // the session is not this client's
	Aborted            error = protocol.StatusAborted            // it was ended by somebody else
	Overloaded         error = protocol.StatusOverloaded         // a limit is reached; the message names it
	Unavailable        error = protocol.StatusUnavailable        // nobody can serve it now
	Unauthenticated    error = protocol.StatusUnauthenticated    // the credentials are missing or wrong
	Forbidden          error = protocol.StatusForbidden          // the identity lacks the right
	Unsupported        error = protocol.StatusUnsupported        // the server does not know the request
)

// Retryable says that nothing was applied and that the same call may succeed later. The methods of
// this package retry by themselves until their context ends, so Retryable matters for errors that
// the end of a context caused.
func Retryable(err error) bool {
	if errors.Is(err, ErrOutcomeUnknown) {
		return false
	}
	return protocol.Retryable(err) || errors.Is(err, ErrUnreachable)
}

// sessionError matches SESSION_EXPIRED of the wire too.
type sessionError struct{ text string }

func (e *sessionError) Error() string        { return e.text }
func (e *sessionError) Is(target error) bool { return target == protocol.StatusSessionExpired }

// errConnLost: the connection ended before the reply. What was sent on it may have been applied or
// not.
var errConnLost = errors.New("connection lost")

// undecided marks an error that leaves the request's outcome unknown, whatever errors of the server
// it wraps: an earlier one, or what the session or the context ended with.
type undecided struct{ error }

func (e *undecided) Unwrap() error { return e.error }

// markUndecided marks an error that came without an answer to the request.
func markUndecided(err error) error {
	if err == nil {
		return nil
	}
	return &undecided{err}
}

// interrupted is the error of a call whose context ended: the context's cause, and what kept the
// call from succeeding. It is undecided.
func interrupted(ctx context.Context, last error) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); !errors.Is(cause, err) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	if last != nil && !errors.Is(last, errConnLost) {
		err = fmt.Errorf("%w (last: %w)", err, last)
	}
	return markUndecided(err)
}

// outcomeUnknown marks the error of a request that was sent and not answered.
func outcomeUnknown(sent bool, err error) error {
	if !sent {
		return err
	}
	return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
}

// maxNameInError bounds a name in an error, in bytes: a refused one may be of any length.
const maxNameInError = 100

func withOp(op, name string, err error) error {
	if err == nil {
		return nil
	}
	if len(name) > maxNameInError {
		name = name[:maxNameInError] + "..."
	}
	return fmt.Errorf("%s %q: %w", op, name, err)
}

// withSession names the session that an error is about, and makes it ErrSessionExpired when the
// server said so.
func withSession(op string, id uint64, err error) error {
	if protocol.StatusOf(err) == protocol.StatusSessionExpired && !errors.Is(err, ErrSessionExpired) {
		err = fmt.Errorf("%w (%w)", ErrSessionExpired, err)
	}
	return fmt.Errorf("%s session %d: %w", op, id, err)
}
