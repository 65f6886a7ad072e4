package httpapi

import (
	"errors"

	"github.com/signalbox-dev/signalbox/client"
)

// losses are why sessions ended, or lost leases, for requests that come after that: the latest 256, one
// of each session.
type losses struct {
	of   map[sessionName]noted
	keys [256]sessionName // in the order in which they came, around
	n    int
}

// noted is the loss of a lease; empty: of the whole session, and so of all its leases.
type noted struct {
	lease string
	loss  *client.Loss
	n     int // its place in the order
}

// noteLoss keeps why a session has ended, or has lost a lease; nil: it is alive, or held. One that has moved
// to another gateway lost nothing.
func (s *session) noteLoss(lease string, why error) {
	l := &s.api.losses
	loss, ok := errors.AsType[*client.Loss](why)
	s.api.mu.Lock()
	defer s.api.mu.Unlock()
	switch x, known := l.of[s.sessionName]; {
	case why == nil, errors.Is(why, client.ErrTakenOver), errors.Is(why, client.ErrSessionClosed):
		if known && (lease == "" || lease == x.lease) {
			delete(l.of, s.sessionName)
		}
	case !ok: // it says nothing new
	case known && x.lease == "" && lease != "": // it ended with its session
	default:
		at := &l.keys[l.n%len(l.keys)]
		if x := l.of[*at]; x.loss != nil && x.n == l.n-len(l.keys) {
			delete(l.of, *at)
		}
		*at, l.of[s.sessionName] = s.sessionName, noted{lease, loss, l.n}
		l.n++
	}
}

// lossOf is what noteLoss has kept; nil: nothing.
func (s *session) lossOf(lease string) *client.Loss {
	s.api.mu.Lock()
	defer s.api.mu.Unlock()
	if x := s.api.losses.of[s.sessionName]; x.lease == "" || x.lease == lease {
		return x.loss
	}
	return nil
}
