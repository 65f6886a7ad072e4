package client

import (
	"context"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client/sessionstate"
	"github.com/signalbox-dev/signalbox/protocol"
)

// maxConcurrentConfirms is how many leases are confirmed at a time after a reconnect.
const maxConcurrentConfirms = 64

// confirmLeases asks the server about the session's leases whose route is broken: while the
// connection was lost, nobody could report that one was taken away by force. The question is the
// acquire itself with its old number, which the server answers with the present state and without a
// change.
func confirmLeases(s *Session) {
	s.step(func(*sessionstate.Machine, time.Duration) {
		s.confirmAgain = true
		if !s.confirming && s.err == nil {
			s.confirming = s.c.run(func() { confirmUntilDone(s) })
		}
	})
}

// confirmUntilDone goes on until all leases are confirmed that it was asked for meanwhile.
func confirmUntilDone(s *Session) {
	retry := backoff{base: retryBase, max: retryMax}
	for pause := time.Duration(0); ; pause = retry.next() {
		s.mu.Lock()
		if !s.confirmAgain || s.err != nil || s.attachment == nil { // the next attach asks again
			s.confirming = false
			s.mu.Unlock()
			return
		}
		s.confirmAgain = false
		var unconfirmed []*Lease
		for e := range s.nameLocks.all {
			if l := e.lease; l != nil && l.over == nil && (l.route.att != s.attachment || l.route.isBroken() ||
				s.c.routes.Load().leaseMoved(l.route, s.node.tier, l.bucket)) {
				unconfirmed = append(unconfirmed, l)
			}
		}
		s.mu.Unlock()
		sleep(s.ctx, nil, pause)
		var wg sync.WaitGroup
		slots := make(chan struct{}, maxConcurrentConfirms)
		for _, l := range unconfirmed {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				l.confirm(s.ctx)
			})
		}
		wg.Wait()
	}
}

// confirm asks the server about a lease, and ends it if it is the session's no more. Any other
// refusal ends it too: it does not say whether the lease was taken away and granted to another
// session. The server may still have it for this one. It is released there, once the work under the
// lease has had the time to stop that Lease.Context names.
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
	if e.lease != l || l.over != nil || s.err != nil {
		return
	}
	switch status := protocol.StatusOf(err); {
	case err == nil && reply.State == protocol.Acquired && reply.OrderID == l.token:
		l.route = route
		if route.isBroken() {
			s.confirmAgain = true
		}
	case status == protocol.StatusBadSession: // the next attach decides whose the session is
		s.c.cfg.Logger.Debug("lease could not be confirmed", "session", s.id, "semaphore", l.name, "error", err)
		s.confirmAgain = true
	case status == protocol.StatusAborted || status == protocol.StatusNotFound ||
		status == protocol.StatusPreconditionFailed:
		s.nameLocks.lose(e, err.Error())
	case err != nil:
		s.nameLocks.lose(e, err.Error())
		releaseNext(s, e, l.bucket, l.token, s.m.Timeout()/20)
	default:
		s.nameLocks.lose(e, "it was taken away while the connection was lost")
	}
}
