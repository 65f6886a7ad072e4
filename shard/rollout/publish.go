package rollout

import (
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Publish offers a version to the first location. Version 0: one above all earlier. The payload is
// copied. Errors: PRECONDITION_FAILED for a track with another source, BAD_REQUEST for a version
// that may not follow the last, ErrTooManyVersions, BAD_REQUEST for a payload above 64 KiB.
func (t *Track) Publish(now Now, version uint64, payload []byte, out *Events) (uint64, error) {
	if t.config.Source != protocol.SourcePublished {
		return 0, wrongSource(t.config.Source, protocol.SourcePublished)
	}
	if len(payload) > protocol.MaxTrackPayload {
		return 0, badRequest("publish: a payload has at most 64 KiB; publish where to find it instead")
	}
	if version == 0 && t.last < protocol.MaxTrackVersion {
		version = t.last + 1
	}
	if err := checkVersion(version, t.last); err != nil {
		return 0, err
	}
	if len(t.published) >= MaxPublished {
		freed, ok := t.published.drop(t.locations)
		if !ok {
			return 0, ErrTooManyVersions
		}
		t.versionBytes -= freed
	}
	c := t.change(now, out)
	t.published = append(t.published,
		published{version: version, at: t.clock, wall: now.Wall, payload: slices.Clone(payload)})
	t.versionBytes += VersionBytes(len(payload))
	t.raiseLast(version)
	c.emit(protocol.TrackEvent{Kind: protocol.TrackEventPublished, Version: version, Text: "published"})
	c.updateStates()
	return version, nil
}

// raiseLast records that the track has the version. Reports of versions up to it now count as
// reaching lower targets.
func (t *Track) raiseLast(version uint64) {
	former := t.last
	if version <= former {
		return
	}
	t.last = version
	for _, l := range t.locations {
		for _, p := range l.members {
			if p.report.Current > former {
				p.updateCounts(&t.plan)
			}
		}
	}
}

// PublishBytes returns the bytes by which publishing a version with a payload of this length
// enlarges the track: beyond MaxPublished it replaces another one.
func (t *Track) PublishBytes(payload int) uint64 {
	more := VersionBytes(payload)
	if len(t.published) >= MaxPublished {
		if i := t.published.toDrop(t.locations); i >= 0 {
			more -= min(more, VersionBytes(len(t.published[i].payload)))
		}
	}
	return more
}

// Withdraw bars a published version: no location chooses it any more. Locations that have it keep
// it until they are rolled back or move on.
func (t *Track) Withdraw(now Now, version uint64, out *Events) error {
	i, ok := t.published.indexOf(version)
	if !ok {
		return unknownVersion(version)
	}
	if t.published[i].withdrawn {
		return nil
	}
	c := t.change(now, out)
	t.published[i].withdrawn = true
	for _, l := range t.locations {
		if l.gate.version == version {
			l.gate.giveUp()
		}
		if l.promoted == version {
			l.promoted = 0
		}
	}
	c.emit(protocol.TrackEvent{Kind: protocol.TrackEventAdmin, Version: version, Text: "withdrawn"})
	c.updateStates()
	return nil
}

// Advance offers a version of the external generator to the first location. expected is its target
// as the coordinator knew it when a poll's answer said SOURCE_WANTED. The condition is looked at
// again; a version that is not used is discarded. Errors: PRECONDITION_FAILED for a track with
// another source or target, BAD_REQUEST for a version that may not follow the last.
func (t *Track) Advance(now Now, expected, version uint64, out *Events) error {
	if t.config.Source != protocol.SourceExternal {
		return wrongSource(t.config.Source, protocol.SourceExternal)
	}
	l, d, wanted := t.wanted(now, expected)
	if !wanted {
		return targetMoved(l, expected, version)
	}
	if err := checkVersion(version, t.last); err != nil {
		text := "the external generator gave a bad version: " + err.Message
		if t.sourceError != text {
			t.sourceError = text
			c := t.change(now, out)
			c.emit(protocol.TrackEvent{Kind: protocol.TrackEventAlert, Location: l.name,
				Version: version, From: t.last, Text: text})
			c.updateStates()
		}
		return err
	}
	t.sourceError, d.version = "", version
	c := t.change(now, out)
	t.raiseLast(version)
	c.apply(l, d)
	c.updateStates()
	return nil
}

// wanted returns the location that takes versions from the source, or nil, and the effect of a poll
// there. yes is false if it must not get a version behind the expected one now.
func (t *Track) wanted(now Now, expected uint64) (l *location, d decision, yes bool) {
	clock := t.clockAt(now)
	if l = t.first(clock); l == nil || l.target != expected || len(l.members) == 0 {
		return l, d, false
	}
	d = t.decide(l, l.leaders > 0, clock)
	return l, d, d.askSource
}

// SourceFailed records that the external generator gave no version: targets stay as they are, and
// the reason is SOURCE_UNAVAILABLE until it works again. expected is as in Advance: a failure that
// comes behind another generator's version is not noted. Errors: PRECONDITION_FAILED as in Advance,
// BAD_REQUEST for the text.
func (t *Track) SourceFailed(now Now, expected uint64, text string, out *Events) error {
	if t.config.Source != protocol.SourceExternal {
		return wrongSource(t.config.Source, protocol.SourceExternal)
	}
	if !validName(text, protocol.MaxTrackMessage) {
		return badRequest("source: say in 1 to 256 printable bytes what failed")
	}
	if l, _, wanted := t.wanted(now, expected); !wanted {
		return targetMoved(l, expected, 0)
	}
	if t.sourceError == text {
		return nil
	}
	t.sourceError = text
	c := t.change(now, out)
	c.emit(protocol.TrackEvent{Kind: protocol.TrackEventAlert, Text: "the source is unavailable: " + text})
	c.updateStates()
	return nil
}

// ReportGate reports the outcome of a run, which PendingGates or TrackEventGate named. Errors:
// UNKNOWN_LOCATION, PRECONDITION_FAILED when the run is over, BAD_REQUEST.
func (t *Track) ReportGate(
	now Now, location string, version uint64, name string, attempt uint64,
	o protocol.GateOutcome, text string, out *Events,
) error {
	if o < protocol.GateSuccess || o > protocol.GateInconclusive || !validText(text, protocol.MaxTrackMessage) {
		return badRequest("gate: the outcome is success, failure or inconclusive, with at most 256 printable bytes")
	}
	l, err := t.find(location)
	if err != nil {
		return err
	}
	g := &l.gate
	if g.version == 0 || g.version != version || g.state != gateRunning || g.attempt != attempt ||
		t.locationConfig(l).Gates[g.index].Name != name {
		return gateMoved(l, name, version, attempt)
	}
	c := t.change(now, out)
	c.finishGate(l, o, text)
	c.updateStates()
	return nil
}
