package process

import "github.com/signalbox-dev/signalbox/protocol"

// Force starts a new round although nothing changed: the present one is cancelled, unless its
// outcome is decided. Members that are absent leave. PRECONDITION_FAILED: there are no members.
func (p *Process) Force(at Now, text string, out *Out) error {
	p.fireDeadlines(at, out)
	if len(p.members) == 0 {
		return protocol.Errorf(protocol.StatusPreconditionFailed, "process has no members; there is nobody to go through a round")
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

// Evict takes a member out, its key too; its session, if it lives, is notified, and continues.
// NOT_FOUND: it is no member.
func (p *Process) Evict(at Now, session uint64, text string, out *Out) error {
	p.fireDeadlines(at, out)
	for _, m := range p.members {
		if m.session != session {
			continue
		}
		if !m.absent {
			p.rememberFormer(at, m, protocol.RemovedByOperator)
			p.notifyRemoved(p.findFormer(m.session), out)
		}
		p.remove(m, truncate("evicted by an operator: "+text), out)
		p.topologyChanged(at, "topology changed: a member was evicted", out)
		return nil
	}
	return notMember(session, "")
}

// Alter changes the options. Deadlines that are running stay as they are.
func (p *Process) Alter(at Now, options protocol.ProcessOptions, out *Out) error {
	p.fireDeadlines(at, out)
	options, err := withDefaults(options)
	if err != nil {
		return err
	}
	p.options = options
	out.Changes = append(out.Changes, protocol.ProcessChange{Kind: protocol.ProcessAltered, Phase: p.phase, Epoch: p.round.epoch, Topology: p.topology})
	return nil
}
