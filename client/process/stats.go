package process

import (
	"errors"

	machine "github.com/signalbox-dev/signalbox/client/internal/membership"
)

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
