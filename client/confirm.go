package client

import (
	"context"

	"github.com/signalbox-dev/signalbox/protocol"
)

// confirm asks the server about a lease, and ends it if it is the session's no more.
func (l *Lease) confirm(ctx context.Context) {
	s := l.s
	e, _, _, err := s.nameLocks.lock(ctx, s, l.name, lockNext)
	if err != nil {
		return
	}
	defer s.nameLocks.unlockOf(s, e)
	var req protocol.Acquire
	var reply protocol.AcquireReply
	s.mu.Lock()
	over := e.lease != l || l.over != nil
	req = protocol.Acquire{Name: []byte(l.name), Count: l.count, Ephemeral: l.ephemeral}
	seq := l.seq
	s.mu.Unlock()
	if over {
		return
	}
	route, _, err := s.send(ctx, protocol.KindAcquire, l.bucket, &requestState{seq: seq, head: &req.Head}, &req, &reply)
	if err != nil && !answered(err) {
		return // the session is over
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.lease != l || l.over != nil {
		return
	}
	switch {
	case err == nil && reply.State == protocol.Acquired && reply.OrderID == l.token:
		l.route = route
		if route.isBroken() {
			s.confirmAgain = true
		}
	case protocol.StatusOf(err) == protocol.StatusBadSession || protocol.StatusOf(err) == protocol.StatusInternal:
		s.c.cfg.Logger.Warn("lease could not be confirmed", "session", s.id, "semaphore", l.name, "error", err)
	case err != nil:
		s.nameLocks.lose(e, err.Error())
	default:
		s.nameLocks.lose(e, "it was taken away while the connection was lost")
	}
}
