package rollout

import "github.com/signalbox-dev/signalbox/protocol"

// Refusals. Nothing has changed when one is returned. Compare with errors.Is; each carries the status a reply has.
var (
	ErrUnknownInstance   = refusal(protocol.StatusNotFound, "no such instance in this track: register it first")
	ErrUnknownLocation   = refusal(protocol.StatusNotFound, "UNKNOWN_LOCATION: the track's config has no such location")
	ErrAlreadyRegistered = refusal(protocol.StatusAlreadyExists, "ALREADY_REGISTERED: another live session has this instance id; take it over, or stop the other")
	ErrFenced            = refusal(protocol.StatusBadSession, "FENCED: a newer incarnation of this instance is registered; stop, or register again")
	ErrStaleReport       = refusal(protocol.StatusPreconditionFailed, "STALE_REPORT: a later report of this incarnation is known")
	ErrRevision          = refusal(protocol.StatusPreconditionFailed, "the config has another revision: read it again, then change it")
	ErrTargetMoved       = refusal(protocol.StatusPreconditionFailed, "the first location has another target, or wants no version now: discard the version")
	ErrNotIncreasing     = refusal(protocol.StatusBadRequest, "versions must increase: this one is not above all earlier ones, or not in 1..2^63-1")
	ErrWrongSource       = refusal(protocol.StatusPreconditionFailed, "the track's source is another one")
	ErrNotInHistory      = refusal(protocol.StatusPreconditionFailed, "the version is not in the location's history, is skipped, or its payload is gone")
	ErrNotBelowTarget    = refusal(protocol.StatusPreconditionFailed, "a rollback must go below the location's target")
	ErrNothingToPromote  = refusal(protocol.StatusPreconditionFailed, "nothing newer waits to be promoted")
	ErrNoTarget          = refusal(protocol.StatusPreconditionFailed, "the location has no target yet")
	ErrGateMoved         = refusal(protocol.StatusPreconditionFailed, "no such run of a gate is under way: its outcome is not used")
	ErrUnknownVersion    = refusal(protocol.StatusNotFound, "no such published version")
	ErrTooManyInstances  = refusal(protocol.StatusOverloaded, "the track has as many instances as one may have")
	ErrTooManyVersions   = refusal(protocol.StatusOverloaded, "the track keeps as many published versions as one may, and all are in use")
	ErrTooManyLocations  = refusal(protocol.StatusOverloaded, "too many removed locations still have instances: stop them first")
	ErrMalformed         = refusal(protocol.StatusBadRequest, "rollout: the record of a track is malformed")
)

func refusal(s protocol.Status, text string) *protocol.Error {
	return &protocol.Error{Status: s, Message: text}
}

func badRequest(text string) *protocol.Error { return refusal(protocol.StatusBadRequest, text) }
