package rollout

import (
	"strconv"

	"github.com/signalbox-dev/signalbox/protocol"
)

// apply carries out a decision, at c.clock. The external generator's version, if one was wanted, is
// in d.version.
func (c change) apply(l *location, d decision) {
	if d.askSource && d.version != 0 && len(c.locationConfig(l).Gates) > 0 {
		d.version, d.gate = 0, d.version
	}
	if d.skip {
		for i := range l.history { // also where it was the target before a rollback to it
			r := &l.history[i]
			r.skip = r.skip || r.version == l.target
		}
		text := "an instance reported that the version is bad for everyone"
		if l.reelectRequested {
			text = "an operator gave the version up"
		}
		c.emit(protocol.TrackEvent{Kind: protocol.TrackEventSkip, Location: l.name, Version: l.target,
			Generation: l.generation, Text: text})
	}
	if d.converge {
		l.row(l.target).converged = c.clock
		if l.rollback {
			l.rollback = false
			l.recount(&c.plan)
		}
		c.emit(protocol.TrackEvent{
			Kind: protocol.TrackEventConverged, Location: l.name, Version: l.target, Generation: l.generation,
			Text: "all " + strconv.Itoa(l.leaders) + " leaders have it",
		})
	}
	if d.newShare {
		l.pickShare(c.locationConfig(l).Share)
		l.sharedAt = 0 // they bake for as long as the others should have
		l.recount(&c.plan)
		c.emit(protocol.TrackEvent{Kind: protocol.TrackEventTarget, Share: true, Location: l.name,
			Version: l.target, From: l.stable, Generation: l.generation,
			Reason: l.row(l.target).reason, Text: "the share's instances are gone: others take their place"})
	}
	if d.shareLoaded {
		l.sharedAt = c.clock
	}
	if d.widen {
		l.shareOnly, l.stable, l.sharedAt, l.blockedSince, l.promoted = false, 0, 0, 0, 0
		l.recount(&c.plan)
		c.emit(protocol.TrackEvent{
			Kind: protocol.TrackEventWiden, Location: l.name, Version: l.target, Generation: l.generation,
			Text: "the share has it: now all are to load it",
		})
	}
	if d.gate != 0 {
		v := d.gate
		if v == anyVersion {
			v = c.generate()
			c.raiseLast(v)
		}
		l.gate.giveUp()
		l.gate.version = v
		c.runGate(l)
	}
	if v := d.version; v != 0 {
		if v == anyVersion {
			v = c.generate()
		}
		c.set(l, v, d.reason, c.reasonText(l, d.reason, c.clock))
	}
}

// set gives l a target.
func (c change) set(l *location, version uint64, reason protocol.TrackReason, text string) {
	from := l.target
	conf := c.locationConfig(l)
	l.target, l.since = version, c.clock
	l.generation++
	l.history = append(l.history,
		row{version: version, at: c.clock, wall: c.now.Wall, reason: reason, payload: c.published.has(version)})
	if l.gate.version > version { // it may be gated again
		l.gate.giveUp()
	}
	l.gate.end()
	l.promoted, l.reelectRequested, l.sharedAt, l.blockedSince, l.rollback =
		0, false, 0, 0, reason == protocol.ReasonRollback
	if isReelection(reason) {
		l.reelectAt = c.clock
	}
	c.raiseLast(version)
	wasPartial := l.shareOnly
	l.shareOnly = conf.Share > 0 && conf.Share < 100 && from != 0 &&
		reason != protocol.ReasonRollback && l.leaders > 1
	switch {
	case !l.shareOnly:
		l.stable = 0
	case !wasPartial:
		l.stable = from
		l.pickShare(c.locationConfig(l).Share)
	}
	l.recount(&c.plan)
	l.collect(&c.config, c.heldVersions(l), c.clock)
	c.emit(protocol.TrackEvent{
		Kind: protocol.TrackEventTarget, Reason: reason, Share: l.shareOnly, Location: l.name, Version: version,
		From: from, Generation: l.generation, Text: text,
	})
}

// generate is the timestamp oracle: wall time in ms << 18, strictly increasing.
func (c change) generate() uint64 {
	wall := min(c.now.Wall, protocol.MaxTrackVersion>>tsoLogicalBits)
	return min(max(c.last+1, wall<<tsoLogicalBits), protocol.MaxTrackVersion)
}
