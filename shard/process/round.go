package process

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Tick fires due deadlines, and starts a due round. The shard calls it at the end of every Apply
// that called the process, and when Next says so.
func (p *Process) Tick(at Now, out *Out) {
	p.fireDeadlines(at, out)
	if p.phase == protocol.PhaseWaiting && at.Log >= p.start {
		p.startRound(at, out)
	}
}

// Next is the log time from which on Tick has something to do, if there is one.
func (p *Process) Next() (at uint64, ok bool) {
	switch p.phase {
	case protocol.PhaseIdle:
		return later(p.idle, 1), true
	case protocol.PhaseWaiting:
		return p.start, true
	case protocol.PhasePreparing, protocol.PhaseCoordinating, protocol.PhaseCompleting:
		return later(p.round.deadline, 1), p.round.deadline > 0
	}
	at = math.MaxUint64
	for _, m := range p.members {
		if m.absent && m.until < at {
			at, ok = m.until, true
		}
	}
	if ok {
		at = later(at, 1)
	}
	return at, ok
}

// Expired reports whether the process has had no members for so long that it can be removed. Its
// remains are Last.
func (p *Process) Expired(at Now) bool { return p.phase == protocol.PhaseIdle && at.Log > p.idle }

// fireDeadlines fires due deadlines, but starts no round. A deadline is due when time is above it.
func (p *Process) fireDeadlines(at Now, out *Out) {
	if p.round.deadline > 0 && at.Log > p.round.deadline {
		switch p.phase {
		case protocol.PhasePreparing:
			n := 0
			for _, m := range p.members {
				if m.status == protocol.MemberPreparing {
					n++
				}
			}
			p.failRound(at, fmt.Sprintf("round timeout: %d of %d members did not prepare", n, len(p.members)), out)
		case protocol.PhaseCoordinating:
			p.failRound(at, "round timeout: the coordinator did not complete the round", out)
		case protocol.PhaseCompleting:
			p.finishRound(at, true, out)
		}
	}
	if p.phase != protocol.PhaseCompleted {
		return
	}
	for _, m := range p.members {
		if m.absent && at.Log > m.until {
			// those whose time is not over leave with it
			p.topologyChanged(at, "topology changed: a member did not return", out)
			return
		}
	}
}

// scheduleRound makes a round due, or lets the process idle if there is nobody to go through it.
func (p *Process) scheduleRound(at Now, start uint64, out *Out) {
	p.round.deadline = 0
	phase := protocol.PhaseWaiting
	p.start = start
	if len(p.members) == 0 {
		phase, p.start, p.attempt, p.idle = protocol.PhaseIdle, 0, 0, later(at.Log, Retention)
	}
	p.enterPhase(phase, out)
}

func (p *Process) enterPhase(phase protocol.ProcessPhase, out *Out) {
	if p.phase == phase {
		return
	}
	p.phase = phase
	out.Changes = append(out.Changes, protocol.ProcessChange{Kind: protocol.ProcessPhaseChanged, Phase: phase,
		Epoch: p.round.epoch, Topology: p.topology})
}

func (p *Process) startRound(at Now, out *Out) {
	c := p.elect()
	p.counter++
	p.counters.Started++
	p.round = round{
		epoch: p.counter, topology: p.topology, coordinator: c.order, session: c.session, attempt: p.attempt,
		size: uint64(len(p.members)), started: at.Log,
		wall: at.Wall,
	}
	if p.options.RoundTimeout > 0 {
		p.round.deadline = later(at.Log, p.options.RoundTimeout)
	}
	p.start, p.cachedMembers = 0, nil
	for _, m := range p.members {
		m.status, m.token = protocol.MemberPreparing, p.counter
	}
	out.Changes = append(out.Changes, protocol.ProcessChange{Kind: protocol.ProcessStarted, Epoch: p.counter,
		Topology: p.topology, Session: c.session})
	p.enterPhase(protocol.PhasePreparing, out)
	for _, m := range p.members {
		p.notify(m, out)
	}
}

// elect chooses the coordinator of the round that starts. There is a member.
func (p *Process) elect() *member {
	best := p.members[0]
	for _, m := range p.members[1:] {
		switch p.options.Election {
		case protocol.ElectLowest:
			if m.session < best.session {
				best = m
			}
		case protocol.ElectPreferred:
			if m.weight > best.weight || m.weight == best.weight && m.order == p.round.coordinator {
				best = m
			}
		}
	}
	return best
}

