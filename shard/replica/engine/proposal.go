package engine

import (
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/client"
)

// Outcome of a proposal as the engine reports it.
type Outcome uint8

const (
	Pending   Outcome = iota
	Completed         // applied here
	Dropped           // it never entered the log, and never will
	Unknown           // timed out, terminated or aborted: it may be applied, even much later
)

// Proposal is a proposal in the engine.
type Proposal interface {
	// Poll returns the outcome once; then the proposal is used up.
	Poll() Outcome
}

// requestState is the engine's proposal. The engine's convenience functions give the same error for
// a proposal that was never made and one with an unknown outcome.
type requestState dragonboat.RequestState

func (s *requestState) Poll() Outcome {
	r := (*dragonboat.RequestState)(s)
	select {
	case res := <-r.AppliedC():
		r.Release()
		switch {
		case res.Completed():
			return Completed
		case res.Dropped():
			return Dropped
		}
		return Unknown
	default:
		return Pending
	}
}

// Propose hands an entry to the engine, which copies it. An error means that it was not proposed.
// After the timeout its outcome is unknown.
func (e *Engine) Propose(s *client.Session, entry []byte, timeout time.Duration) (Proposal, error) {
	r, err := e.ProposeRequest(s, entry, timeout)
	if err != nil {
		return nil, err
	}
	return (*requestState)(r), nil
}

// ProposeRequest is Propose for a caller that waits for the engine's own answer.
func (e *Engine) ProposeRequest(
	s *client.Session, entry []byte, timeout time.Duration,
) (*dragonboat.RequestState, error) {
	return Call(e, func(nh *dragonboat.NodeHost) (*dragonboat.RequestState, error) {
		return nh.Propose(s, entry, timeout)
	})
}
