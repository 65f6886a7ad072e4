package driver

import (
	"errors"
	"fmt"

	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/protocol"
)

// ErrOutcomeUnknown: a request was sent, and nobody knows what became of it.
var ErrOutcomeUnknown = errors.New("outcome unknown")

// undecided marks an error that leaves the request's outcome unknown, whatever errors of the server
// it wraps: an earlier one, or what the session or the context ended with.
type undecided struct{ error }

func (u *undecided) Unwrap() error { return u.error }

// Undecided marks an error that came without an answer to the request.
func Undecided(err error) error {
	if err == nil {
		return nil
	}
	return &undecided{err}
}

// Answered reports whether the server decided about a request that failed like this.
func Answered(err error) bool {
	var e *protocol.Error
	var u *undecided
	return errors.As(err, &e) && !errors.As(err, &u)
}

// Err is a result as an error.
func Err(r core.Result) error {
	if r.Err == nil || r.Answered {
		return r.Err
	}
	return Undecided(r.Err)
}

// Outcome is a result as an error that also says if the outcome is unknown.
func Outcome(r core.Result) error { return OutcomeUnknown(r.Unknown && r.Err != nil, Err(r)) }

// OutcomeUnknown marks the error of a request that was sent and not answered.
func OutcomeUnknown(sent bool, err error) error {
	if !sent {
		return err
	}
	return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
}

// maxNameInError bounds a name in an error, in bytes: a refused one may be of any length.
const maxNameInError = 100

// opError is an error with what failed.
type opError struct {
	op, name string
	err      error
}

func (e *opError) Error() string { return fmt.Sprintf("%s %q: %v", e.op, e.name, e.err) }

func (e *opError) Unwrap() error { return e.err }

// WithOp says what failed, and the name of what.
func WithOp(op, name string, err error) error {
	if err == nil {
		return nil
	}
	if len(name) > maxNameInError {
		name = name[:maxNameInError] + "..."
	}
	return &opError{op, name, err}
}

// WithoutOp is the error that WithOp was given, for a caller that says better what failed. Any other
// error stays as it is.
func WithoutOp(err error) error {
	if e, ok := err.(*opError); ok {
		return e.err
	}
	return err
}