// coordinator is the member that coordinates the present round, unless it has gone.
func (p *Process) coordinator() *member {
	for _, m := range p.members {
		if m.order == p.round.coordinator && m.inRound() {
			return m
		}
	}
	return nil
}

// advance goes on as far as the confirmations allow.
func (p *Process) advance(at Now, out *Out) {
	c := p.coordinator()
	waiting := 0 // members other than the coordinator
	for _, m := range p.members {
		if m != c && (m.status == protocol.MemberPreparing || m.status == protocol.MemberCompleting) {
			waiting++
		}
	}
	switch p.phase {
	case protocol.PhasePreparing:
		if waiting == 0 && c.status == protocol.MemberPrepared {
			p.round.prepared = at.Log
			p.enterPhase(protocol.PhaseCoordinating, out)
			p.notify(c, out)
		}
	case protocol.PhaseCompleting:
		if waiting > 0 {
			return
		}
		if c != nil && c.status == protocol.MemberPrepared {
			c.status = protocol.MemberCompleting
			p.notify(c, out)
		}
		if c == nil || c.status == protocol.MemberCompleted {
			p.finishRound(at, false, out)
		}
	}
}

// completeRound makes the round complete for all its members, whatever happens from now on.
func (p *Process) completeRound(at Now, c *member, result []byte, out *Out) {
	p.round.decided, p.round.result, p.round.deadline = at.Log, bytes.Clone(result), 0
	if p.options.RoundTimeout > 0 {
		p.round.deadline = later(at.Log, p.options.RoundTimeout)
	}
	p.enterPhase(protocol.PhaseCompleting, out)
	for _, m := range p.members {
		m.completedEpoch = p.round.epoch
		if m != c {
			m.status = protocol.MemberCompleting
			p.notify(m, out)
		}
	}
	p.advance(at, out)
}

// finishRound closes a round that was decided complete. Members that have not confirmed it are
// notified again by Resend, and by CompletedEpoch of their next notification.
func (p *Process) finishRound(at Now, late bool, out *Out) {
	text := ""
	if late {
		n := 0
		for _, m := range p.members {
			if m.status == protocol.MemberPrepared { // the coordinator, which was to be notified last
				m.status = protocol.MemberCompleting
				p.notify(m, out)
			}
			if m.status == protocol.MemberCompleting {
				n++
			}
		}
		text = fmt.Sprintf("%d members had not confirmed in time that they completed", n)
	}
	p.record(at, protocol.RoundCompleted, text, out)
	p.attempt = 0
	p.round.deadline = 0
	if !p.pending {
		p.enterPhase(protocol.PhaseCompleted, out)
		return
	}
	p.pending = false
	p.scheduleRound(at, p.start, out)
}

// abandonRound gives up a round that is not decided: all that were notified to prepare are notified
// to cancel.
func (p *Process) abandonRound(at Now, outcome protocol.ProcessOutcome, why string, out *Out) {
	p.record(at, outcome, why, out)
	for _, m := range p.members {
		if m.inRound() {
			m.status = protocol.MemberOutside
			out.Events = append(out.Events, p.cancelEvent(m, why))
		}
	}
	p.cachedMembers = nil
	p.round.deadline = 0
}

func (p *Process) cancelEvent(m *member, why string) MemberEvent {
	return MemberEvent{
		Kind: EventCancel, Session: m.session, Epoch: p.round.epoch, Topology: p.topology,
		CompletedEpoch: m.completedEpoch, Text: why,
	}
}

// wasCancelled reports whether the member was in the last round, which was given up, and that no
// other has started.
func (p *Process) wasCancelled(m *member) bool {
	return p.phase == protocol.PhaseWaiting && m.status == protocol.MemberOutside &&
		p.round.epoch > 0 && p.round.decided == 0 && m.token == p.round.epoch
}

// failRound gives the round up, to be tried again after the back-off.
func (p *Process) failRound(at Now, why string, out *Out) {
	p.abandonRound(at, protocol.RoundFailed, why, out)
	if p.attempt < math.MaxUint64 {
		p.attempt++
	}
	p.scheduleRound(at, later(at.Log, backoff(&p.options, p.attempt)), out)
}

