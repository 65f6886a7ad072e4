package rollout

import (
	"slices"
	"strconv"

	"github.com/signalbox-dev/signalbox/protocol"
)

// state of a location at a time, and the next time at which it may be another without any call, 0
// never.
func (t *Track) state(l *location, clock uint64) (protocol.TrackState, uint64) {
	s, until := t.currentState(l, clock)
	if x := l.suspected(); x.n > 0 && x.at > clock && (until <= clock || x.at < until) {
		until = x.at
	}
	if until <= clock {
		until = 0
	}
	return s, until
}

func (t *Track) currentState(l *location, clock uint64) (protocol.TrackState, uint64) {
	paused := max(t.paused, l.paused)
	reason := t.reelectionReason(l, clock)
	again := reason != 0 && (paused == running || paused == pausedSoft && reason != protocol.ReasonImplicit)
	switch {
	case l.pos < 0:
		return protocol.StateRemoved, 0
	case l.excluded:
		return protocol.StateExcluded, 0
	case len(l.members) == 0:
		if t.skipped(l, clock) {
			return protocol.StateSkipped, 0
		}
		if t.config.SkipEmptyAfter > 0 {
			return protocol.StateEmpty, l.emptySince + t.config.SkipEmptyAfter
		}
		return protocol.StateEmpty, 0
	case paused != running && !again:
		return protocol.StatePaused, 0
	case l.target == 0:
		return t.waitingState(l, protocol.ReasonInitial, clock, protocol.StateUnset, protocol.StateUnset)
	case again:
		if !l.row(l.target).skip && reason != protocol.ReasonImplicit {
			return protocol.StateReady, 0
		}
		if from := t.reelectFrom(l); clock < from {
			return protocol.StateReelectionPending, from
		}
		return t.waitingState(l, reason, clock, protocol.StateReelectionPending, protocol.StateReelectionPending)
	case l.leaders == 0:
		return protocol.StateNoLeader, 0
	case l.unreached > 0:
		return t.convergingState(l, clock)
	case l.shareOnly:
		if l.counted == 0 || l.sharedAt == 0 || l.promoted > 0 || clock >= l.sharedAt+t.locationConfig(l).ShareBake {
			return protocol.StateReady, 0
		}
		return protocol.StateWaitingShare, l.sharedAt + t.locationConfig(l).ShareBake
	case l.row(l.target).converged == 0:
		return protocol.StateReady, 0
	}
	return t.waitingState(l, protocol.ReasonAdvance, clock, protocol.StateConverged, protocol.StateWaitingDelay)
}

// waitingState is what a location that could choose waits for: nothing there, or time.
func (t *Track) waitingState(
	l *location, reason protocol.TrackReason, clock uint64, nothing, time protocol.TrackState,
) (protocol.TrackState, uint64) {
	v, at := t.candidate(l, reason, clock)
	switch {
	case v != 0:
		return protocol.StateReady, 0
	case l.gate.version > max(l.target, l.floor):
		return protocol.StateWaitingGate, t.gateDeadline(l)
	case at > clock:
		return time, at
	}
	return nothing, 0
}

func (t *Track) convergingState(l *location, clock uint64) (protocol.TrackState, uint64) {
	at := l.blockedSince + t.config.StallTimeout
	if l.blockedSince == 0 || clock < at {
		return protocol.StateConverging, at
	}
	if !t.config.AutoDemote {
		return protocol.StateStalled, 0
	}
	until := uint64(0)
	for _, p := range l.members {
		if p.contribution.unreached && !p.reportsError() {
			if at := t.demoteAt(p); at > clock && (until == 0 || at < until) {
				until = at
			}
		}
	}
	return protocol.StateStalled, until
}

// reportsError: it says that it cannot load the target. Such a leader does not hang.
func (p *instance) reportsError() bool {
	return p.report.Target == p.loc.target && p.reportGen == p.loc.generation && p.report.Code != CodeNone && p.report.Code != CodeOK
}

func (t *Track) demoteAt(p *instance) uint64 {
	return max(p.loc.blockedSince, p.roleAt) + t.config.StallTimeout
}

// updateStates ends every call that changed something: it emits the state that each location is in
// now.
func (t *Track) updateStates(now Now, out *Events) {
	t.dropGates(now, out)
	for _, l := range t.locations {
		if l.unreached == 0 {
			l.blockedSince = 0
		} else if l.blockedSince == 0 {
			l.blockedSince = t.clock
		}
		s, until := t.state(l, t.clock)
		if s == protocol.StateStalled && t.config.AutoDemote && t.demote(now, l, out) {
			if l.unreached == 0 {
				l.blockedSince = 0
			}
			s, until = t.state(l, t.clock)
		}
		if s == l.announced {
			continue
		}
		l.announced = s
		t.emit(now, out, protocol.TrackEvent{
			Kind: protocol.TrackEventState, Location: l.name, State: s, Until: until, Version: l.target, Generation: l.generation,
			Text: strconv.Itoa(l.counted-l.unreached) + " of " + strconv.Itoa(l.counted) + " leaders have it",
		})
		switch s {
		case protocol.StateStalled:
			t.emit(now, out, protocol.TrackEvent{Kind: protocol.TrackEventAlert, Location: l.name, State: s,
				Version: l.target, Text: "leaders do not load the target: " + l.blockers(10)})
		case protocol.StateEmpty:
			t.emit(now, out, protocol.TrackEvent{Kind: protocol.TrackEventAlert, Location: l.name, State: s,
				Version: l.target, Text: "no instance is left; later locations stand still"})
		}
	}
}

// demote makes leaders that hang count as followers.
func (t *Track) demote(now Now, l *location, out *Events) bool {
	var list []*instance
	for _, p := range l.members {
		if p.contribution.unreached && !p.reportsError() && t.clock >= t.demoteAt(p) {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, byID)
	for _, p := range list {
		p.demoted = true
		t.updateCounts(p)
		t.emit(now, out, protocol.TrackEvent{Kind: protocol.TrackEventRole, Location: l.name, Instance: p.id,
			Text: "stalls, and counts as a follower"})
	}
	return len(list) > 0
}

// blockers names the instances that l waits for, at most so many, in order.
func (l *location) blockers(most int) string {
	list := l.blockedBy()
	text := ""
	for i, id := range list {
		if i == most {
			return text + " and " + strconv.Itoa(len(list)-most) + " more"
		}
		if i > 0 {
			text += ", "
		}
		text += id
	}
	return text
}

func (l *location) blockedBy() (list []string) {
	for _, p := range l.members {
		if p.contribution.unreached {
			list = append(list, p.id)
		}
	}
	slices.Sort(list)
	return list
}

// Tick lets time alone act: states change, gates run out, hanging leaders are demoted. It never
// sets a target. It may be called at any time.
func (t *Track) Tick(now Now, out *Events) {
	at, ok := t.Next()
	if clock := t.clockAt(now); ok && clock >= at {
		t.clock = clock
		for _, l := range t.ordered() {
			t.tickGate(now, l, out)
		}
		t.updateStates(now, out)
	}
}

// Next is the log time from which on Tick has something to do. False: nothing, while no call comes.
func (t *Track) Next() (at uint64, ok bool) {
	for _, l := range t.locations {
		_, until := t.state(l, t.clock)
		for _, x := range [2]uint64{until, t.gateDeadline(l)} {
			if x != 0 && (at == 0 || x < at) {
				at = x
			}
		}
	}
	return at, at != 0
}
