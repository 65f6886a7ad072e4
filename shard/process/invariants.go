package process

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/signalbox-dev/signalbox/protocol"
)

// check returns an invariant that does not hold, or nil.
func check(p *Process) error {
	if _, err := withDefaults(p.options); err != nil || p.options.BackoffMin == 0 || p.options.BackoffMax == 0 {
		return errors.New("options are not valid")
	}
	r := &p.round
	running := p.phase == protocol.PhasePreparing || p.phase == protocol.PhaseCoordinating
	decided := p.phase == protocol.PhaseCompleting || p.phase == protocol.PhaseCompleted
	switch {
	case p.phase > protocol.PhaseCompleted:
		return fmt.Errorf("phase %d is not known", p.phase)
	case max(p.joinOrder, p.counter, p.topology, p.attempt) > maxCounter:
		return errors.New("a counter is used up")
	case r.epoch > p.counter:
		return fmt.Errorf("epoch %d was not given", r.epoch)
	case r.topology > p.topology || (running || p.phase == protocol.PhaseCompleted) && r.topology != p.topology:
		return fmt.Errorf("phase is %v, with topology %d of %d", p.phase, r.topology, p.topology)
	case len(p.members) > protocol.MaxProcessMembers || len(p.history) > MaxHistory ||
		len(r.result) > protocol.MaxProcessResult:
		return errors.New("something is too long")
	case (p.phase == protocol.PhaseIdle) != (len(p.members) == 0):
		return fmt.Errorf("phase is %v, with %d members", p.phase, len(p.members))
	case p.pending && p.phase != protocol.PhaseCompleting:
		return errors.New("a round is pending behind none")
	case p.start > 0 && p.phase != protocol.PhaseWaiting && !p.pending:
		return errors.New("a round is due while one is under way")
	case (running || decided) && r.epoch == 0:
		return errors.New("a round has no epoch")
	case r.deadline > 0 && !running && p.phase != protocol.PhaseCompleting:
		return errors.New("a deadline belongs to no round")
	}
	if err := checkMembers(p, running, decided); err != nil {
		return err
	}
	gone := make(map[uint64]bool, len(p.formerMembers))
	for i := range p.formerMembers {
		f := &p.formerMembers[i]
		if f.removal > protocol.RemovedByOperator || f.completedEpoch > r.epoch || gone[f.session] ||
			p.member(f.session) != nil || len(p.formerMembers) > MaxFormer {
			return fmt.Errorf("former member with session %d is not valid", f.session)
		}
		gone[f.session] = true
	}
	last := uint64(0)
	for i := range p.history {
		e := &p.history[i]
		switch {
		case e.Epoch <= last || e.Epoch > r.epoch:
			return fmt.Errorf("round %d of the history is out of order", e.Epoch)
		case e.Outcome < protocol.RoundCompleted || e.Outcome > protocol.RoundFailed ||
			len(e.Text) > protocol.MaxProcessText || !utf8.ValidString(e.Text):
			return fmt.Errorf("round %d of the history is not valid", e.Epoch)
		}
		last = e.Epoch
	}
	return nil
}

func checkMembers(p *Process, running, decided bool) error {
	r := &p.round
	sessions, keys := make(map[uint64]bool, len(p.members)), make(map[string]bool)
	order, waiting, coordinators := uint64(0), 0, 0
	for _, m := range p.members {
		switch {
		case m.session == 0 || len(m.key) > protocol.MaxProcessKey || len(m.identity) > MaxIdentity ||
			len(m.data) > protocol.MaxProcessData:
			return fmt.Errorf("member %d is not valid", m.order)
		case m.order <= order || m.order > p.joinOrder:
			return fmt.Errorf("member %d is out of order", m.order)
		case !m.absent && sessions[m.session] || m.key != "" && keys[m.key]:
			return fmt.Errorf("member %d is there twice", m.order)
		case m.absent && (m.key == "" || p.phase != protocol.PhaseCompleted) || !m.absent && m.until > 0:
			return fmt.Errorf("member %d is absent where it cannot be", m.order)
		case m.completedEpoch > r.epoch || m.token > p.counter:
			return fmt.Errorf("member %d is ahead of the epoch", m.order)
		case m.status > protocol.MemberResuming ||
			running && m.status != protocol.MemberPreparing && m.status != protocol.MemberPrepared:
			return fmt.Errorf("member %d has status %d in phase %v", m.order, m.status, p.phase)
		case !running && m.status == protocol.MemberPreparing ||
			!running && p.phase != protocol.PhaseCompleting && m.status == protocol.MemberPrepared:
			return fmt.Errorf("member %d has status %d in phase %v", m.order, m.status, p.phase)
		case p.phase == protocol.PhaseCompleted && m.status < protocol.MemberCompleting ||
			p.phase == protocol.PhaseCompleting && m.status == protocol.MemberResuming:
			return fmt.Errorf("member %d has status %d in phase %v", m.order, m.status, p.phase)
		case m.status == protocol.MemberPrepared && p.phase == protocol.PhaseCompleting && m.order != r.coordinator:
			return fmt.Errorf("member %d was not notified that the round is complete", m.order)
		case decided && m.inRound() && m.completedEpoch != r.epoch:
			return fmt.Errorf("member %d does not have the completed epoch", m.order)
		case m.inRound() && m.token < r.epoch:
			return fmt.Errorf("member %d has a token below the epoch", m.order)
		}
		order = m.order
		if !m.absent {
			sessions[m.session] = true
		}
		keys[m.key] = true
		if m.status == protocol.MemberPreparing || m.status == protocol.MemberCompleting {
			waiting++
		}
		if m.order == r.coordinator && m.inRound() {
			coordinators++
			if p.phase == protocol.PhaseCoordinating && m.status != protocol.MemberPrepared {
				return errors.New("the coordinator is not prepared")
			}
		}
	}
	switch {
	case running && coordinators != 1:
		return errors.New("the round has no coordinator")
	case p.phase == protocol.PhasePreparing && waiting == 0, p.phase == protocol.PhaseCoordinating && waiting > 0,
		p.phase == protocol.PhaseCompleting && waiting == 0:
		return fmt.Errorf("phase is %v, with %d members to confirm", p.phase, waiting)
	}
	return nil
}
