package rollout

import (
	"slices"
	"strconv"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Operate carries an operator's command out. Errors: those of its verb. One that names locations is
// checked for all of them, and then carried out: a refusal changes none.
func (t *Track) Operate(now Now, x *protocol.TrackAdmin, out *Events) error {
	switch x.Verb {
	case protocol.TrackPause:
		return t.Pause(now, x.Locations, x.Hard, out)
	case protocol.TrackResume:
		return t.Resume(now, x.Locations, out)
	case protocol.TrackPromote:
		return t.Promote(now, x.Locations, out)
	case protocol.TrackRollback:
		return t.Rollback(now, x.Locations, x.Version, out)
	case protocol.TrackReelect:
		return t.Reelect(now, x.Locations, out)
	case protocol.TrackExclude:
		return t.Exclude(now, x.Locations, out)
	case protocol.TrackInclude:
		return t.Include(now, x.Locations, out)
	case protocol.TrackEvict:
		return t.Evict(now, x.ID, out)
	}
	return nil
}

// Pause keeps the targets of locations, or of all if none is named, as they are. A version that is
// reported bad is re-elected all the same, unless hard is set: otherwise a pause in which a version
// expires is an outage.
func (t *Track) Pause(now Now, locations []string, hard bool, out *Events) error {
	mode, text := pausedSoft, "paused; a version reported bad is still replaced"
	if hard {
		mode, text = pausedHard, "paused, re-elections too"
	}
	return t.pause(now, locations, mode, text, out)
}

// Resume ends a pause of locations, or of the track if none is named; each has its own.
func (t *Track) Resume(now Now, locations []string, out *Events) error {
	return t.pause(now, locations, running, "resumed", out)
}

func (t *Track) pause(now Now, locations []string, mode pauseMode, text string, out *Events) error {
	list, err := t.named(locations)
	if err != nil {
		return err
	}
	var changes []protocol.TrackEvent
	set := func(at *pauseMode, location string) {
		if *at != mode {
			*at = mode
			changes = append(changes, protocol.TrackEvent{Location: location, Text: text})
		}
	}
	if len(list) == 0 {
		set(&t.paused, "")
	}
	for _, l := range list {
		set(&l.paused, l.name)
	}
	t.operated(now, changes, out)
	return nil
}

// named finds the locations of a command.
func (t *Track) named(locations []string) ([]*location, error) {
	list := make([]*location, len(locations))
	for i, name := range locations {
		l, err := t.find(name)
		if err != nil {
			return nil, err
		}
		list[i] = l
	}
	return list, nil
}

// operated emits the changes of a command, if any, and their consequences.
func (t *Track) operated(now Now, changes []protocol.TrackEvent, out *Events) {
	if len(changes) == 0 {
		return
	}
	c := t.change(now, out)
	for _, e := range changes {
		e.Kind = protocol.TrackEventAdmin
		c.emit(e)
	}
	c.updateStates()
}

// Promote lets locations take the newest version of their predecessor without waiting for delay,
// bake time and gates, once; and gives a share's version to all. All leaders must have the present
// target first. Errors: UNKNOWN_LOCATION, PRECONDITION_FAILED if nothing newer waits.
func (t *Track) Promote(now Now, locations []string, out *Events) error {
	list, err := t.named(locations)
	if err != nil {
		return err
	}
	versions := make([]uint64, len(list))
	for i, l := range list {
		if versions[i] = t.promotable(l, t.clockAt(now)); versions[i] == 0 {
			return nothingToPromote(l)
		}
	}
	var changes []protocol.TrackEvent
	for i, l := range list {
		if v := versions[i]; l.promoted != v {
			l.promoted = v
			changes = append(changes, protocol.TrackEvent{Location: l.name, Version: v, Text: "promoted past delay and gates"})
		}
	}
	t.operated(now, changes, out)
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
	list, err := t.named(locations)
	if err != nil {
		return err
	}
	for i, l := range list {
		if slices.Contains(list[:i], l) {
			return badRequest("rollback: location " + l.name + " is named twice")
		}
		r := l.row(version)
		if r == nil || r.skip || r.payload && !t.published.has(version) {
			_, kept := t.published.indexOf(version)
			return notInHistory(l, r, version, kept)
		}
		if version >= l.target {
			return notBelowTarget(l, version)
		}
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

// Reelect gives the targets of locations up: they are never passed on, and the next poll replaces
// each if there is a newer one. Errors: UNKNOWN_LOCATION, PRECONDITION_FAILED without a target.
func (t *Track) Reelect(now Now, locations []string, out *Events) error {
	list, err := t.named(locations)
	if err != nil {
		return err
	}
	for _, l := range list {
		if l.target == 0 {
			return noTarget(l)
		}
	}
	var changes []protocol.TrackEvent
	for _, l := range list {
		if !l.reelectRequested {
			l.reelectRequested = true
			changes = append(changes, protocol.TrackEvent{Location: l.name, Version: l.target, Text: "re-election asked for"})
		}
	}
	t.operated(now, changes, out)
	return nil
}

// Exclude takes locations out: the successor of each takes versions from its predecessor, and its
// own instances keep their version. Include takes it back in.
func (t *Track) Exclude(now Now, locations []string, out *Events) error {
	return t.exclude(now, locations, true, "excluded: its successor looks past it", out)
}

// Include undoes Exclude.
func (t *Track) Include(now Now, locations []string, out *Events) error {
	return t.exclude(now, locations, false, "included again", out)
}

func (t *Track) exclude(now Now, locations []string, yes bool, text string, out *Events) error {
	list, err := t.named(locations)
	if err != nil {
		return err
	}
	var changes []protocol.TrackEvent
	for _, l := range list {
		if l.excluded == yes {
			continue
		}
		if l.excluded = yes; yes {
			l.gate.giveUp()
			l.promoted = 0
		}
		changes = append(changes, protocol.TrackEvent{Location: l.name, Text: text})
	}
	t.operated(now, changes, out)
	return nil
}

// Evict removes an instance at an operator's wish; its later calls get NOT_FOUND.
func (t *Track) Evict(now Now, id string, out *Events) error {
	p := t.instances.byID[id]
	if p == nil {
		return unknownInstance(id)
	}
	c := t.change(now, out)
	c.remove(p, "dropped by an operator")
	c.updateStates()
	return nil
}
