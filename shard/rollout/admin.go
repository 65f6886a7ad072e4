package rollout

import (
	"strconv"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Pause keeps the targets of a location, or of all with an empty name, as they are. A version that
// is reported bad is re-elected all the same, unless hard is set: otherwise a pause in which a
// version expires is an outage.
func (t *Track) Pause(now Now, location string, hard bool, out *Events) error {
	mode, text := pausedSoft, "paused; a version reported bad is still replaced"
	if hard {
		mode, text = pausedHard, "paused, re-elections too"
	}
	return t.pause(now, location, mode, text, out)
}

// Resume ends a pause of a location, or of the track with an empty name; each has its own.
func (t *Track) Resume(now Now, location string, out *Events) error {
	return t.pause(now, location, running, "resumed", out)
}

func (t *Track) pause(now Now, location string, mode pauseMode, text string, out *Events) error {
	at := &t.paused
	if location != "" {
		l, err := t.find(location)
		if err != nil {
			return err
		}
		at = &l.paused
	}
	if *at != mode {
		t.clock, *at = t.clockAt(now), mode
		t.emit(now, out, protocol.TrackEvent{Kind: protocol.TrackEventAdmin, Location: location, Text: text})
		t.updateStates(now, out)
	}
	return nil
}

// Promote lets a location take the newest version of its predecessor without waiting for delay,
// bake time and gates, once; and gives a share's version to all. All leaders must have the present
// target first. Errors: ErrUnknownLocation, ErrNothingToPromote.
func (t *Track) Promote(now Now, location string, out *Events) error {
	l, err := t.find(location)
	if err != nil {
		return err
	}
	v := t.promotable(l, t.clockAt(now))
	if v == 0 {
		return ErrNothingToPromote
	}
	if l.promoted == v {
		return nil
	}
	t.clock, l.promoted = t.clockAt(now), v
	t.emit(now, out, protocol.TrackEvent{Kind: protocol.TrackEventAdmin, Location: l.name, Version: v,
		Text: "promoted past delay and gates"})
	t.updateStates(now, out)
	return nil
}

func (t *Track) promotable(l *location, clock uint64) uint64 {
	least := max(l.target, l.floor)
	if l.shareOnly {
		return l.target
	}
	if l.excluded {
		return 0
	}
	p := t.predecessor(l, clock)
	if p == nil {
		if l.gate.version > least {
			return l.gate.version
		}
		if v := t.newestPublished(); t.config.Source == protocol.SourcePublished && v > least {
			return v
		}
		return 0
	}
	for i := len(p.history) - 1; i >= 0; i-- {
		r := &p.history[i]
		if !r.skip && (!r.payload || t.isPublished(r.version)) {
			if r.version > least {
				return r.version
			}
			return 0
		}
	}
	return 0
}

// Rollback sets locations back to an earlier version of each one's history, at once. Versions above
// it in those histories are never passed on, and none up to the present target is chosen again.
// Locations that are not named stay as they are. All named are set back, or none. Errors:
// ErrUnknownLocation, ErrNotInHistory, ErrNotBelowTarget, BAD_REQUEST.
func (t *Track) Rollback(now Now, locations []string, version uint64, out *Events) error {
	if len(locations) == 0 || len(locations) > protocol.MaxTrackLocations {
		return badRequest("rollback: name the locations")
	}
	list := make([]*location, 0, len(locations))
	for i, name := range locations {
		l, err := t.find(name)
		if err != nil {
			return err
		}
		for _, before := range locations[:i] {
			if before == name {
				return badRequest("rollback: location " + name + " is named twice")
			}
		}
		r := l.row(version)
		if r == nil || r.skip || r.payload && !t.isPublished(version) {
			return ErrNotInHistory
		}
		if version >= l.target {
			return ErrNotBelowTarget
		}
		list = append(list, l)
	}
	t.clock = t.clockAt(now)
	for _, l := range list {
		l.floor = max(l.floor, l.target)
		for i := range l.history {
			if r := &l.history[i]; r.version > version && !r.skip {
				r.skip = true
				t.emit(now, out, protocol.TrackEvent{Kind: protocol.TrackEventSkip, Location: l.name,
					Version: r.version, Text: "rolled back from"})
			}
		}
		t.set(l, version, protocol.ReasonRollback, now, out, "rolled back by an operator from "+strconv.FormatUint(l.target, 10))
	}
	t.updateStates(now, out)
	return nil
}

// Reelect gives the target of a location up: it is never passed on, and the next poll replaces it
// if there is a newer one.
func (t *Track) Reelect(now Now, location string, out *Events) error {
	l, err := t.find(location)
	if err != nil {
		return err
	}
	if l.target == 0 {
		return ErrNoTarget
	}
	if l.reelectRequested {
		return nil
	}
	t.clock, l.reelectRequested = t.clockAt(now), true
	t.emit(now, out, protocol.TrackEvent{Kind: protocol.TrackEventAdmin, Location: l.name, Version: l.target,
		Text: "re-election asked for"})
	t.updateStates(now, out)
	return nil
}

// Exclude takes a location out: its successor takes versions from its predecessor, and its own
// instances keep what they have. Include takes it back in.
func (t *Track) Exclude(now Now, location string, out *Events) error {
	return t.exclude(now, location, true, "excluded: its successor looks past it", out)
}

// Include undoes Exclude.
func (t *Track) Include(now Now, location string, out *Events) error {
	return t.exclude(now, location, false, "included again", out)
}

func (t *Track) exclude(now Now, location string, yes bool, text string, out *Events) error {
	l, err := t.find(location)
	if err != nil {
		return err
	}
	if l.excluded != yes {
		t.clock, l.excluded = t.clockAt(now), yes
		if yes {
			l.gate, l.promoted = gate{}, 0
		}
		t.emit(now, out, protocol.TrackEvent{Kind: protocol.TrackEventAdmin, Location: l.name, Text: text})
		t.updateStates(now, out)
	}
	return nil
}
