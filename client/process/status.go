package process

import (
	"errors"
	"slices"
	"time"

	machine "github.com/signalbox-dev/signalbox/client/internal/membership"
	"github.com/signalbox-dev/signalbox/client/internal/millis"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Phase is the state of a process.
type Phase = protocol.ProcessPhase

const (
	Idle         = protocol.PhaseIdle         // no members
	Waiting      = protocol.PhaseWaiting      // a round starts at a time: see Status.StartsIn
	Preparing    = protocol.PhasePreparing    // members prepare
	Coordinating = protocol.PhaseCoordinating // all have prepared, the coordinator is at work
	Completing   = protocol.PhaseCompleting   // it is decided complete, members have yet to confirm
	Completed    = protocol.PhaseCompleted    // all have
)

// MemberState is the state of a member in the present round.
type MemberState = protocol.ProcessMemberStatus

const (
	MemberOutside    = protocol.MemberOutside    // it joined after the round started, or there is none
	MemberPreparing  = protocol.MemberPreparing  // it was asked to prepare
	MemberPrepared   = protocol.MemberPrepared   // its Prepare has returned
	MemberCompleting = protocol.MemberCompleting // it was notified that the round is complete
	MemberCompleted  = protocol.MemberCompleted  // its Complete has returned
	MemberResuming   = protocol.MemberResuming   // it came back by its key, and gets the round that the others completed
	MemberAbsent     = protocol.MemberAbsent     // its session has ended, and its key keeps its place
)

// Outcome says how a round ended.
type Outcome = protocol.ProcessOutcome

const (
	OutcomeCompleted = protocol.RoundCompleted
	OutcomeCancelled = protocol.RoundCancelled // the members changed, or an operator forced another round
	OutcomeFailed    = protocol.RoundFailed    // a handler failed, or the round timeout passed; it was tried again
)

// Status describes a process at a moment.
type Status struct {
	Name        string
	Phase       Phase
	Epoch       uint64 // of the present round, or the last
	Topology    uint64 // version of the list of members
	Coordinator uint64 // session
	Attempt     uint64 // how many rounds of this topology failed
	Started     time.Time
	StartsIn    time.Duration // until the next round starts, while Phase is Waiting
	Options     Options       // those of the process
	Tally       Tally
	Members     []MemberStatus // in order of joining
	History     []PastRound    // the last rounds, the newest last
}

// Tally counts since the process was created: changes of the topology; rounds started, completed,
// cancelled and failed; members that returned without a round; calls that came too late for their
// round.
type Tally = protocol.ProcessCounters

// MemberStatus describes a member.
type MemberStatus struct {
	Member
	State    MemberState
	LeavesIn time.Duration // until an absent one loses its place
	Token    uint64
	Joined   time.Time
}

// PastRound is a round that is over.
type PastRound struct {
	Epoch       uint64
	Topology    uint64
	Coordinator uint64 // session
	Size        int    // members when it started
	Attempt     uint64
	Started     time.Time
	Prepared    time.Duration // from the start until all had prepared, 0 if they never did
	Decided     time.Duration // until it was decided complete, 0 if it never was
	Lasted      time.Duration // until it was over
	Outcome     Outcome
	Text        string // why it was given up
}

// Info is a process in a list.
type Info struct {
	Name        string
	Phase       Phase
	Epoch       uint64
	Topology    uint64
	Coordinator uint64 // session
	Members     int
}

// Lagging are the members that the round waits for: those that have not prepared, or not confirmed
// its end.
func (s *Status) Lagging() []MemberStatus {
	return slices.DeleteFunc(slices.Clone(s.Members), func(m MemberStatus) bool {
		return m.State != MemberPreparing && m.State != MemberCompleting && m.State != MemberResuming
	})
}

func statusOf(w *protocol.ProcessStatus) *Status {
	s := &Status{
		Name: string(w.Name), Phase: w.Phase, Epoch: w.Epoch, Topology: w.Topology, Coordinator: w.Coordinator,
		Attempt: w.Attempt, Started: millis.Time(w.Started),
		Options: optionsOf(&w.Options), Tally: w.Counters, History: make([]PastRound, 0, len(w.History)),
	}
	if w.Phase == Waiting {
		s.StartsIn = until(w.Clock, w.Start)
	}
	s.add(w)
	for i := range w.History {
		h := &w.History[i]
		s.History = append(s.History, PastRound{
			Epoch: h.Epoch, Topology: h.Topology, Coordinator: h.Coordinator, Size: int(h.Size),
			Attempt: h.Attempt, Started: millis.Time(h.Wall), Prepared: millis.Duration(h.Prepared),
			Decided: millis.Duration(h.Decided), Lasted: millis.Duration(h.Duration),
			Outcome: h.Outcome, Text: h.Text,
		})
	}
	return s
}

func (s *Status) add(w *protocol.ProcessStatus) {
	for i := range w.Members {
		m := &w.Members[i]
		x := MemberStatus{Member: m.Member, State: m.Status, Token: m.Token, Joined: millis.Time(m.Joined)}
		if m.Status == MemberAbsent {
			x.LeavesIn = until(w.Clock, m.Until)
		}
		s.Members = append(s.Members, x)
	}
}

func optionsOf(o *protocol.ProcessOptions) Options {
	return Options{
		Election: o.Election, Debounce: millis.Duration(o.Debounce),
		RoundTimeout: millis.Duration(o.RoundTimeout),
		BackoffMin:   millis.Duration(o.BackoffMin), BackoffMax: millis.Duration(o.BackoffMax),
		Return: millis.Duration(o.Return),
	}
}

// until is how long log time takes from now to at.
func until(now, at uint64) time.Duration {
	if at <= now {
		return 0
	}
	return millis.Duration(at - now)
}

// Stats counts what happened in a membership so far.
type Stats struct {
	Epoch     uint64 // of the newest round heard of
	Prepared  uint64 // rounds that were prepared here; each is completed or cancelled in the end
	Completed uint64
	Cancelled uint64

	Asked    uint64 // messages of this member, those to itself included
	Answered uint64 // of them, by all receivers
	GivenUp  uint64
	Pending  int    // of them, neither yet
	Slow     uint64 // of them, those that lacked answers for 10 s; each is logged, too
	Handled  uint64 // messages of others that Process took without an error

	Failures uint64 // callbacks that returned an error, or panicked
	Panics   uint64 // of them, those that panicked
	Repeated uint64 // what was sent to the server again, for want of an answer
}

var (
	errPanicked = errors.New("panicked")
	errExited   = errors.New("handler ended its goroutine")
)

// Stats returns the counters.
func (p *Membership) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Epoch, s.Pending = p.m.Epoch(), len(p.requests)
	return s
}

func (s *Stats) countJob(kind machine.JobKind, err error) {
	if err != nil {
		s.Failures++
		if errors.Is(err, errPanicked) {
			s.Panics++
		}
	}
	switch kind {
	case machine.JobPrepare:
		if err == nil {
			s.Prepared++
		}
	case machine.JobProcess:
		if err == nil {
			s.Handled++
		}
	case machine.JobComplete:
		s.Completed++
	case machine.JobCancel:
		s.Cancelled++
	case machine.JobAnswered:
		s.Answered++
	case machine.JobGivenUp:
		s.GivenUp++
	}
}
