package rollout

import (
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// maxBlockers is how many of the instances that hold a location up a status names.
const maxBlockers = 10

// Describe is the track at a time, without its config and its instances.
func (t *Track) Describe(now Now) protocol.TrackStatus {
	clock := t.clockAt(now)
	s := protocol.TrackStatus{
		ConfigRevision: t.revision, Clock: clock, Last: t.last, Paused: t.paused != running, SourceError: t.sourceError,
		NumInstances: uint64(len(t.instances)), Gates: t.PendingGates(),
	}
	for _, l := range t.locations {
		blockers := l.blockedBy()
		x := protocol.TrackLocationStatus{
			Name: l.name, Target: l.target, Stable: l.stable, Since: l.since, Generation: l.generation, Members: uint64(len(l.members)),
			Leaders: uint64(l.leaders), Counted: uint64(l.counted), Reached: uint64(l.counted - l.unreached),
			BlockedBy: blockers[:min(maxBlockers, len(blockers))], BlockedSince: l.blockedSince, Paused: l.paused != running,
			Excluded: l.excluded, Rollback: l.rollback, GateVersion: l.gate.version,
		}
		x.State, x.Until = t.state(l, clock)
		if r := l.row(l.target); r != nil {
			x.Reason = r.reason
		}
		if l.gate.version != 0 && l.gate.state != gatePassed {
			x.Gate = t.locationConfig(l).Gates[l.gate.index].Name
		}
		s.Locations = append(s.Locations, x)
	}
	return s
}

// History of a location, oldest first.
func (t *Track) History(location string) ([]protocol.TrackHistoryRow, error) {
	for _, l := range t.locations {
		if l.name == location {
			list := make([]protocol.TrackHistoryRow, len(l.history))
			for i, r := range l.history {
				list[i] = protocol.TrackHistoryRow{Version: r.version, At: r.at, Wall: r.wall,
					Converged: r.converged, Reason: r.reason, Skip: r.skip}
			}
			return list, nil
		}
	}
	return nil, ErrUnknownLocation
}

// Instance is the status of one.
func (t *Track) Instance(id string) (protocol.TrackInstanceStatus, error) {
	p := t.instances[id]
	if p == nil {
		return protocol.TrackInstanceStatus{}, ErrUnknownInstance
	}
	return protocol.TrackInstanceStatus{
		ID: p.id, Location: p.loc.name, Meta: p.meta, Session: p.session, Incarnation: p.incarnation,
		Role: p.role, Demoted: p.demoted, InShare: p.inShare,
		Due: p.assigned(), Sent: p.sent, SentAt: p.sentAt, Registered: p.registered, Report: p.report, ReportAt: p.reportAt,
		Reached: p.loc.target != 0 && p.reached(p.loc), HoldsUp: p.contribution.unreached,
		SaysBad: p.contribution.explicit, CannotLoad: p.contribution.suspect != 0,
	}, nil
}

// InstancesAfter lists at most so many ids above one, in order: a page. An empty one begins.
func (t *Track) InstancesAfter(id string, most int) (list []string) {
	for have := range t.instances {
		if have > id {
			list = append(list, have)
		}
	}
	slices.Sort(list)
	return list[:min(most, len(list))]
}

// Summary is the track at a time, as a list shows it, without its name.
func (t *Track) Summary(now Now) protocol.TrackItem {
	clock, ordered := t.clockAt(now), t.ordered()
	x := protocol.TrackItem{
		Last: t.last, NumLocations: uint64(len(ordered)), NumInstances: uint64(len(t.instances)),
		Paused: t.paused != running, States: make([]byte, len(ordered)),
	}
	for i, l := range ordered {
		s, _ := t.state(l, clock)
		x.States[i] = byte(s)
	}
	return x
}
