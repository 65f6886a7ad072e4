package process

import (
	"strings"

	"github.com/signalbox-dev/signalbox/protocol"
)

// roundMember finds the member and checks that the request is about the present round. ABORTED: it
// speaks of an older one, or was not in it.
func (p *Process) roundMember(session, epoch uint64) (*member, error) {
	m := p.member(session)
	switch {
	case m == nil:
		return nil, notMember(session, "; join first")
	case epoch > p.counter || epoch == 0:
		return nil, protocol.Errorf(protocol.StatusBadRequest, "epoch %d was never given; the last one is %d", epoch, p.counter)
	case epoch != p.round.epoch || !m.inRound():
		p.counters.Stale++
		return nil, protocol.Errorf(protocol.StatusAborted, "round of epoch %d is over for this member; the present one is %d", epoch, p.round.epoch)
	}
	return m, nil
}

// Prepared confirms that the member prepared. A repeat is OK. ABORTED: the round is over.
func (p *Process) Prepared(at Now, session, epoch uint64, out *Out) error {
	p.fireDeadlines(at, out)
	m, err := p.roundMember(session, epoch)
	if err != nil {
		return err
	}
	if m.status == protocol.MemberPreparing {
		m.status = protocol.MemberPrepared
		p.advance(at, out)
	}
	return nil
}

// Fail reports that the member could not prepare, or the coordinator not coordinate, or that a
// handler failed too often: the round fails, and is tried again after the back-off.
// PRECONDITION_FAILED: the outcome is decided.
func (p *Process) Fail(at Now, session, epoch uint64, text string, out *Out) error {
	p.fireDeadlines(at, out)
	if _, err := p.roundMember(session, epoch); err != nil {
		return err
	}
	if p.phase != protocol.PhasePreparing && p.phase != protocol.PhaseCoordinating {
		return protocol.Errorf(protocol.StatusPreconditionFailed, "round of epoch %d is complete; it cannot fail any more", epoch)
	}
	p.failRound(at, truncate("a member failed: "+text), out)
	return nil
}

// Complete, by the coordinator, decides that the round is complete, and leaves a result with it. A
// repeat is OK, and changes neither. PRECONDITION_FAILED: not the coordinator, or not all are
// prepared.
func (p *Process) Complete(at Now, session, epoch uint64, result []byte, out *Out) error {
	p.fireDeadlines(at, out)
	if len(result) > protocol.MaxProcessResult {
		return protocol.Errorf(protocol.StatusBadRequest, "result is %d bytes long; at most %d are allowed", len(result), protocol.MaxProcessResult)
	}
	m, err := p.roundMember(session, epoch)
	switch {
	case err != nil:
		return err
	case m.order != p.round.coordinator:
		return protocol.Errorf(protocol.StatusPreconditionFailed, "only the coordinator of the round can complete it")
	case p.phase == protocol.PhasePreparing:
		return protocol.Errorf(protocol.StatusPreconditionFailed, "not all members are prepared; complete the round from coordinate or later")
	case p.phase == protocol.PhaseCoordinating:
		p.completeRound(at, m, result, out)
	}
	return nil
}

// Completed confirms that the member completed the round. A repeat is OK, and so is one that comes
// when the next round is under way. ABORTED: the round was not completed, or is older.
// PRECONDITION_FAILED: the member was not notified that it is complete.
func (p *Process) Completed(at Now, session, epoch uint64, out *Out) error {
	p.fireDeadlines(at, out)
	if m := p.member(session); m != nil && m.completedEpoch == epoch && epoch > 0 && epoch != p.round.epoch {
		return nil
	}
	m, err := p.roundMember(session, epoch)
	if err != nil {
		return err
	}
	switch m.status {
	case protocol.MemberPreparing, protocol.MemberPrepared:
		return protocol.Errorf(protocol.StatusPreconditionFailed, "round of epoch %d is not complete for this member", epoch)
	case protocol.MemberCompleting, protocol.MemberResuming:
		m.status = protocol.MemberCompleted
		p.advance(at, out)
	}
	return nil
}

// truncate makes a reason fit to be kept.
func truncate(text string) string {
	if len(text) > protocol.MaxProcessText {
		text = text[:protocol.MaxProcessText]
	}
	return strings.ToValidUTF8(text, "")
}
