package process

import "github.com/signalbox-dev/signalbox/protocol"

// Force starts a new round although nothing changed: the present one is cancelled, unless its outcome is decided. Members that are absent leave.
// PRECONDITION_FAILED: there are no members.
func (p *Process) Force(at Moment, text string, out *Out) error {
	p.fire(at, out)
	if len(p.members) == 0 {
		return protocol.Errorf(protocol.StatusPreconditionFailed, "process has no members; there is nobody to go through a round")
	}
	for _, m := range p.members {
		if m.absent {
			p.changed(at, "forced", out)
			break
		}
	}
	switch p.phase {
	case PhaseIdle: // only absent members were there
		return nil
	case PhaseCompleting:
		p.pending, p.start = true, at.Time
		return nil
	case PhasePreparing, PhaseCoordinating:
		p.end(at, OutcomeCancelled, cut("forced by an operator: "+text), out)
	}
	p.attempt = 0
	p.await(at, at.Time, out)
	return nil
}

// Evict takes a member out, its key too; its session, if it lives, is told, and lives on. NOT_FOUND: it is no member.
func (p *Process) Evict(at Moment, session uint64, text string, out *Out) error {
	p.fire(at, out)
	for _, m := range p.members {
		if m.session != session {
			continue
		}
		if !m.absent {
			p.remember(at, m, RemovedByOperator)
			p.tellRemoved(p.formerly(m.session), out)
		}
		p.remove(m, cut("evicted by an operator: "+text), out)
		p.changed(at, "topology changed: a member was evicted", out)
		return nil
	}
	return notMember(session, "")
}

// Alter changes the options. Deadlines that are running stay as they are.
func (p *Process) Alter(at Moment, options Options, out *Out) error {
	p.fire(at, out)
	options, err := options.filled()
	if err != nil {
		return err
	}
	p.options = options
	out.Changes = append(out.Changes, Change{Kind: ChangeOptions, Phase: p.phase, Epoch: p.round.epoch, Topology: p.topology})
	return nil
}
