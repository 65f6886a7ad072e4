package rollout

import (
	"slices"
	"strconv"
	"strings"

	"github.com/signalbox-dev/signalbox/protocol"
)

// state of a location at a time, and the next time at which it may be another without any call, 0
// never.
func (pl *plan) state(l *location, clock uint64) (protocol.TrackState, uint64) {
	s, until := pl.currentState(l, clock)
	if x := l.suspected(); x.n > 0 && x.at > clock && (until <= clock || x.at < until) {
		until = x.at
	}
	if until <= clock {
		until = 0
	}
	return s, until
}

func (pl *plan) currentState(l *location, clock uint64) (protocol.TrackState, uint64) {
	paused := max(pl.paused, l.paused)
	reason := pl.reelectionReason(l, clock)
	again := reason != 0 && (paused == running || paused == pausedSoft && reason != protocol.ReasonImplicit)
	switch {
	case l.pos < 0:
		return protocol.StateRemoved, 0
	case l.excluded:
		return protocol.StateExcluded, 0
	case len(l.members) == 0:
		if pl.skipped(l, clock) {
			return protocol.StateSkipped, 0
		}
		if pl.config.SkipEmptyAfter > 0 {
			return protocol.StateEmpty, l.emptySince + pl.config.SkipEmptyAfter
		}
		return protocol.StateEmpty, 0
	case paused != running && !again:
		return protocol.StatePaused, 0
	case l.target == 0:
		return pl.waitingState(l, protocol.ReasonInitial, clock, protocol.StateUnset, protocol.StateUnset)
	case again:
		if !l.row(l.target).skip && reason != protocol.ReasonImplicit {
			return protocol.StateReady, 0
		}
		if from := pl.reelectFrom(l); clock < from {
			return protocol.StateReelectionPending, from
		}
		return pl.waitingState(l, reason, clock, protocol.StateReelectionPending, protocol.StateReelectionPending)
	case l.leaders == 0:
		return protocol.StateNoLeader, 0
	case l.unreached > 0:
		return pl.convergingState(l, clock)
	case l.shareOnly:
		if l.counted == 0 || l.sharedAt == 0 || l.promoted > 0 || clock >= l.sharedAt+pl.locationConfig(l).ShareBake {
			return protocol.StateReady, 0
		}
		return protocol.StateWaitingShare, l.sharedAt + pl.locationConfig(l).ShareBake
	case l.row(l.target).converged == 0:
		return protocol.StateReady, 0
	}
	return pl.waitingState(l, protocol.ReasonAdvance, clock, protocol.StateConverged, protocol.StateWaitingDelay)
}

// waitingState returns the state of a location that could choose: it waits for a version or a time.
func (pl *plan) waitingState(
	l *location, reason protocol.TrackReason, clock uint64, nothing, time protocol.TrackState,
) (protocol.TrackState, uint64) {
	v, at := pl.candidate(l, reason, clock)
	switch {
	case v != 0:
		return protocol.StateReady, 0
	case at > clock: // also behind gates that have passed, if the delay was raised
		return time, at
	case l.gate.version > max(l.target, l.floor):
		return protocol.StateWaitingGate, pl.gateDeadline(l)
	}
	return nothing, 0
}

func (pl *plan) convergingState(l *location, clock uint64) (protocol.TrackState, uint64) {
	at := l.blockedSince + pl.config.StallTimeout
	if l.blockedSince == 0 || clock < at {
		return protocol.StateConverging, at
	}
	if !pl.config.AutoDemote {
		return protocol.StateStalled, 0
	}
	until := uint64(0)
	for _, p := range l.members {
		if p.contribution.unreached && !p.reportsError() {
			if at := pl.demoteAt(p); at > clock && (until == 0 || at < until) {
				until = at
			}
		}
	}
	return protocol.StateStalled, until
}

// reportsError: it says that it cannot load the target. Such a leader does not hang.
func (i *instance) reportsError() bool {
	return i.report.Target == i.loc.target && i.reportGen == i.loc.generation &&
		i.report.Code != CodeNone && i.report.Code != CodeOK
}

func (pl *plan) demoteAt(p *instance) uint64 {
	return max(p.loc.blockedSince, p.roleAt) + pl.config.StallTimeout
}

// blockers names the first most instances that l waits for, in order, and counts the others.
func (l *location) blockers(most int) string {
	text := strings.Join(l.blockedBy(most), ", ")
	if l.unreached > most {
		text += " and " + strconv.Itoa(l.unreached-most) + " more"
	}
	return text
}

// blockedBy returns the first most instances that l waits for, in order of their ids.
func (l *location) blockedBy(most int) (list []string) {
	for _, p := range l.members {
		full := len(list) == most
		if !p.contribution.unreached || full && p.id > list[most-1] {
			continue
		}
		i, _ := slices.BinarySearch(list, p.id)
		if full {
			list = list[:most-1]
		}
		list = slices.Insert(list, i, p.id)
	}
	return list
}
