package rollout

import (
	"fmt"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Refusals of any track, for errors.Is. The other refusals contain the values that they are about,
// and differ in their status and, where a client needs it, in their [protocol.Refusal]. Nothing has
// changed when one is returned.
var (
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

func unknownInstance(id string) *protocol.Error {
	return protocol.Errorf(protocol.StatusNotFound,
		"the track has no instance %q; the track's status lists them, and an instance has to register first", id)
}

func unknownLocation(name string) *protocol.Error {
	return protocol.Refuse(protocol.RefusalUnknownLocation,
		"the track's config has no location %q; the track's status lists them, and a change of the config adds one", name)
}

func alreadyRegistered(p *instance) *protocol.Error {
	return protocol.Refuse(protocol.RefusalAlreadyRegistered,
		"session %d is alive and has instance %q; stop it, take the id over, or choose another id", p.session, p.id)
}

func fenced(p *instance, from Caller) *protocol.Error {
	return protocol.Refuse(protocol.RefusalFenced,
		"instance %q is incarnation %d of session %d, not %d of session %d; stop, or register again",
		p.id, p.incarnation, p.session, from.Incarnation, from.Session)
}

func staleReport(p *instance, seq uint64) *protocol.Error {
	return protocol.Refuse(protocol.RefusalStaleReport,
		"report %d of instance %q is not newer than %d, the last one; number reports upwards", seq, p.id, p.seq)
}

func wrongSource(is, wanted protocol.TrackSource) *protocol.Error {
	return protocol.Errorf(protocol.StatusPreconditionFailed,
		"the track's source is %s, and this needs %s; change its config, or use another track", is, wanted)
}

// targetMoved rejects a version that the source made for the first location, l, or, with version 0,
// its failure to make one. l is nil without a first location.
func targetMoved(l *location, expected, version uint64) *protocol.Error {
	text := ""
	switch {
	case l == nil:
		text = "all locations are excluded or skipped, and none takes versions from the source"
	case l.target != expected:
		text = fmt.Sprintf("location %q has target %d, not %d as expected", l.name, l.target, expected)
	default:
		text = fmt.Sprintf("location %q wants no version from the source now", l.name)
	}
	if version == 0 {
		return protocol.Errorf(protocol.StatusPreconditionFailed, "%s; the failure of its source is not noted", text)
	}
	return protocol.Errorf(protocol.StatusPreconditionFailed,
		"%s; discard version %d, and make another one when a poll asks for it", text, version)
}

// notInHistory refuses a rollback to a version that l never had, r is nil, or must not have again.
func notInHistory(l *location, r *row, version uint64, withdrawn bool) *protocol.Error {
	text := fmt.Sprintf("version %d is not in the history of location %q", version, l.name)
	switch {
	case r == nil:
	case r.skip:
		text = fmt.Sprintf("version %d is skipped in the history of location %q: it was bad, or was rolled back from",
			version, l.name)
	case withdrawn:
		text = fmt.Sprintf("version %d in the history of location %q was withdrawn", version, l.name)
	default:
		text = fmt.Sprintf("version %d in the history of location %q has no payload any more", version, l.name)
	}
	return protocol.Refuse(protocol.RefusalNotInHistory, "%s; choose another one from its history", text)
}

func notBelowTarget(l *location, version uint64) *protocol.Error {
	return protocol.Refuse(protocol.RefusalNotInHistory,
		"version %d is not below %d, the target of location %q; choose a lower one of its history", version, l.target,
		l.name)
}

func nothingToPromote(l *location) *protocol.Error {
	if l.excluded {
		return protocol.Errorf(protocol.StatusPreconditionFailed,
			"location %q is excluded, and nothing can be promoted there; include it first", l.name)
	}
	return protocol.Errorf(protocol.StatusPreconditionFailed,
		"nothing above version %d waits to be promoted at location %q; publish a version, or wait until the location before it has one",
		max(l.target, l.floor), l.name)
}

func noTarget(l *location) *protocol.Error {
	return protocol.Errorf(protocol.StatusPreconditionFailed,
		"location %q has no target yet, and nothing to re-elect; wait until its status shows a target", l.name)
}

func gateMoved(l *location, gate string, version, attempt uint64) *protocol.Error {
	return protocol.Errorf(protocol.StatusPreconditionFailed,
		"gate %q of location %q is not run for version %d, attempt %d, and its outcome is not used; run the gates that the status lists",
		gate, l.name, version, attempt)
}

func unknownVersion(version uint64) *protocol.Error {
	return protocol.Refuse(protocol.RefusalUnknownVersion,
		"version %d is not among the published versions that the track keeps; the histories of its locations list what they had", version)
}

func refusal(s protocol.Status, text string) *protocol.Error {
	return &protocol.Error{Status: s, Message: text}
}

func revisionMismatch(want, is uint64) *protocol.Error {
	return protocol.Refuse(protocol.RefusalOtherVersion,
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
