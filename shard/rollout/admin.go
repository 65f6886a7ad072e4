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
		*at = mode
		c := t.change(now, out)
		c.emit(protocol.TrackEvent{Kind: protocol.TrackEventAdmin, Location: location, Text: text})
		c.updateStates()
	}
	return nil
}

// Promote lets a location take the newest version of its predecessor without waiting for delay,
// bake time and gates, once; and gives a share's version to all. All leaders must have the present
// target first. Errors: UNKNOWN_LOCATION, PRECONDITION_FAILED if nothing newer waits.
func (t *Track) Promote(now Now, location string, out *Events) error {
	l, err := t.find(location)
	if err != nil {
		return err
	}
	v := t.promotable(l, t.clockAt(now))
	if v == 0 {
		return nothingToPromote(l)
	}
	if l.promoted == v {
		return nil
	}
	l.promoted = v
	c := t.change(now, out)
	c.emit(protocol.TrackEvent{Kind: protocol.TrackEventAdmin, Location: l.name, Version: v,
		Text: "promoted past delay and gates"})
	c.updateStates()
	return nil
}

// Rollback sets locations back to an earlier version of each one's history, at once. Versions above
// it in those histories are never passed on, and none up to the present target is chosen again.
// Locations that are not named stay as they are. All named are set back, or none. Errors:
// UNKNOWN_LOCATION, PRECONDITION_FAILED, BAD_REQUEST.
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
		if r == nil || r.skip || r.payload && !t.published.has(version) {
			return notInHistory(l, r, version)
		}
		if version >= l.target {
			return notBelowTarget(l, version)
		}
		list = append(list, l)
	}
	c := t.change(now, out)
	for _, l := range list {
		l.floor = max(l.floor, l.target)
		for i := range l.history {
			if r := &l.history[i]; r.version > version && !r.skip {
				r.skip = true
				c.emit(protocol.TrackEvent{Kind: protocol.TrackEventSkip, Location: l.name,
					Version: r.version, Text: "rolled back from"})
			}
		}
		c.set(l, version, protocol.ReasonRollback,
			"rolled back by an operator from "+strconv.FormatUint(l.target, 10))
	}
	c.updateStates()
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
		return noTarget(l)
	}
	if l.reelectRequested {
		return nil
	}
	l.reelectRequested = true
	c := t.change(now, out)
	c.emit(protocol.TrackEvent{Kind: protocol.TrackEventAdmin, Location: l.name, Version: l.target,
		Text: "re-election asked for"})
	c.updateStates()
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
		l.excluded = yes
		c := t.change(now, out)
		if yes {
			l.gate, l.promoted = gate{}, 0
		}
		c.emit(protocol.TrackEvent{Kind: protocol.TrackEventAdmin, Location: l.name, Text: text})
		c.updateStates()
	}
	return nil
}

// Drop removes an instance at an operator's wish; its later calls get NOT_FOUND.
func (t *Track) Drop(now Now, id string, out *Events) error {
	p := t.instances.byID[id]
	if p == nil {
		return unknownInstance(id)
	}
	c := t.change(now, out)
	c.remove(p, "dropped by an operator")
	c.updateStates()
	return nil
}
