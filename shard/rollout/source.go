package rollout

import (
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// published is a version someone published. Payload is never changed in place.
type published struct {
	version   uint64
	at, wall  uint64
	payload   []byte
	withdrawn bool
}

// generate is the timestamp oracle: wall time in ms << 18, strictly increasing.
func (t *Track) generate(now Now) uint64 {
	wall := min(now.Wall, protocol.MaxTrackVersion>>tsoLogicalBits)
	return min(max(t.last+1, wall<<tsoLogicalBits), protocol.MaxTrackVersion)
}

func (t *Track) indexOf(version uint64) (int, bool) {
	return slices.BinarySearchFunc(t.published, version, func(p published, v uint64) int {
		if p.version < v {
			return -1
		}
		if p.version > v {
			return 1
		}
		return 0
	})
}

// isPublished says that a version was published and its payload is there.
func (t *Track) isPublished(version uint64) bool {
	i, ok := t.indexOf(version)
	return ok && !t.published[i].withdrawn
}

// Payload of a published version; it must not be changed. False: it was not published, or is kept
// no more.
func (t *Track) Payload(version uint64) ([]byte, bool) {
	if i, ok := t.indexOf(version); ok {
		return t.published[i].payload, true
	}
	return nil, false
}

func (t *Track) newestPublished() uint64 {
	for i := len(t.published) - 1; i >= 0; i-- {
		if !t.published[i].withdrawn {
			return t.published[i].version
		}
	}
	return 0
}

// Publish offers a version to the first location. Version 0: one above all earlier. The payload is
// copied. Errors: ErrWrongSource, BAD_REQUEST for a version that may not follow the last,
// ErrTooManyVersions, BAD_REQUEST for a payload above 64 KiB.
func (t *Track) Publish(now Now, version uint64, payload []byte, out *Events) (uint64, error) {
	if t.config.Source != protocol.SourcePublished {
		return 0, ErrWrongSource
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
	if len(t.published) >= MaxPublished && !t.dropPublished() {
		return 0, ErrTooManyVersions
	}
	t.clock = t.clockAt(now)
	t.published = append(t.published, published{version: version, at: t.clock, wall: now.Wall, payload: slices.Clone(payload)})
	t.bytes += VersionBytes(len(payload))
	t.last = version
	t.emit(now, out, protocol.TrackEvent{Kind: protocol.TrackEventPublished, Version: version, Text: "published"})
	t.updateStates(now, out)
	return version, nil
}

// dropPublished makes room. Versions in use stay, and the newest; others that no location has in
// its history go first, then those whose neighbours are closest.
func (t *Track) dropPublished() bool {
	used := map[uint64]bool{}
	known := map[uint64]bool{}
	for _, l := range t.locations {
		used[l.target], used[l.stable], used[l.gate.version], used[l.promoted] = true, true, true, true
		for i := range l.history {
			known[l.history[i].version] = true
		}
	}
	best, least := -1, uint64(maxTime)
	for i := range t.published {
		p := &t.published[i]
		if used[p.version] || i == len(t.published)-1 {
			continue
		}
		if !known[p.version] || p.withdrawn {
			best = i
			break
		}
		gap := t.published[i+1].at
		if i > 0 {
			gap -= t.published[i-1].at
		}
		if gap < least {
			best, least = i, gap
		}
	}
	if best < 0 {
		return false
	}
	t.bytes -= VersionBytes(len(t.published[best].payload))
	t.published = slices.Delete(t.published, best, best+1)
	return true
}

// Withdraw bars a published version: no location chooses it any more. Locations that have it keep
// it until they are rolled back or move on.
func (t *Track) Withdraw(now Now, version uint64, out *Events) error {
	i, ok := t.indexOf(version)
	if !ok {
		return ErrUnknownVersion
	}
	if t.published[i].withdrawn {
		return nil
	}
	t.clock = t.clockAt(now)
	t.published[i].withdrawn = true
	for _, l := range t.locations {
		if l.gate.version == version {
			l.gate = gate{}
		}
		if l.promoted == version {
			l.promoted = 0
		}
	}
	t.emit(now, out, protocol.TrackEvent{Kind: protocol.TrackEventAdmin, Version: version, Text: "withdrawn"})
	t.updateStates(now, out)
	return nil
}

// Advance offers a version of the external generator to the first location. expected is its target
// as the coordinator knew it when a poll's answer said SOURCE_WANTED. The condition is looked at
// again; a version that is not used is discarded. Errors: ErrWrongSource, ErrTargetMoved,
// BAD_REQUEST for a version that may not follow the last.
func (t *Track) Advance(now Now, expected, version uint64, out *Events) error {
	if t.config.Source != protocol.SourceExternal {
		return ErrWrongSource
	}
	clock := t.clockAt(now)
	l := t.first(clock)
	if l == nil || l.target != expected || len(l.members) == 0 {
		return ErrTargetMoved
	}
	d := t.decide(l, l.leaders > 0, clock)
	if !d.askSource {
		return ErrTargetMoved
	}
	if err := checkVersion(version, t.last); err != nil {
		text := "the external generator gave a bad version: " + err.Message
		if t.sourceError != text {
			t.clock, t.sourceError = clock, text
			t.emit(now, out, protocol.TrackEvent{Kind: protocol.TrackEventAlert, Location: l.name,
				Version: version, From: t.last, Text: text})
			t.updateStates(now, out)
		}
		return err
	}
	t.clock, t.sourceError, d.version = clock, "", version
	t.last = version
	t.apply(l, d, now, out)
	t.updateStates(now, out)
	return nil
}

// SourceFailed records that the external generator gave no version: targets stay as they are, and
// the reason is SOURCE_UNAVAILABLE until it works again.
func (t *Track) SourceFailed(now Now, text string, out *Events) error {
	if t.config.Source != protocol.SourceExternal {
		return ErrWrongSource
	}
	if !validName(text, protocol.MaxTrackMessage) {
		return badRequest("source: say in 1 to 256 printable bytes what failed")
	}
	if t.sourceError == text {
		return nil
	}
	t.clock, t.sourceError = t.clockAt(now), text
	t.emit(now, out, protocol.TrackEvent{Kind: protocol.TrackEventAlert, Text: "the source is unavailable: " + text})
	t.updateStates(now, out)
	return nil
}

// first is the location that takes versions from the source now.
func (t *Track) first(clock uint64) *location {
	for _, l := range t.ordered() {
		if !l.excluded && !t.skipped(l, clock) {
			return l
		}
	}
	return nil
}
