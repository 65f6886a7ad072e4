package core

import (
	"errors"
	"fmt"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Outcomes of leases and acquires.
var (
	ErrNotAcquired = errors.New("not acquired in time")
	ErrAlreadyHeld = errors.New(
		"this session holds the semaphore already; change it through its lease, or acquire with another session")
	ErrReleased  = errors.New("lease was released")
	ErrLeaseLost = errors.New("lease is lost")
	ErrMaxHold   = fmt.Errorf("%w: it was held for as long as it may be", ErrLeaseLost)
	ErrPreempted = fmt.Errorf("%w: a waiter preempted it, and the time to yield is over", ErrLeaseLost)
)

// Why a lease is lost that nobody has said anything of.
var (
	errNotKnown     = fmt.Errorf("%w: the server does not know it any more", ErrLeaseLost)
	errTakenUnheard = fmt.Errorf("%w: it was taken away while the connection was lost", ErrLeaseLost)
)

// Why a session is over.
var (
	ErrSessionExpired error = &sessionError{"session is expired for good; start a new one"}
	ErrNotRenewed     error = fmt.Errorf("the session was not renewed in time: %w", ErrSessionExpired)
	ErrTakenOver      error = fmt.Errorf("session was taken over by another process: %w", ErrSessionExpired)
	ErrSessionClosed        = errors.New("session is closed")
)

// Why nothing was answered.
var (
	ErrUnreachable  = errors.New("instance cannot be reached")
	ErrClosed       = errors.New("client is closed")
	ErrHandshake    = errors.New("no connection can be made with this configuration")
	ErrOtherCluster = fmt.Errorf("%w: another cluster answers", ErrHandshake)
)

// sessionError matches SESSION_EXPIRED of the wire too.
type sessionError struct{ text string }

func (e *sessionError) Error() string        { return e.text }
func (e *sessionError) Is(target error) bool { return target == protocol.StatusSessionExpired }

// permanentError is a connection that another try would not make either. See R17 and R18.
type permanentError struct{ err error }

func (p *permanentError) Error() string { return p.err.Error() }
func (p *permanentError) Unwrap() error { return p.err }

// Permanent marks the error of a connection that another try would not make either: what waits for
// it fails.
func Permanent(err error) error { return &permanentError{err} }

// IsPermanent reports whether an error is so marked.
func IsPermanent(err error) bool {
	_, ok := errors.AsType[*permanentError](err)
	return ok
}

// RefusedForGood marks the answer to a hello, if another try would get it again.
func RefusedForGood(err error) error {
	switch protocol.StatusOf(err) {
	case protocol.StatusUnsupported, protocol.StatusUnauthenticated, protocol.StatusForbidden, protocol.StatusBadRequest:
		return Permanent(err)
	}
	return err
}
