package rollout

import "github.com/signalbox-dev/signalbox/protocol"

// Peek answers a poll that would change nothing. False: write it to the log. It is all that a
// steady instance costs.
func (t *Track) Peek(now Now, c Caller, r *protocol.UpdateReport) (a protocol.TrackPollReply, ok bool, err error) {
	p, err := t.checkPoll(c)
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
// ErrUnknownInstance, ErrFenced, ErrUnknownLocation.
func (t *Track) Poll(now Now, c Caller, r *protocol.UpdateReport, out *Events) (protocol.TrackPollReply, error) {
	a, ok, err := t.Peek(now, c, r)
	if ok {
		return a, err
	}
	p := t.instances[c.ID]
	l := p.loc
	t.clock = t.clockAt(now)
	if r != nil && p.isNewReport(r) {
		t.applyReport(now, p, r, out)
	}
	d := t.decide(l, p.leads(), t.clock)
	wants := d.askSource
	t.apply(l, d, now, out)
	if p.mustBeSent() {
		p.sent, p.sentGen, p.sentAt = p.assigned(), l.generation, t.clock
		t.updateCounts(p)
	}
	t.updateStates(now, out)
	return t.answer(p, t.clock, wants), nil
}

// Report takes a report without asking for the target. Errors: those of Poll, and ErrStaleReport.
func (t *Track) Report(now Now, c Caller, r protocol.UpdateReport, out *Events) error {
	p, err := t.checkPoll(c)
	if err != nil {
		return err
	}
	if r.Seq < p.seq || r.Seq == 0 || r.Seq == p.seq && !sameReport(p.report, r) {
		return ErrStaleReport
	}
	if p.loc.pos >= 0 && p.isNewReport(&r) {
		t.clock = t.clockAt(now)
		t.applyReport(now, p, &r, out)
		t.updateStates(now, out)
	}
	return nil
}

// checkPoll is what all polls and reports are checked for.
func (t *Track) checkPoll(c Caller) (*instance, error) {
	p, err := t.checkCaller(c)
	if err != nil {
		return nil, err
	}
	if p.loc.pos < 0 && !t.config.KeepRemoved {
		return nil, ErrUnknownLocation
	}
	return p, nil
}

// isNewReport says that a report is later than what is known, and says something else. An error is
// also reported again for a new target with the same version.
func (p *instance) isNewReport(r *protocol.UpdateReport) bool {
	if r.Seq <= p.seq {
		return false
	}
	again := r.Target == p.loc.target && p.reportGen != p.loc.generation && r.Code != CodeNone && r.Code != CodeOK
	return again || !sameReport(p.report, *r)
}

// sameReport says that two reports differ in their numbers alone.
func sameReport(a, b protocol.UpdateReport) bool {
	a.Seq = b.Seq
	return a == b
}

func (t *Track) applyReport(now Now, p *instance, r *protocol.UpdateReport, out *Events) {
	p.seq, p.report, p.reportGen, p.reportAt = r.Seq, *r, p.loc.generation, t.clock
	if p.demoted && p.reached(p.loc) {
		p.demoted, p.roleAt = false, t.clock
		t.emit(now, out, protocol.TrackEvent{Kind: protocol.TrackEventRole, Location: p.loc.name, Instance: p.id,
			Text: "has caught up, and counts as a leader again"})
	}
	t.updateCounts(p)
}

// assigned is the version the instance is to have.
func (p *instance) assigned() uint64 {
	if p.loc.shareOnly && !p.inShare {
		return p.loc.stable
	}
	return p.loc.target
}

// mustBeSent says that the assigned version was not sent to the instance.
func (p *instance) mustBeSent() bool {
	v := p.assigned()
	return p.loc.pos >= 0 && v != 0 && (p.sent != v || p.sentGen != p.loc.generation)
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
