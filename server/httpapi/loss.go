package httpapi

import (
	"cmp"
	"errors"
	"slices"

	"github.com/signalbox-dev/signalbox/client"
)

// losses are why sessions ended, or lost leases, for requests that come after that: of the latest 256
// sessions.
type losses struct {
	of   map[sessionName]*sessionLosses
	keys [256]sessionName // in the order in which they came, around
	n    int
}

// sessionLosses are those of a session, the oldest first: each lease has its own.
type sessionLosses struct {
	list []noted // at most maxNoted
	n    int     // its place in the order
}

// noted is the loss of a lease; empty: of the session, and so of what it held then.
type noted struct {
	lease string
	loss  *client.Loss
}

const maxNoted = 8

// noteLoss keeps why a session has ended, or has lost a lease; nil: it is alive, or held. One that has moved
// to another gateway lost nothing.
func (s *session) noteLoss(lease string, why error) {
	l := &s.api.losses
	loss, ok := errors.AsType[*client.Loss](why)
	s.api.mu.Lock()
	defer s.api.mu.Unlock()
	x := l.of[s.sessionName]
	switch {
	case why == nil, errors.Is(why, client.ErrTakenOver), errors.Is(why, client.ErrSessionClosed):
		if x == nil {
			return
		}
		x.list = slices.DeleteFunc(x.list, func(y noted) bool { return lease == "" || lease == y.lease })
		if len(x.list) == 0 {
			delete(l.of, s.sessionName)
		}
	case !ok: // it says nothing new
	case x != nil && lease != "" && x.of("") != nil: // it ended with its session
	default:
		if x == nil {
			x = new(sessionLosses)
		}
		x.list = slices.DeleteFunc(x.list, func(y noted) bool { return lease == y.lease })
		if len(x.list) == maxNoted {
			x.list = slices.Delete(x.list, 0, 1)
		}
		x.list = append(x.list, noted{lease, loss})
		at := &l.keys[l.n%len(l.keys)]
		if old := l.of[*at]; old != nil && old.n == l.n-len(l.keys) {
			delete(l.of, *at)
		}
		*at, l.of[s.sessionName], x.n = s.sessionName, x, l.n
		l.n++
	}
}

// of is the loss of a lease alone; empty: of the session.
func (x *sessionLosses) of(lease string) *client.Loss {
	if i := slices.IndexFunc(x.list, func(y noted) bool { return y.lease == lease }); i >= 0 {
		return x.list[i].loss
	}
	return nil
}

// lossOf is what noteLoss has kept; nil: nothing.
func (s *session) lossOf(lease string) *client.Loss {
	s.api.mu.Lock()
	defer s.api.mu.Unlock()
	return s.api.losses.get(s.sessionName, lease)
}

// get is what noteLoss has kept; nil: nothing. The API's lock is held.
func (l *losses) get(session sessionName, lease string) *client.Loss {
	if x := l.of[session]; x != nil {
		return cmp.Or(x.of(lease), x.of(""))
	}
	return nil
}
