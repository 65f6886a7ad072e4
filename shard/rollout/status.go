package rollout

import (
	"maps"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// maxBlockers is how many of the instances that hold a location up a status names.
const maxBlockers = 10

// Describe is the track at a time, without its config and its instances.
func (t *Track) Describe(now Now) protocol.TrackStatus {
	clock := t.clockAt(now)
	s := protocol.TrackStatus{
		ConfigRevision: t.revision, Clock: clock, Last: t.last, Paused: t.paused != running,
		SourceError:  t.sourceError,
		NumInstances: uint64(len(t.instances.byID)), Gates: t.PendingGates(),
	}
	for _, l := range t.locations {
		x := protocol.TrackLocationStatus{
			Name: l.name, Target: l.target, Stable: l.stable, Since: l.since,
			Generation: l.generation, Members: uint64(len(l.members)),
			Leaders: uint64(l.leaders), Counted: uint64(l.counted), Reached: uint64(l.counted - l.unreached),
			BlockedBy: l.blockedBy(maxBlockers), BlockedSince: l.blockedSince,
			Paused:   l.paused != running,
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
	return nil, unknownLocation(location)
}

// Instance is the status of one.
func (t *Track) Instance(id string) (protocol.TrackInstanceStatus, error) {
	p := t.instances.byID[id]
	if p == nil {
		return protocol.TrackInstanceStatus{}, unknownInstance(id)
	}
	return protocol.TrackInstanceStatus{
		ID: p.id, Location: p.loc.name, Meta: p.meta, Session: p.session, Incarnation: p.incarnation,
		Role: p.role, Demoted: p.demoted, InShare: p.inShare,
		Due: p.assigned(), Sent: p.sent, SentAt: p.sentAt, Registered: p.registered,
		Report: p.report, ReportAt: p.reportAt,
		Reached: p.loc.target != 0 && p.reached(&t.plan), HoldsUp: p.contribution.unreached,
		SaysBad: p.contribution.explicit, CannotLoad: p.contribution.suspect != 0,
	}, nil
}

// InstancesAfter returns a page of ids above id, in order; most bounds it. An empty id begins.
func (t *Track) InstancesAfter(id string, most int) (list []string) {
	return t.instances.after(id, most)
}

// Summary is the track at a time, as a list shows it, without its name.
func (t *Track) Summary(now Now) protocol.TrackItem {
	clock, ordered := t.clockAt(now), t.ordered()
	x := protocol.TrackItem{
		Last: t.last, NumLocations: uint64(len(ordered)), NumInstances: uint64(len(t.instances.byID)),
		Paused: t.paused != running, States: make([]byte, len(ordered)),
	}
	for i, l := range ordered {
		s, _ := t.state(l, clock)
		x.States[i] = byte(s)
	}
	return x
}

// PendingGates lists the gates to run, in order of the locations. A new leader begins with it;
// later ones come as TrackEventGate.
func (t *Track) PendingGates() (list []protocol.GateRun) {
	for _, l := range t.ordered() {
		if g := &l.gate; g.version != 0 && g.state == gateRunning {
			c := t.locationConfig(l).Gates[g.index]
			list = append(list, protocol.GateRun{
				Location: l.name, Version: g.version, Attempt: g.attempt, Deadline: g.at + c.Timeout, Gate: c,
			})
		}
	}
	return list
}

// Payload returns the payload of a published version; it must not be changed. ok is false if the
// version was not published, or is kept no more.
func (t *Track) Payload(version uint64) ([]byte, bool) {
	if i, ok := t.published.indexOf(version); ok {
		return t.published[i].payload, true
	}
	return nil, false
}

// NumInstances is how many there are.
func (t *Track) NumInstances() int { return len(t.instances.byID) }

// HasSession reports whether the session has an instance here: it holds something, as an owner of a
// semaphore does.
func (t *Track) HasSession(session uint64) bool { return len(t.instances.sessions[session]) > 0 }

// InstancesOf is how many instances the session has here, and the least of their ids.
func (t *Track) InstancesOf(session uint64) (first string, n int) {
	list := t.instances.sessions[session]
	if len(list) > 0 {
		first = slices.MinFunc(list, byID).id
	}
	return first, len(list)
}

// Sessions lists the sessions that have instances here, in order.
func (t *Track) Sessions() []uint64 { return slices.Sorted(maps.Keys(t.instances.sessions)) }

// SessionOf is the session that has registered the id, 0 none.
func (t *Track) SessionOf(id string) uint64 {
	if p := t.instances.byID[id]; p != nil {
		return p.session
	}
	return 0
}

// Bytes returns the bytes of the track's config, instances and published payloads, for quotas.
// Histories do not count: they are bounded.
func (t *Track) Bytes() uint64 { return t.instances.bytes + t.versionBytes + t.configBytes }

// BytesOf returns the bytes that the instance with this id counts, or 0.
func (t *Track) BytesOf(id string) uint64 {
	if p := t.instances.byID[id]; p != nil {
		return InstanceBytes(len(p.id), len(p.meta))
	}
	return 0
}
