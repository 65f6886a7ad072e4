package rollout

import "github.com/signalbox-dev/signalbox/protocol"

// Refusals. Nothing has changed when one is returned. Compare with errors.Is; each carries the
// status a reply has.
var (
	ErrUnknownInstance = refusal(protocol.StatusNotFound, "no such instance in this track: register it first")
	ErrUnknownLocation = refusal(protocol.StatusNotFound,
		"UNKNOWN_LOCATION: the track's config has no such location")
	ErrAlreadyRegistered = refusal(protocol.StatusAlreadyExists,
		"ALREADY_REGISTERED: another live session has this instance id; take it over, or stop the other")
	ErrFenced = refusal(protocol.StatusBadSession,
		"FENCED: a newer incarnation of this instance is registered; stop, or register again")
	ErrStaleReport = refusal(protocol.StatusPreconditionFailed,
		"STALE_REPORT: a later report of this incarnation is known")
	ErrTargetMoved = refusal(protocol.StatusPreconditionFailed,
		"the first location has another target, or wants no version now: discard the version")
	ErrWrongSource  = refusal(protocol.StatusPreconditionFailed, "the track's source is another one")
	ErrNotInHistory = refusal(protocol.StatusPreconditionFailed,
		"the version is not in the location's history, is skipped, or its payload is gone")
	ErrNotBelowTarget   = refusal(protocol.StatusPreconditionFailed, "a rollback must go below the location's target")
	ErrNothingToPromote = refusal(protocol.StatusPreconditionFailed, "nothing newer waits to be promoted")
	ErrNoTarget         = refusal(protocol.StatusPreconditionFailed, "the location has no target yet")
	ErrGateMoved        = refusal(protocol.StatusPreconditionFailed,
		"no such run of a gate is under way: its outcome is not used")
	ErrUnknownVersion   = refusal(protocol.StatusNotFound, "no such published version")
	ErrTooManyInstances = protocol.Errorf(protocol.StatusOverloaded,
		"the track has %d instances, the most that one may have: stop some, or make another track", MaxInstances)
	ErrTooManyVersions = protocol.Errorf(
		protocol.StatusOverloaded,
		"the track keeps %d published versions, the most that one may, and all are in use: withdraw some, or wait until the last location has moved on",
		MaxPublished,
	)
	ErrTooManyLocations = protocol.Errorf(protocol.StatusOverloaded,
		"more than %d removed locations would still have instances: stop those first", maxRemoved)
	ErrMalformed = refusal(protocol.StatusBadRequest, "rollout: the record of a track is malformed")
)

func refusal(s protocol.Status, text string) *protocol.Error {
	return &protocol.Error{Status: s, Message: text}
}

func revisionMismatch(want, is uint64) *protocol.Error {
	return protocol.Errorf(protocol.StatusPreconditionFailed,
		"the config has revision %d, not %d: read it again, then change it", is, want)
}

// highestNext is the highest version that may follow last: it takes at most half of the numbers
// that are left, up to MaxVersion. One wrong number, such as 2^63-1, would otherwise leave none for
// any later version, and nobody could publish again.
func highestNext(last uint64) uint64 { return last + (protocol.MaxTrackVersion-last+1)/2 }

// checkVersion refuses a version that may not follow last; nil when it may.
func checkVersion(version, last uint64) *protocol.Error {
	switch {
	case last >= protocol.MaxTrackVersion:
		return protocol.Errorf(protocol.StatusBadRequest,
			"the track has had version %d, the last that there is: make another track", last)
	case version <= last:
		return protocol.Errorf(protocol.StatusBadRequest,
			"version %d is not above %d, the highest that the track has had: give a higher one", version, last)
	case version > highestNext(last):
		return protocol.Errorf(
			protocol.StatusBadRequest,
			"version %d leaves too few numbers for later ones: the next version is at most %d, half way from %d to 2^63-1",
			version, highestNext(last), last,
		)
	}
	return nil
}

func badRequest(text string) *protocol.Error { return refusal(protocol.StatusBadRequest, text) }
