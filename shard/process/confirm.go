package process

import (
	"strings"

	"github.com/signalbox-dev/signalbox/protocol"
)

// enter finds the member and checks that it speaks of the present round. ABORTED: it speaks of an older one, or was not in it.
func (p *Process) enter(session, epoch uint64) (*member, error) {
	m := p.member(session)
	switch {
	case m == nil:
		return nil, notMember(session, "; join first")
	case epoch > p.counter || epoch == 0:
		return nil, protocol.Errorf(protocol.StatusBadRequest, "epoch %d was never given; the last one is %d", epoch, p.counter)
	case epoch != p.round.epoch || !m.inRound():
		p.tally.Stale++
		return nil, protocol.Errorf(protocol.StatusAborted, "round of epoch %d is over for this member; the present one is %d", epoch, p.round.epoch)
	}
	return m, nil
}

// Prepared confirms that the member prepared. A repeat is OK. ABORTED: the round is over.
func (p *Process) Prepared(at Moment, session, epoch uint64, out *Out) error {
	p.fire(at, out)
	m, err := p.enter(session, epoch)
	if err != nil {
		return err
	}
	if m.standing == asked {
		m.standing = prepared
		p.progress(at, out)
	}
	return nil
}

// Fail reports that the member could not prepare, or the coordinator not coordinate, or that a handler failed too often: the round fails, and is tried again
// after the back-off. PRECONDITION_FAILED: the outcome is decided.
func (p *Process) Fail(at Moment, session, epoch uint64, text string, out *Out) error {
	p.fire(at, out)
	if _, err := p.enter(session, epoch); err != nil {
		return err
	}
	if p.phase != PhasePreparing && p.phase != PhaseCoordinating {
		return protocol.Errorf(protocol.StatusPreconditionFailed, "round of epoch %d is complete; it cannot fail any more", epoch)
	}
	p.fail(at, cut("a member failed: "+text), out)
	return nil
}

// Complete, by the coordinator, decides that the round is complete, and leaves a result with it. A repeat is OK, and changes neither. PRECONDITION_FAILED: not
// the coordinator, or not all are prepared.
func (p *Process) Complete(at Moment, session, epoch uint64, result []byte, out *Out) error {
	p.fire(at, out)
	if len(result) > MaxResult {
		return protocol.Errorf(protocol.StatusBadRequest, "result is %d bytes long; at most %d are allowed", len(result), MaxResult)
	}
	m, err := p.enter(session, epoch)
	switch {
	case err != nil:
		return err
	case m.order != p.round.coordinator:
		return protocol.Errorf(protocol.StatusPreconditionFailed, "only the coordinator of the round can complete it")
	case p.phase == PhasePreparing:
		return protocol.Errorf(protocol.StatusPreconditionFailed, "not all members are prepared; complete the round from coordinate or later")
	case p.phase == PhaseCoordinating:
		p.decide(at, m, result, out)
	}
	return nil
}

// Completed confirms that the member completed the round. A repeat is OK, and so is one that comes when the next round is under way. ABORTED: the round was
// not completed, or is older. PRECONDITION_FAILED: the member was not told that it is complete.
func (p *Process) Completed(at Moment, session, epoch uint64, out *Out) error {
	p.fire(at, out)
	if m := p.member(session); m != nil && m.settled == epoch && epoch > 0 && epoch != p.round.epoch {
		return nil
	}
	m, err := p.enter(session, epoch)
	if err != nil {
		return err
	}
	switch m.standing {
	case asked, prepared:
		return protocol.Errorf(protocol.StatusPreconditionFailed, "round of epoch %d is not complete for this member", epoch)
	case told, resuming:
		m.standing = done
		p.progress(at, out)
	}
	return nil
}

// cut makes a reason fit to be kept.
func cut(text string) string {
	if len(text) > MaxText {
		text = text[:MaxText]
	}
	return strings.ToValidUTF8(text, "")
}
