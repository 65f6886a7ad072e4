package rollout

import (
	"cmp"
	"strconv"

	"github.com/signalbox-dev/signalbox/protocol"
)

// decision is the effect of a poll of a location beyond the caller's own record. The zero value is
// no effect.
type decision struct {
	version     uint64 // the new target; anyVersion: to be generated
	gate        uint64 // its gates begin for this version; anyVersion: to be generated
	reason      protocol.TrackReason
	askSource   bool // ask the external generator for the version
	skip        bool // the target's row is never to be passed on
	converge    bool // all leaders have the target
	newShare    bool // nobody of the share is left: choose another
	shareLoaded bool // all of the share have the target
	widen       bool // the others get it
}

// decide looks at a location as a poll does: leader says that the caller counts as one. It changes
// nothing, so that Peek and Poll cannot differ.
func (pl *plan) decide(l *location, leader bool, clock uint64) (d decision) {
	if l.pos < 0 || l.excluded {
		return d
	}
	paused := max(pl.paused, l.paused)
	if l.target == 0 {
		if paused == running {
			pl.choose(l, protocol.ReasonInitial, clock, &d)
		}
		return d
	}
	if reason := pl.reelectionReason(l, clock); reason != 0 &&
		(paused == running || paused == pausedSoft && reason != protocol.ReasonImplicit) {
		d.skip = reason != protocol.ReasonImplicit && !l.row(l.target).skip
		if clock >= pl.reelectFrom(l) {
			pl.choose(l, reason, clock, &d)
		}
		return d
	}
	if !leader || l.unreached > 0 {
		return d
	}
	if l.shareOnly {
		switch {
		case paused != running: // nobody else gets the version, also when the share is gone
		case l.counted == 0:
			d.newShare = true
		default:
			d.shareLoaded = l.sharedAt == 0
			d.widen = clock >= cmp.Or(l.sharedAt, clock)+pl.locationConfig(l).ShareBake || l.promoted > 0
		}
		return d
	}
	d.converge = l.row(l.target).converged == 0
	if paused == running {
		pl.choose(l, protocol.ReasonAdvance, clock, &d)
	}
	return d
}

// reelectionReason returns why the target must be replaced, or 0.
func (pl *plan) reelectionReason(l *location, clock uint64) protocol.TrackReason {
	switch s := l.suspected(); {
	case l.target == 0:
		return 0
	case l.reelectRequested:
		return protocol.ReasonOperator
	case l.explicit > 0 || l.row(l.target).skip: // also when the instance that reported it has gone
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

// reelectFrom returns when the next re-election may be.
func (pl *plan) reelectFrom(l *location) uint64 {
	if l.reelectAt == 0 {
		return 0
	}
	return l.reelectAt + pl.config.ReelectMinInterval
}

func (pl *plan) choose(l *location, reason protocol.TrackReason, clock uint64, d *decision) {
	v, _ := pl.candidate(l, reason, clock)
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
	case v == anyVersion && pl.config.Source == protocol.SourceExternal:
		d.askSource = true
	case len(pl.locationConfig(l).Gates) > 0:
		d.gate = v
	default:
		d.version = v
	}
}

// reasonText is the reason for the audit, before the target is set.
func (pl *plan) reasonText(l *location, reason protocol.TrackReason, clock uint64) string {
	from := "from the source"
	if p := pl.predecessor(l, clock); p != nil {
		from = "from " + p.name + ", " + strconv.FormatUint(pl.locationConfig(l).Delay, 10) + " ms behind"
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
