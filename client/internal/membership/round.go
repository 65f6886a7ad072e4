package membership

import (
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// JobKind says which callback is to run.
type JobKind uint8

const (
	JobPrepare    JobKind = 1
	JobCoordinate JobKind = 2
	JobProcess    JobKind = 3 // From, Number, Payload
	JobComplete   JobKind = 4
	JobCancel     JobKind = 5
	JobAnswered   JobKind = 6 // a message of this member has all its answers: Number, Answers
	JobGivenUp    JobKind = 7 // a message of this member will not have them all: Number, Answers
	JobTerminate  JobKind = 8 // the last one
)

var jobNames = [...]string{"", "prepare", "coordinate", "process", "complete", "cancel",
	"answered", "given-up", "terminate"}

// String is the kind's name: prepare, coordinate, process, complete, cancel, answered, given-up,
// terminate.
func (k JobKind) String() string { return jobNames[k] }

// Job is a callback to run.
type Job struct {
	Kind    JobKind
	Round   *Round // nil for JobTerminate
	From    uint64
	Number  uint64
	Payload []byte
	Answers []Answer

	round *round
}

// NextJob is the next callback to run. The one before must be done.
func (m *Machine) NextJob() (Job, bool) {
	if m.running || len(m.jobs) == 0 {
		return Job{}, false
	}
	j := m.jobs[0]
	m.jobs = slices.Delete(m.jobs, 0, 1)
	m.running, m.runningRound = true, j.round
	return j, true
}

// HandleRound processes what the server says about a round.
func (m *Machine) HandleRound(now time.Duration, e *protocol.ProcessRound) {
	if m.ended != nil {
		return
	}
	if e.Kind == protocol.RoundRemoved {
		why := ErrEvicted
		if e.Removal == protocol.RemovedByReplacement {
			why = ErrReplaced
		}
		m.End(now, e.CompletedEpoch, why)
		return
	}
	if e.Epoch < m.epoch {
		return
	}
	newer := e.Epoch > m.epoch
	r := m.round
	switch e.Kind {
	case protocol.RoundPrepare, protocol.RoundResume:
		switch {
		case newer:
			m.startRound(e)
		case r == nil || r.failed:
		case r.over && r.endRan && r.completed:
			m.confirm(r.Epoch, protocol.StepCompleted)
		case r.prepared && !r.over:
			m.confirm(r.Epoch, protocol.StepPrepared)
		}
	case protocol.RoundCoordinate:
		switch {
		case newer:
			m.sync(now)
		case r != nil && r.prepared && !r.over && !r.coordinated:
			r.coordinated = true
			m.jobs = append(m.jobs, Job{Kind: JobCoordinate, Round: &r.Round, round: r})
		}
	case protocol.RoundCancel:
		if newer || r != nil && !r.over {
			m.supersede(e.CompletedEpoch)
		}
		if newer { // never to be prepared
			m.epoch, m.round = e.Epoch, nil
		}
	case protocol.RoundComplete:
		switch {
		case newer:
			m.sync(now)
		case r == nil:
		case r.prepared && !r.over:
			r.Result = e.Result
			m.finish(r.Epoch)
		case r.endRan && r.completed:
			m.confirm(r.Epoch, protocol.StepCompleted)
		}
	}
}

func (m *Machine) startRound(e *protocol.ProcessRound) {
	m.supersede(e.CompletedEpoch)
	// of a round that is over
	m.pending = slices.DeleteFunc(m.pending, func(d *pendingSend) bool { return d.Kind != protocol.KindProcessSync })
	r := &round{previousEpoch: m.epoch, senders: make(map[uint64]*messageSender), Round: Round{
		Epoch: e.Epoch, Topology: e.Topology, Coordinator: e.Coordinator, Attempt: e.Attempt,
		Token: e.Token, Members: e.Members,
	}}
	if e.Kind == protocol.RoundResume {
		r.Resumed, r.Result = true, e.Result
	}
	m.epoch, m.round = e.Epoch, r
	m.jobs = append(m.jobs, Job{Kind: JobPrepare, Round: &r.Round, round: r})
}

// supersede ends the round that is open, because a later one is known: its context ends at once,
// however it ended, since what the handler works with is the past.
func (m *Machine) supersede(decided uint64) {
	if r := m.round; r != nil && !r.endRan {
		m.ready.Superseded = append(m.ready.Superseded, r.Epoch)
	}
	m.finish(decided)
}

// finish ends the round that is open: complete if its epoch was completed, else cancelled.
func (m *Machine) finish(decided uint64) {
	r := m.round
	if r == nil || r.over {
		return
	}
	begun := r.prepared || m.running && m.runningRound == r
	r.over, r.completed = true, decided == r.Epoch
	m.pending = slices.DeleteFunc(m.pending,
		func(d *pendingSend) bool { return d.Epoch == r.Epoch && d.Kind != protocol.KindProcessSync })
	undelivered := slices.DeleteFunc(slices.Clone(m.jobs),
		func(j Job) bool { return j.round != r || j.Kind != JobAnswered && j.Kind != JobGivenUp })
	m.jobs = slices.DeleteFunc(m.jobs, func(j Job) bool { return j.round == r })
	for _, j := range undelivered {
		r.requests = append(r.requests, &sentRequest{number: j.Number, answers: j.Answers})
	}
	slices.SortFunc(r.requests, func(a, b *sentRequest) int { return int(a.number) - int(b.number) })
	if !begun || r.prepared {
		m.queueRoundEnd(r)
	} // else Prepare runs: what follows depends on how it ends
}

// queueRoundEnd lets the end of a round run, before anything of newer ones.
func (m *Machine) queueRoundEnd(r *round) {
	var tail []Job
	if r.prepared {
		kind := JobCancel
		if r.completed {
			kind = JobComplete
		}
		tail = append(tail, Job{Kind: kind, Round: &r.Round, round: r})
	} else {
		r.endRan = true // its handler never had it
	}
	for _, a := range r.requests {
		tail = append(tail, Job{Kind: JobGivenUp, Round: &r.Round, Number: a.number, Answers: a.answers, round: r})
	}
	r.requests, r.endQueued = nil, true
	m.jobs = append(tail, m.jobs...)
}

// JobDone says how a callback ended. The error of one that cannot fail is ignored.
func (m *Machine) JobDone(now time.Duration, j Job, err error) {
	m.running, m.runningRound = false, nil
	r := j.round
	switch j.Kind {
	case JobPrepare:
		r.prepared = err == nil
		switch {
		case r.over:
			m.queueRoundEnd(r)
		case r.prepared && r.Resumed:
			m.finish(r.Epoch)
		case r.prepared:
			m.confirm(r.Epoch, protocol.StepPrepared)
		case r.Resumed: // decided complete: it cannot fail. Told of it again, it is tried again
			m.supersede(0)
			m.epoch, m.round = r.previousEpoch, nil
			m.scheduleRetry(now, m.delayedSync())
		default:
			m.ready.Superseded = append(m.ready.Superseded, r.Epoch)
			m.fail(r, err)
		}
	case JobCoordinate:
		if err != nil && !r.completing {
			m.fail(r, err)
		}
	case JobProcess:
		m.processed(j, err)
	case JobComplete:
		r.endRan = true
		m.ready.Superseded = append(m.ready.Superseded, r.Epoch)
		if r == m.round && m.ended == nil {
			m.confirm(r.Epoch, protocol.StepCompleted)
		}
	case JobCancel:
		r.endRan = true
	}
}

func (m *Machine) delayedSync() *pendingSend {
	for _, d := range m.pending {
		if d.Kind == protocol.KindProcessSync && !d.inFlight {
			return d
		}
	}
	return m.addPending(Send{Kind: protocol.KindProcessSync, Epoch: m.epoch})
}

// Complete completes the round with a result, for the coordinator. A repeated call does nothing.
func (m *Machine) Complete(epoch uint64, result []byte) error {
	r := m.round
	switch {
	case len(result) > protocol.MaxProcessResult:
		return ErrTooLarge
	case m.ended != nil || r == nil || r.Epoch != epoch:
		return ErrRoundOver
	case r.Coordinator != m.session:
		return ErrNotCoordinator
	case r.over && r.completed || r.completing:
		return nil
	case r.over || r.failed:
		return ErrRoundOver
	case !r.coordinated:
		return ErrNotReady
	}
	r.completing = true
	m.addSend(Send{Kind: protocol.KindProcessComplete, Epoch: epoch, Payload: result})
	return nil
}
