package protocol

import (
	"errors"
	"fmt"
)

// Error is an outcome other than OK with a sentence that names the remedy. errors.Is(err, StatusX)
// distinguishes outcomes.
type Error struct {
	Status  Status
	Refusal Refusal // which of the refusals with this status; RefusalNone: the status says it all
	Message string

	// Master and Term come with WRONG_SHARD from a server that knows better: the instance that
	// leads the shard, and since which raft term. Of two such words the one with the higher term is
	// newer. 0 is not known.
	Master, Term uint64

	// Shard and MapVersion come with it: the shard that Master and Term are about, which owns the
	// bucket as far as the server knows, and the version of the server's map; 0: not given. With
	// UNAVAILABLE, Shard is the one that a change of the cluster or of its nodes waits for: it may
	// still happen. 0: nothing was applied.
	Shard, MapVersion uint64
}

// Errorf makes an Error. The message is a lower-case sentence that names the remedy.
func Errorf(status Status, format string, args ...any) *Error {
	return &Error{Status: status, Message: fmt.Sprintf(format, args...)}
}

// Error is the status in words and the message.
func (e *Error) Error() string {
	if e.Message == "" {
		return e.Status.Error()
	}
	return e.Status.Error() + ": " + e.Message
}

// Unwrap gives the status, for errors.Is.
func (e *Error) Unwrap() error { return e.Status }

// StatusOf is the status that err carries: StatusOK for nil, StatusInternal for an error that
// carries none.
func StatusOf(err error) Status {
	if err == nil {
		return StatusOK
	}
	if s, ok := errors.AsType[Status](err); ok {
		return s
	}
	return StatusInternal
}

// RefusalOf is the refusal that err carries: RefusalNone for an error that carries none.
func RefusalOf(err error) Refusal {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Refusal
	}
	return RefusalNone
}

// Retryable reports whether the same request, with the same sequence number, may be sent again as
// it is. An error without a status is not retryable.
func Retryable(err error) bool {
	return err != nil && StatusOf(err).Retryable()
}
