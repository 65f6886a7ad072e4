package client

import (
	"context"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// maxConcurrentConfirms is how many leases of a session are confirmed at a shard at a time.
const maxConcurrentConfirms = 64

// confirmLeases asks the server about the session's leases whose route is broken: while the
// connection was lost, nobody could report that one was taken away by force. The question is the
// acquire itself with its old number, which the server answers with the present state and without a
// change. No lease waits for the answer about a lease of another shard, which may never come.
func confirmLeases(s *Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := range s.nameLocks.all {
		if l := e.lease; l != nil && !l.confirming && l.isUnconfirmed() {
			l.confirming = s.c.run(func() { confirmUntilDone(l) })
		}
	}
}

// isUnconfirmed says that events of the lease may have been missed. It is false while the session
// is not attached: the next attach asks again. session.mu is held.
func (l *Lease) isUnconfirmed() bool {
	s := l.s
	return l.over == nil && s.err == nil && s.attachment != nil &&
		(l.route.att != s.attachment || l.route.isBroken(s, l.bucket))
}

// confirmUntilDone goes on until the lease is confirmed on a route that is not broken since.
func confirmUntilDone(l *Lease) {
	s := l.s
	retry := backoff{base: retryBase, max: retryMax}
	for pause := time.Duration(0); ; pause = retry.next() {
		sleep(s.ctx, nil, pause)
		slots := confirmSlots(s, s.c.routes.Load().owner(s.node.tier, l.bucket))
		select {
		case slots <- struct{}{}:
			l.confirm(s.ctx)
			<-slots
		case <-s.ctx.Done():
		}
		s.mu.Lock()
		l.confirming = l.isUnconfirmed()
		again := l.confirming
		s.mu.Unlock()
		if !again {
			return
		}
	}
}

// confirmSlots bounds how many leases are confirmed at a shard at a time.
func confirmSlots(s *Session, shard uint64) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.confirms == nil {
		s.confirms = make(map[uint64]chan struct{})
	}
	if s.confirms[shard] == nil {
		s.confirms[shard] = make(chan struct{}, maxConcurrentConfirms)
	}
	return s.confirms[shard]
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
		return // the session is over, or no connection could be made
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.lease != l || l.over != nil || s.err != nil {
		return
	}
	switch {
	case err == nil && reply.State == protocol.Acquired && reply.OrderID == l.token:
		l.route = route
	case protocol.StatusOf(err) == protocol.StatusBadSession: // the next attach decides whose the session is
		s.c.cfg.Logger.Debug("lease could not be confirmed", "session", s.id, "semaphore", l.name, "error", err)
	case endsEntry(err):
		s.nameLocks.lose(e, err.Error())
	case err != nil:
		s.nameLocks.lose(e, err.Error())
		releaseNext(s, e, l.bucket, l.token, s.m.Timeout()/20)
	default:
		s.nameLocks.lose(e, "it was taken away while the connection was lost")
	}
}
