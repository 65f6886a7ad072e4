package rollout

import (
	"strconv"

	"github.com/signalbox-dev/signalbox/protocol"
)

// decision is what a poll of a location makes happen beyond the caller's own record. The zero value
// is nothing.
type decision struct {
	version     uint64 // the new target; anyVersion: to be generated
	gate        uint64 // its gates begin for this version; anyVersion: to be generated
	reason      protocol.TrackReason
	askSource   bool // the external generator is to be asked for the version
	skip        bool // the target's row is never to be passed on
	converge    bool // all leaders have the target
	newShare    bool // nobody of the share is left: choose another
	shareLoaded bool // all of the share have the target
	widen       bool // the others get it
}

// decide looks at a location as a poll does: leader says that the caller counts as one. It changes
// nothing, so that Peek and Poll cannot differ.
func (t *Track) decide(l *location, leader bool, clock uint64) (d decision) {
	if l.pos < 0 || l.excluded {
		return d
	}
	paused := max(t.paused, l.paused)
	if l.target == 0 {
		if paused == running {
			t.choose(l, protocol.ReasonInitial, clock, &d)
		}
		return d
	}
	if reason := t.reelectionReason(l, clock); reason != 0 && (paused == running || paused == pausedSoft && reason != protocol.ReasonImplicit) {
		d.skip = reason != protocol.ReasonImplicit && !l.row(l.target).skip
		if clock >= t.reelectFrom(l) {
			t.choose(l, reason, clock, &d)
		}
		return d
	}
	if !leader || l.unreached > 0 {
		return d
	}
	if l.shareOnly {
		switch {
		case l.counted == 0:
			d.newShare = true
		case paused != running:
		default:
			d.shareLoaded = l.sharedAt == 0
			d.widen = clock >= orDefault(l.sharedAt, clock)+t.locationConfig(l).ShareBake || l.promoted > 0
		}
		return d
	}
	d.converge = l.row(l.target).converged == 0
	if paused == running {
		t.choose(l, protocol.ReasonAdvance, clock, &d)
	}
	return d
}

// reelectionReason says that the target must be replaced, and why; 0 not.
func (t *Track) reelectionReason(l *location, clock uint64) protocol.TrackReason {
	switch s := l.suspected(); {
	case l.target == 0:
		return 0
	case l.reelectRequested:
		return protocol.ReasonOperator
	case l.explicit > 0:
		return protocol.ReasonExplicit
	case s.n > 0 && clock >= s.at:
		return protocol.ReasonImplicit
	}
	return 0
}

// suspected: leaders that cannot get the target, or anybody where there is no leader.
func (l *location) suspected() *suspects {
	if l.leaders > 0 {
		return &l.suspects[0]
	}
	return &l.suspects[1]
}

// reelectFrom is when the next re-election may be.
func (t *Track) reelectFrom(l *location) uint64 {
	if l.reelectAt == 0 {
		return 0
	}
	return l.reelectAt + t.config.ReelectMinInterval
}

func (t *Track) choose(l *location, reason protocol.TrackReason, clock uint64, d *decision) {
	v, _ := t.candidate(l, reason, clock)
	if v == 0 {
		return
	}
	d.reason = reason
	switch {
	case v == l.promoted:
		d.version = v
		if reason == protocol.ReasonAdvance {
			d.reason = protocol.ReasonPromote
		}
	case v == l.gate.version:
		d.version = v
	case v == anyVersion && t.config.Source == protocol.SourceExternal:
		d.askSource = true
	case len(t.locationConfig(l).Gates) > 0:
		d.gate = v
	default:
		d.version = v
	}
}

// apply does what was decided, at t.clock. The external generator's version, if one was wanted, is
// in d.version.
func (t *Track) apply(l *location, d decision, now Now, out *Events) {
	if d.askSource && d.version != 0 && len(t.locationConfig(l).Gates) > 0 {
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
		t.emit(now, out, protocol.TrackEvent{Kind: protocol.TrackEventSkip, Location: l.name, Version: l.target,
			Generation: l.generation, Text: text})
	}
	if d.converge {
		l.row(l.target).converged = t.clock
		if l.rollback {
			l.rollback = false
			t.recount(l)
		}
		t.emit(now, out, protocol.TrackEvent{
			Kind: protocol.TrackEventConverged, Location: l.name, Version: l.target, Generation: l.generation,
			Text: "all " + strconv.Itoa(l.leaders) + " leaders have it",
		})
	}
	if d.newShare {
		t.pickShare(l)
		t.recount(l)
		t.emit(now, out, protocol.TrackEvent{Kind: protocol.TrackEventTarget, Share: true, Location: l.name,
			Version: l.target, From: l.stable, Generation: l.generation,
			Reason: l.row(l.target).reason, Text: "the share's instances are gone: others take their place"})
	}
	if d.shareLoaded {
		l.sharedAt = t.clock
	}
	if d.widen {
		l.shareOnly, l.stable, l.sharedAt, l.blockedSince, l.promoted = false, 0, 0, 0, 0
		t.recount(l)
		t.emit(now, out, protocol.TrackEvent{
			Kind: protocol.TrackEventWiden, Location: l.name, Version: l.target, Generation: l.generation,
			Text: "the share has it: now all are to load it",
		})
	}
	if d.gate != 0 {
		v := d.gate
		if v == anyVersion {
			v = t.generate(now)
			t.last = v
		}
		l.gate = gate{version: v}
		t.runGate(now, l, out)
	}
	if v := d.version; v != 0 {
		if v == anyVersion {
			v = t.generate(now)
		}
		t.set(l, v, d.reason, now, out, t.reasonText(l, d.reason))
	}
}

// reasonText is the reason for the audit, before the target is set.
func (t *Track) reasonText(l *location, reason protocol.TrackReason) string {
	from := "from the source"
	if p := t.predecessor(l, t.clock); p != nil {
		from = "from " + p.name + ", " + strconv.FormatUint(t.locationConfig(l).Delay, 10) + " ms behind"
	}
	switch reason {
	case protocol.ReasonInitial:
		return "the first target, " + from
	case protocol.ReasonExplicit:
		return "an instance reported that the version is bad for everyone; the next one is " + from
	case protocol.ReasonImplicit:
		return "an instance could not get the version from the source for too long; the next one is " + from
	case protocol.ReasonOperator:
		return "an operator gave the version up; the next one is " + from
	case protocol.ReasonPromote:
		return "promoted by an operator past delay and gates"
	}
	return "all " + strconv.Itoa(l.leaders) + " leaders have the version; the next one is " + from
}
