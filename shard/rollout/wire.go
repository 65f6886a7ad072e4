package rollout

import "github.com/signalbox-dev/signalbox/protocol"

// What crosses the wire is in protocol's words, with the same numbers for the same things (wire_test.go holds that). Here are the ways from one to the other; lists
// are copied, bytes are not.

// ConfigOf reads a config as it came. It is not checked: New and Configure do.
func ConfigOf(w *protocol.TrackConfig) Config {
	c := Config{
		Source: Source(w.Source), DelayFrom: DelayFrom(w.DelayFrom), ExplicitCodes: w.ExplicitCodes, ImplicitAfter: w.ImplicitAfter,
		ImplicitAttempts: w.ImplicitAttempts, StallTimeout: w.StallTimeout, AutoDemote: w.AutoDemote, SkipEmptyAfter: w.SkipEmptyAfter,
		ReelectMinInterval: w.ReelectMinInterval, MinAdvanceInterval: w.MinAdvanceInterval, Retention: w.Retention, KeepRemoved: w.KeepRemoved,
	}
	for _, l := range w.Locations {
		to := Location{Name: l.Name, Delay: l.Delay, Bake: l.Bake, Share: l.Share, ShareBake: l.ShareBake}
		for _, g := range l.Gates {
			to.Gates = append(to.Gates, Gate{Name: g.Name, Kind: GateKind(g.Kind), Spec: g.Spec, Timeout: g.Timeout, Retry: g.Retry})
		}
		c.Locations = append(c.Locations, to)
	}
	return c
}

// Wire is the config as it is sent.
func (c *Config) Wire() protocol.TrackConfig {
	w := protocol.TrackConfig{
		Source: protocol.TrackSource(c.Source), DelayFrom: protocol.DelayFrom(c.DelayFrom), ExplicitCodes: c.ExplicitCodes, ImplicitAfter: c.ImplicitAfter,
		ImplicitAttempts: c.ImplicitAttempts, StallTimeout: c.StallTimeout, AutoDemote: c.AutoDemote, SkipEmptyAfter: c.SkipEmptyAfter,
		ReelectMinInterval: c.ReelectMinInterval, MinAdvanceInterval: c.MinAdvanceInterval, Retention: c.Retention, KeepRemoved: c.KeepRemoved,
	}
	for i := range c.Locations {
		l := &c.Locations[i]
		to := protocol.LocationConfig{Name: l.Name, Delay: l.Delay, Bake: l.Bake, Share: l.Share, ShareBake: l.ShareBake}
		for j := range l.Gates {
			to.Gates = append(to.Gates, l.Gates[j].wire())
		}
		w.Locations = append(w.Locations, to)
	}
	return w
}

func (g *Gate) wire() protocol.GateConfig {
	return protocol.GateConfig{Name: g.Name, Kind: protocol.GateKind(g.Kind), Spec: g.Spec, Timeout: g.Timeout, Retry: g.Retry}
}

// ReportOf reads a report as it came; nil is none.
func ReportOf(w *protocol.UpdateReport) *Report {
	if w.Seq == 0 {
		return nil
	}
	return &Report{Seq: w.Seq, Current: w.Current, Target: w.Target, Code: w.Code, Message: w.Message, Attempts: w.Attempts}
}

// Wire is the answer as it is sent, without a payload.
func (a *PollResult) Wire() protocol.TrackPollReply {
	return protocol.TrackPollReply{
		Version: a.Version, Status: protocol.TrackPollStatus(a.Status), State: protocol.TrackState(a.State), Until: a.Until, RetryAfter: a.RetryAfter, Generation: a.Generation,
	}
}

// Wire is the change as it is sent.
func (c *Change) Wire() protocol.TrackEvent {
	return protocol.TrackEvent{
		Kind: protocol.TrackEventKind(c.Kind), Reason: protocol.TrackReason(c.Reason), State: protocol.TrackState(c.State), Share: c.Share, Location: c.Location,
		Instance: c.Instance, Gate: c.Gate, Version: c.Version, From: c.From, Generation: c.Generation, Until: c.Until, Attempt: c.Attempt, Log: c.Log, Wall: c.Wall,
		Text: c.Text,
	}
}

// Wire is the status as it is sent: gates are those to be run now (Track.PendingGates), and of those who hold a location up the first blockers are named.
func (s *Status) Wire(gates []GateRun, blockers int) protocol.TrackStatus {
	w := protocol.TrackStatus{
		ConfigRevision: s.Revision, Clock: s.Clock, Last: s.Last, Paused: s.Paused, SourceError: s.SourceError, NumInstances: uint64(s.Instances),
	}
	for i := range s.Locations {
		w.Locations = append(w.Locations, s.Locations[i].wire(blockers))
	}
	for i := range gates {
		g := &gates[i]
		w.Gates = append(w.Gates, protocol.GateRun{Location: g.Location, Version: g.Version, Attempt: g.Attempt, Deadline: g.Deadline, Gate: g.Gate.wire()})
	}
	return w
}

func (l *LocationStatus) wire(blockers int) protocol.TrackLocationStatus {
	by := l.BlockedBy[:min(blockers, len(l.BlockedBy))]
	return protocol.TrackLocationStatus{
		Name: l.Name, State: protocol.TrackState(l.State), Until: l.Until, Target: l.Target, Stable: l.Stable, Since: l.Since, Generation: l.Generation,
		Reason: protocol.TrackReason(l.Reason), Members: uint64(l.Members), Leaders: uint64(l.Leaders), Counted: uint64(l.Counted), Reached: uint64(l.Reached),
		BlockedBy: append([]string(nil), by...), BlockedSince: l.BlockedSince, Paused: l.Paused, Excluded: l.Excluded, Rollback: l.Rollback, Gate: l.Gate,
		GateVersion: l.GateVersion,
	}
}

// Wire is the instance as it is sent.
func (s *InstanceStatus) Wire() protocol.TrackInstanceStatus {
	r := &s.Report
	return protocol.TrackInstanceStatus{
		ID: s.ID, Location: s.Location, Meta: s.Meta, Session: s.Session, Incarnation: s.Incarnation, Role: protocol.TrackInstanceRole(s.Role), Demoted: s.Demoted,
		InShare: s.InShare, Due: s.Due, Sent: s.Sent, SentAt: s.SentAt, Registered: s.Registered, ReportAt: s.ReportAt,
		Report:  protocol.UpdateReport{Seq: r.Seq, Current: r.Current, Target: r.Target, Code: r.Code, Message: r.Message, Attempts: r.Attempts},
		Reached: s.Reached, HoldsUp: s.HoldsUp, SaysBad: s.SaysBad, CannotLoad: s.CannotLoad,
	}
}

// Wire is the row as it is sent.
func (r *Row) Wire() protocol.TrackHistoryRow {
	return protocol.TrackHistoryRow{Version: r.Version, At: r.At, Wall: r.Wall, Converged: r.Converged, Reason: protocol.TrackReason(r.Reason), Skip: r.Skip}
}
