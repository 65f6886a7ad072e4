package rollout

import "slices"

// Status is a track as `rollout status` shows it.
type Status struct {
	Revision    uint64
	Clock       uint64
	Last        uint64
	Paused      bool
	SourceError string
	Instances   int
	Locations   []LocationStatus // the order, then those removed
}

// LocationStatus is a line of the table.
type LocationStatus struct {
	Name         string
	State        State
	Until        uint64 // log time at which it may go on by time alone, 0 unknown
	Target       uint64
	Stable       uint64 // what instances outside the share have; 0: all get the target
	Since        uint64 // log time of the target
	Generation   uint64
	Reason       Reason
	Members      int
	Leaders      int
	Counted      int // leaders that must have the target
	Reached      int // of them
	BlockedBy    []string
	BlockedSince uint64 // 0 not
	Paused       bool
	Excluded     bool
	Rollback     bool
	Gate         string // under way or waiting, before version GateVersion
	GateVersion  uint64
}

// Row of a location's history.
type Row struct {
	Version, At, Wall, Converged uint64
	Reason                       Reason
	Skip                         bool
}

// InstanceStatus is what is known of an instance.
type InstanceStatus struct {
	ID, Location, Meta  string
	Session             uint64
	Incarnation         uint64
	Role                Role
	Demoted             bool
	InShare             bool
	Due, Sent, SentAt   uint64
	Registered          uint64
	Report              Report
	ReportAt            uint64
	Reached, HoldsUp    bool
	SaysBad, CannotLoad bool // it asks for a re-election: explicitly, or by failing over and over
}

// Describe tells how the track stands at a time.
func (t *Track) Describe(now Now) Status {
	clock := t.clockAt(now)
	s := Status{
		Revision: t.revision, Clock: clock, Last: t.last, Paused: t.paused != running, SourceError: t.sourceError, Instances: len(t.instances),
	}
	for _, l := range t.locations {
		x := LocationStatus{
			Name: l.name, Target: l.target, Stable: l.stable, Since: l.since, Generation: l.generation, Members: len(l.members), Leaders: l.leaders,
			Counted: l.counted, Reached: l.counted - l.unreached, BlockedBy: l.blockedBy(), BlockedSince: l.blockedSince, Paused: l.paused != running,
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
func (t *Track) History(location string) ([]Row, error) {
	for _, l := range t.locations {
		if l.name == location {
			list := make([]Row, len(l.history))
			for i, r := range l.history {
				list[i] = Row{Version: r.version, At: r.at, Wall: r.wall, Converged: r.converged, Reason: r.reason, Skip: r.skip}
			}
			return list, nil
		}
	}
	return nil, ErrUnknownLocation
}

// Instance tells about one.
func (t *Track) Instance(id string) (InstanceStatus, error) {
	p := t.instances[id]
	if p == nil {
		return InstanceStatus{}, ErrUnknownInstance
	}
	return InstanceStatus{
		ID: p.id, Location: p.loc.name, Meta: p.meta, Session: p.session, Incarnation: p.incarnation, Role: p.role, Demoted: p.demoted, InShare: p.inShare,
		Due: p.assigned(), Sent: p.sent, SentAt: p.sentAt, Registered: p.registered, Report: p.report, ReportAt: p.reportAt,
		Reached: p.loc.target != 0 && p.reached(p.loc), HoldsUp: p.contribution.unreached, SaysBad: p.contribution.explicit, CannotLoad: p.contribution.suspect != 0,
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

// Summary is a track as a list shows it.
type Summary struct {
	Last      uint64
	Locations int // of the order
	Instances int
	Paused    bool
}

// Summary tells it.
func (t *Track) Summary() Summary {
	return Summary{Last: t.last, Locations: len(t.ordered()), Instances: len(t.instances), Paused: t.paused != running}
}
