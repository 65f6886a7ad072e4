package httpapi

import (
	"errors"

	"github.com/signalbox-dev/signalbox/client"
)

// losses are why sessions ended, or lost leases, for requests that come after that: the latest 256.
type losses struct {
	of   map[lossKey]*client.Loss
	keys [256]lossKey // in the order in which they came, around
	n    int
}

type lossKey struct {
	session sessionName
	lease   string // empty: the session ended
}

// noteLoss keeps why a session has ended, or has lost a lease; nil: it is alive, or held. One that has moved
// to another gateway lost nothing.
func (s *session) noteLoss(lease string, why error) {
	key, l := lossKey{s.sessionName, lease}, &s.api.losses
	loss, ok := errors.AsType[*client.Loss](why)
	s.api.mu.Lock()
	defer s.api.mu.Unlock()
	switch _, noted := l.of[key]; {
	case !ok && why != nil && !errors.Is(why, client.ErrSessionClosed): // it says nothing new
		return
	case !ok, errors.Is(why, client.ErrTakenOver):
		delete(l.of, key)
		return
	case noted:
		l.of[key] = loss
		return
	}
	at := &l.keys[l.n%len(l.keys)]
	l.n++
	delete(l.of, *at)
	*at, l.of[key] = key, loss
}

// lossOf is what noteLoss has kept; nil: nothing.
func (s *session) lossOf(lease string) *client.Loss {
	s.api.mu.Lock()
	defer s.api.mu.Unlock()
	return s.api.losses.of[lossKey{s.sessionName, lease}]
}
