package process

import (
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// record puts the present round into the history.
func (p *Process) record(at Now, outcome protocol.ProcessOutcome, text string, out *Out) {
	r := &p.round
	e := protocol.ProcessHistoryRound{
		Epoch: r.epoch, Topology: r.topology, Coordinator: r.session, Size: r.size, Attempt: r.attempt, Wall: r.wall, Duration: since(at.Log, r.started),
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
	out.Changes = append(out.Changes, protocol.ProcessChange{Kind: protocol.ProcessRoundEnded, Outcome: outcome, Epoch: r.epoch, Topology: r.topology, Text: e.Text})
}

func since(now, then uint64) uint64 {
	if now < then {
		return 0
	}
	return now - then
}

// Latest is the round that ended last; false: none did.
func (p *Process) Latest() (protocol.ProcessHistoryRound, bool) {
	if len(p.history) == 0 {
		return protocol.ProcessHistoryRound{}, false
	}
	return p.history[len(p.history)-1], true
}

// History is the last rounds that ended, the newest last. The slice is the caller's.
func (p *Process) History() []protocol.ProcessHistoryRound { return slices.Clone(p.history) }

// Describe reads everything but the history.
func (p *Process) Describe() protocol.ProcessStatus {
	d := protocol.ProcessStatus{
		Phase: p.phase, Epoch: p.round.epoch, Topology: p.topology, Coordinator: p.round.session, Attempt: p.attempt, Started: p.round.wall, Start: p.start,
		Options: p.options, Counters: p.counters,
	}
	for _, m := range p.members {
		s := protocol.ProcessMemberInfo{Member: m.view(), Status: m.status, Token: m.token, Joined: m.joined}
		if m.absent {
			s.Status, s.Until = protocol.MemberAbsent, m.until
		}
		d.Members = append(d.Members, s)
	}
	return d
}
