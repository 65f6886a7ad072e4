package replica

import (
	"github.com/lni/dragonboat/v4"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/replica/proposal"
)

// outcome of a proposal as the engine reports it.
type outcome uint8

const (
	pending   outcome = iota
	completed         // applied here
	dropped           // it never entered the log, and never will
	unknown           // timed out, terminated or aborted: it may be applied, even much later
)

// engineProposal is a proposal in the engine.
type engineProposal interface {
	// poll returns the outcome once; then the proposal is used up.
	poll() outcome
}

// requestState is the engine's proposal. The engine's convenience functions give the same error for
// a proposal that was never made and one with an unknown outcome.
type requestState dragonboat.RequestState

func (s *requestState) poll() outcome {
	r := (*dragonboat.RequestState)(s)
	select {
	case res := <-r.AppliedC():
		r.Release()
		switch {
		case res.Completed():
			return completed
		case res.Dropped():
			return dropped
		}
		return unknown
	default:
		return pending
	}
}

// fail reports that batches were never applied and never will be.
func (p *proposer) fail(list []*proposal.Batch, st protocol.Status) {
	s := p.s
	for _, b := range list {
		if len(b.Origins) > len(b.Waiters) {
			s.sink.Failed(s, b.Origins, st)
		}
		for i := range b.Waiters {
			w := &b.Waiters[i]
			if w.Done != nil {
				w.Done(protocol.Errorf(st,
					"shard %d lost its leadership here before this was applied; ask its leader again", s.cfg.ID))
			} else {
				s.tasks.done(w.Task, false)
			}
		}
	}
}

// cutUndetermined ends what is in flight without an outcome: this replica can no longer learn it
// from the log. It closes the connections: their clients send again elsewhere and get the first
// reply from the request memory.
func (p *proposer) cutUndetermined(reason string) {
	s := p.s
	var last uint64
	for _, b := range s.proposals.TakeInFlight() {
		for _, o := range b.Origins {
			if o.Conn != 0 && o.Conn != last {
				last = o.Conn
				s.sink.Cut(s, o.Conn, reason)
			}
		}
		for i := range b.Waiters {
			if w := &b.Waiters[i]; w.Done != nil {
				w.Done(protocol.Errorf(protocol.StatusUnavailable, "%s; ask again", reason))
			}
		}
	}
}
