package client

import (
	"context"

	"github.com/signalbox-dev/signalbox/protocol"
)

// maxConcurrentConfirms is how many leases of a session are confirmed at a shard at a time.
const maxConcurrentConfirms = 64

// confirmQueue is leases to be confirmed at a shard, and how many goroutines work on them.
type confirmQueue struct {
	leases  []*Lease // one that is filed elsewhere by now is passed over
	workers int
}

// confirmLeases asks the server about the session's leases whose route is broken: while the
// connection was lost, nobody could report that one was taken away by force. The question is the
// acquire itself with its old number, which the server answers with the present state and without a
// change. No lease waits for the answer about a lease of another shard, which may never come: when
// a bucket has moved, its leases are filed again, also those whose question is on its way.
func confirmLeases(s *Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := range s.nameLocks.all {
		switch l := e.lease; {
		case l == nil || !l.isUnconfirmed():
		case l.recall != nil:
			l.recall(s.c.routes.Load().owner(s.node.tier, l.bucket))
		case !l.confirming || l.queued != nil:
			l.queueConfirm()
		}
	}
}

// queueConfirm files the lease under the shard that owns its bucket now. session.mu is held.
func (l *Lease) queueConfirm() {
	s := l.s
	shard := s.c.routes.Load().owner(s.node.tier, l.bucket)
	q := s.confirms[shard]
	if q == nil {
		if s.confirms == nil {
			s.confirms = make(map[uint64]*confirmQueue)
		}
		q = new(confirmQueue)
		s.confirms[shard] = q
	}
	if l.queued == q {
		return
	}
	l.confirming, l.queued = true, q
	q.leases = append(q.leases, l)
	if q.workers < maxConcurrentConfirms && s.c.run(func() { confirmQueued(s, shard, q) }) {
		q.workers++
	}
}

// isUnconfirmed says that events of the lease may have been missed. It is false while the session
// is not attached: the next attach asks again. session.mu is held.
func (l *Lease) isUnconfirmed() bool {
	s := l.s
	return l.over == nil && s.err == nil && s.attachment != nil &&
		(l.route.att != s.attachment || l.route.isBroken(s, l.bucket))
}

// confirmQueued confirms leases of a queue until it is empty. One that is still to be confirmed is
// filed again, after a pause.
func confirmQueued(s *Session, shard uint64, q *confirmQueue) {
	retry := backoff{base: retryBase, max: retryMax}
	for {
		s.mu.Lock()
		l := q.next()
		if l == nil {
			if q.workers--; q.workers == 0 {
				delete(s.confirms, shard)
			}
			s.mu.Unlock()
			return
		}
		ctx, cancel := context.WithCancel(s.ctx)
		l.recall = func(owner uint64) {
			if owner != shard {
				cancel()
			}
		}
		s.mu.Unlock()
		l.confirm(ctx)
		recalled := ctx.Err() != nil
		cancel()
		s.mu.Lock()
		l.recall = nil
		again := l.isUnconfirmed()
		s.mu.Unlock()
		if again && !recalled {
			sleep(s.ctx, nil, retry.next())
		}
		s.mu.Lock()
		if l.confirming = false; l.isUnconfirmed() {
			l.queueConfirm()
		}
		s.mu.Unlock()
	}
}

// next takes the first lease that is still to be confirmed. session.mu is held.
func (q *confirmQueue) next() *Lease {
	for len(q.leases) > 0 {
		l := q.leases[0]
		q.leases[0], q.leases = nil, q.leases[1:]
		if l.queued != q {
			continue
		}
		if l.queued = nil; l.isUnconfirmed() {
			return l
		}
		l.confirming = false
	}
	return nil
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