// notify sends a member the event that its status asks for, if any.
func (p *Process) notify(m *member, out *Out) {
	if m.absent {
		return
	}
	e := MemberEvent{Session: m.session, Epoch: p.round.epoch, Topology: p.round.topology,
		Coordinator: p.round.session, CompletedEpoch: m.completedEpoch, Token: m.token}
	switch {
	case m.status == protocol.MemberPreparing:
		e.Kind, e.Attempt, e.Members = EventPrepare, p.round.attempt, p.roundMembers()
	case m.status == protocol.MemberCompleting:
		e.Kind, e.Result = EventComplete, p.round.result
	case m.status == protocol.MemberResuming && p.phase == protocol.PhaseCompleted:
		e.Kind, e.Members, e.Result = EventResume, p.roundMembers(), p.round.result
	case m.status == protocol.MemberPrepared && p.phase == protocol.PhaseCoordinating &&
		m.order == p.round.coordinator:
		e.Kind = EventCoordinate
	case p.wasCancelled(m):
		last, _ := p.Latest()
		e = p.cancelEvent(m, last.Text)
	default:
		return
	}
	out.Events = append(out.Events, e)
}

// Resend notifies the session again of its unconfirmed events; a coordinator of its role; and
// members of a cancelled round of its end, until the next one starts. It changes nothing: the
// leader calls it when a member attaches again, and while a round is under way after an election
// for all, and now and then. A session that was removed is notified of that. It returns false if
// the session is neither a member nor a former one.
func (p *Process) Resend(session uint64, out *Out) bool {
	if m := p.member(session); m != nil {
		p.notify(m, out)
		return true
	}
	f := p.findFormer(session)
	if f != nil && f.removal != 0 {
		p.notifyRemoved(f, out)
	}
	return f != nil
}

var removalTexts = [...]string{protocol.RemovedByReplacement: "another session joined with the key of this member",
	protocol.RemovedByOperator: "evicted by an operator"}

func (p *Process) notifyRemoved(f *formerMember, out *Out) {
	out.Events = append(out.Events, MemberEvent{
		Kind: EventRemoved, Removal: f.removal, Session: f.session, Epoch: p.round.epoch,
		CompletedEpoch: f.completedEpoch, Topology: p.topology, Text: removalTexts[f.removal],
	})
}

// Force starts a new round although nothing changed: the present one is cancelled, unless its
// outcome is decided. Members that are absent leave. PRECONDITION_FAILED: there are no members.
func (p *Process) Force(at Now, text string, out *Out) error {
	p.fireDeadlines(at, out)
	if len(p.members) == 0 {
		return protocol.Errorf(protocol.StatusPreconditionFailed,
			"process has no members; there is nobody to go through a round")
	}
	for _, m := range p.members {
		if m.absent {
			p.topologyChanged(at, "forced", out)
			break
		}
	}
	switch p.phase {
	case protocol.PhaseIdle: // only absent members were there
		return nil
	case protocol.PhaseCompleting:
		p.pending, p.start = true, at.Log
		return nil
	case protocol.PhasePreparing, protocol.PhaseCoordinating:
		p.abandonRound(at, protocol.RoundCancelled, truncate("forced by an operator: "+text), out)
	}
	p.attempt = 0
	p.scheduleRound(at, at.Log, out)
	return nil
}

// record puts the present round into the history.
func (p *Process) record(at Now, outcome protocol.ProcessOutcome, text string, out *Out) {
	r := &p.round
	e := protocol.ProcessHistoryRound{
		Epoch: r.epoch, Topology: r.topology, Coordinator: r.session, Size: r.size, Attempt: r.attempt,
		Wall: r.wall, Duration: since(at.Log, r.started),
		Outcome: outcome, Text: truncate(text),
	}
	if r.prepared > 0 {
		e.Prepared = since(r.prepared, r.started)
	}
	if r.decided > 0 {
		e.Decided = since(r.decided, r.started)
	}
	if len(p.history) == MaxHistory {
		p.history = slices.Delete(p.history, 0, 1)
	}
	p.history = append(p.history, e)
	switch outcome {
	case protocol.RoundCompleted:
		p.counters.Completed++
	case protocol.RoundCancelled:
		p.counters.Cancelled++
	case protocol.RoundFailed:
		p.counters.Failed++
	}
	out.Changes = append(out.Changes, protocol.ProcessChange{Kind: protocol.ProcessRoundEnded, Outcome: outcome,
		Epoch: r.epoch, Topology: r.topology, Text: e.Text})
}

func since(now, then uint64) uint64 {
	if now < then {
		return 0
	}
	return now - then
}
