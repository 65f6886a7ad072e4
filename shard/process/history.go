package process

import "slices"

// Outcome of a round.
type Outcome uint8

const (
	OutcomeCompleted Outcome = 1 // decided by its coordinator
	OutcomeCancelled Outcome = 2 // given up for the next: the topology changed, or an operator forced one
	OutcomeFailed    Outcome = 3 // a handler failed, or the round timeout passed; it was tried again
)

// String is the outcome's name: completed, cancelled, failed.
func (o Outcome) String() string {
	switch o {
	case OutcomeCompleted:
		return "completed"
	case OutcomeCancelled:
		return "cancelled"
	case OutcomeFailed:
		return "failed"
	}
	return "none"
}

// HistoryRound is a round of the history.
type HistoryRound struct {
	Epoch       uint64
	Topology    uint64
	Coordinator uint64 // session
	Size        uint64 // members when it started
	Attempt     uint64
	Wall        uint64 // wall clock of the start
	Prepared    uint64 // ms from the start until all had prepared, 0 if they never did
	Decided     uint64 // ms from the start until it was decided complete, 0 if it never was
	Duration    uint64 // ms from the start until it was over
	Outcome     Outcome
	Text        string // why it was given up
}

// record puts the present round into the history.
func (p *Process) record(at Now, outcome Outcome, text string, out *Out) {
	r := &p.round
	e := HistoryRound{
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
	case OutcomeCompleted:
		p.counters.Completed++
	case OutcomeCancelled:
		p.counters.Cancelled++
	case OutcomeFailed:
		p.counters.Failed++
	}
	out.Changes = append(out.Changes, Change{Kind: ChangeEnded, Outcome: outcome, Epoch: r.epoch, Topology: r.topology, Text: e.Text})
}

func since(now, then uint64) uint64 {
	if now < then {
		return 0
	}
	return now - then
}

// Latest is the round that ended last; false: none did.
func (p *Process) Latest() (HistoryRound, bool) {
	if len(p.history) == 0 {
		return HistoryRound{}, false
	}
	return p.history[len(p.history)-1], true
}

// History is the last rounds that ended, the newest last. The slice is the caller's.
func (p *Process) History() []HistoryRound { return slices.Clone(p.history) }

// MemberInfo is a member as describe shows it.
type MemberInfo struct {
	Member
	Status string // outside, preparing, prepared, completing, completed, resuming, absent
	Until  uint64 // log time up to which an absent one keeps its place
	Token  uint64
	Joined uint64 // wall clock
}

// Description of the process, for people.
type Description struct {
	Phase       Phase
	Epoch       uint64
	Topology    uint64
	Coordinator uint64 // session, of the present or last round
	Attempt     uint64
	Started     uint64 // wall clock, of the present or last round
	Start       uint64 // log time at which a round is due, while one is
	Members     []MemberInfo
	Options     Options
	Counters    Counters
}

// Describe reads everything but the history.
func (p *Process) Describe() Description {
	d := Description{
		Phase: p.phase, Epoch: p.round.epoch, Topology: p.topology, Coordinator: p.round.session, Attempt: p.attempt, Started: p.round.wall, Start: p.start,
		Options: p.options, Counters: p.counters,
	}
	for _, m := range p.members {
		s := MemberInfo{Member: m.view(), Status: memberStatusNames[m.status], Token: m.token, Joined: m.joined}
		if m.absent {
			s.Status, s.Until = "absent", m.until
		}
		d.Members = append(d.Members, s)
	}
	return d
}
