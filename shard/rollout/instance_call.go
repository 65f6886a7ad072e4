package rollout

import (
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Registration of an instance.
type Registration struct {
	Session  uint64
	ID       string
	Location string
	Role     protocol.TrackInstanceRole
	Meta     string
	// Takeover evicts a live session that has the id. The shard sets it too when
	// that session is detached.
	Takeover bool
}

// Register makes an instance, and gives its incarnation, which its calls carry. The same
// registration again by the same session gives the same incarnation. Errors: BAD_REQUEST,
// UNKNOWN_LOCATION, ALREADY_REGISTERED, ErrTooManyInstances.
func (t *Track) Register(now Now, r Registration, out *Events) (incarnation uint64, err error) {
	if !validName(r.ID, protocol.MaxTrackInstance) || !validText(r.Meta, protocol.MaxTrackMeta) ||
		r.Role < protocol.InstanceFollower || r.Role > protocol.InstanceLeader || r.Session == 0 {
		return 0, badRequest(
			"register: an instance has an id of 1 to 255 bytes, a role, a session, and meta of at most 1024 printable bytes")
	}
	l, err := t.find(r.Location)
	if err != nil {
		return 0, err
	}
	old := t.instances.byID[r.ID]
	switch {
	case old == nil:
		if len(t.instances.byID) >= MaxInstances {
			return 0, ErrTooManyInstances
		}
	case old.session == r.Session:
		if old.loc == l && old.role == r.Role && old.meta == r.Meta {
			return old.incarnation, nil
		}
	case !r.Takeover:
		return 0, alreadyRegistered(old)
	}
	c := t.change(now, out)
	if old != nil {
		text := "registered again by its session"
		if old.session != r.Session {
			text = "its id is taken over by another session"
		}
		c.remove(old, text)
	}
	t.instances.incarnations++
	p := &instance{
		id: r.ID, session: r.Session, incarnation: t.instances.incarnations, loc: l,
		role: r.Role, meta: r.Meta, registered: t.clock, roleAt: t.clock,
	}
	t.instances.insert(p)
	p.updateCounts(&t.plan)
	c.emit(protocol.TrackEvent{Kind: protocol.TrackEventJoined, Location: l.name, Instance: p.id,
		Generation: p.incarnation, Text: "joins as " + p.role.String()})
	c.updateStates()
	return p.incarnation, nil
}

// Unregister ends an instance at its own wish. Errors: NOT_FOUND, FENCED.
func (t *Track) Unregister(now Now, from Caller, out *Events) error {
	p, err := t.instances.of(from)
	if err != nil {
		return err
	}
	c := t.change(now, out)
	c.remove(p, "leaves")
	c.updateStates()
	return nil
}

// SessionEnded removes the instances of a session that expired, was stopped or killed, in order of
// their ids. A detached session has not ended.
func (t *Track) SessionEnded(now Now, session uint64, out *Events) {
	list := slices.Clone(t.instances.sessions[session])
	if len(list) == 0 {
		return
	}
	c := t.change(now, out)
	slices.SortFunc(list, byID)
	for _, p := range list {
		c.remove(p, "its session ended")
	}
	c.updateStates()
}

// SetRole changes the role. A leader holds its location up until it has the target.
func (t *Track) SetRole(now Now, from Caller, role protocol.TrackInstanceRole, out *Events) error {
	p, err := t.instances.of(from)
	if err != nil {
		return err
	}
	if role < protocol.InstanceFollower || role > protocol.InstanceLeader {
		return badRequest("set role: follower or leader")
	}
	if p.role == role && !p.demoted {
		return nil
	}
	c := t.change(now, out)
	p.role, p.roleAt, p.demoted = role, t.clock, false
	p.updateCounts(&t.plan)
	c.emit(protocol.TrackEvent{Kind: protocol.TrackEventRole, Location: p.loc.name, Instance: p.id,
		Text: "is " + role.String() + " now"})
	c.updateStates()
	return nil
}

// Peek answers a poll that would change nothing. If ok is false, write the poll to the log. It is
// all that a steady instance costs.
func (t *Track) Peek(now Now, from Caller, r *protocol.UpdateReport) (a protocol.TrackPollReply, ok bool, err error) {
	p, err := t.checkPoll(from)
	if err != nil {
		return a, true, err
	}
	l, clock := p.loc, t.clockAt(now)
	if l.pos >= 0 {
		if r != nil && p.isNewReport(r) {
			return a, false, nil
		}
		d := t.decide(l, p.leads(), clock)
		wants := d.askSource
		if d.reason, d.askSource = 0, false; d != (decision{}) || p.mustBeSent() {
			return a, false, nil
		}
		return t.answer(p, clock, wants), true, nil
	}
	return t.answer(p, clock, false), true, nil
}

// Poll is a request for the target, with a report or without: the one call that moves targets. A
// stale report is dropped. It may be repeated. The caller has validated the report. Errors:
// NOT_FOUND, FENCED, UNKNOWN_LOCATION.
func (t *Track) Poll(now Now, from Caller, r *protocol.UpdateReport, out *Events) (protocol.TrackPollReply, error) {
	a, ok, err := t.Peek(now, from, r)
	if ok {
		return a, err
	}
	p := t.instances.byID[from.ID]
	l := p.loc
	c := t.change(now, out)
	if r != nil && p.isNewReport(r) {
		c.applyReport(p, r)
	}
	d := t.decide(l, p.leads(), t.clock)
	wants := d.askSource
	c.apply(l, d)
	if p.mustBeSent() {
		p.sent, p.sentGen, p.sentAt = p.assigned(), l.generation, t.clock
		p.updateCounts(&t.plan)
	}
	c.updateStates()
	return t.answer(p, t.clock, wants), nil
}

// Report takes a report without asking for the target. Errors: those of Poll, and STALE_REPORT.
func (t *Track) Report(now Now, from Caller, r protocol.UpdateReport, out *Events) error {
	p, err := t.checkPoll(from)
	if err != nil {
		return err
	}
	if r.Seq < p.seq || r.Seq == 0 || r.Seq == p.seq && !sameReport(p.report, r) {
		return staleReport(p, r.Seq)
	}
	if p.loc.pos >= 0 && p.isNewReport(&r) {
		c := t.change(now, out)
		c.applyReport(p, &r)
		c.updateStates()
	}
	return nil
}

// checkPoll makes the checks common to all polls and reports.
func (t *Track) checkPoll(from Caller) (*instance, error) {
	p, err := t.instances.of(from)
	if err != nil {
		return nil, err
	}
	if p.loc.pos < 0 && !t.config.KeepRemoved {
		return nil, unknownLocation(p.loc.name)
	}
	return p, nil
}

func (t *Track) answer(p *instance, clock uint64, wants bool) protocol.TrackPollReply {
	l := p.loc
	a := protocol.TrackPollReply{Version: p.assigned(), Generation: l.generation}
	a.State, a.Until = t.state(l, clock)
	if a.Until > clock {
		a.RetryAfter = a.Until - clock
	}
	switch {
	case l.pos < 0:
		a.Status = protocol.PollRemoved
	case l.excluded:
		a.Status = protocol.PollExcluded
	case max(t.paused, l.paused) != running:
		a.Status = protocol.PollPaused
	case wants:
		a.Status = protocol.PollSourceWanted
		if t.sourceError != "" {
			a.Status = protocol.PollSourceUnavailable
		}
	case a.Version == 0:
		a.Status = protocol.PollNoTarget
	}
	return a
}
