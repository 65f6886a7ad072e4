package client

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client/sessionstate"
	"github.com/signalbox-dev/signalbox/protocol"
)

// maxConcurrentConfirms is how many leases are confirmed at a time after a reconnect.
const maxConcurrentConfirms = 64

// confirm asks the server about leases whose route is broken: while the connection was lost, nobody
// could report that one was taken away by force. The question is the acquire itself with its old
// number, which the server answers with the present state and without a change.
func (s *Session) confirm() {
	s.step(func(*sessionstate.Machine, time.Duration) {
		s.confirmAgain = true
		if !s.confirming && s.err == nil {
			s.confirming = s.c.run(s.confirmAll)
		}
	})
}

// leaseMoved says that the shard of a route no longer owns the bucket, or has no replica where the
// route leads: events of the lease come from elsewhere.
func (c *Client) leaseMoved(route requestRoute, tier uint8, bucket uint32) bool {
	r := c.routes.Load()
	owner := r.owner(tier, bucket)
	return owner != 0 && (owner != route.shard || !slices.Contains(r.shards[owner].Replicas, route.cn.instance))
}

// confirmMoved confirms leases that another shard owns by the newest map. While they moved, nobody
// reported one that was taken away, and the new shard does not know the session yet.
func (c *Client) confirmMoved() {
	for _, s := range c.allSessions() {
		if s.hasMovedLease() {
			s.confirm()
		}
	}
}

func (s *Session) hasMovedLease() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := range s.nameLocks.all {
		if l := e.lease; l != nil && l.over == nil && s.c.leaseMoved(l.route, s.node.tier, l.bucket) {
			return true
		}
	}
	return false
}

func (s *Session) confirmAll() {
	for {
		s.mu.Lock()
		if !s.confirmAgain || s.err != nil || s.attachment == nil { // the next attach asks again
			s.confirming = false
			s.mu.Unlock()
			return
		}
		s.confirmAgain = false
		var unconfirmed []*Lease
		for e := range s.nameLocks.all {
			if l := e.lease; l != nil && l.over == nil && (l.route.att != s.attachment || l.route.isBroken() || s.c.leaseMoved(l.route, s.node.tier, l.bucket)) {
				unconfirmed = append(unconfirmed, l)
			}
		}
		s.mu.Unlock()
		var wg sync.WaitGroup
		slots := make(chan struct{}, maxConcurrentConfirms)
		for _, l := range unconfirmed {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				s.confirmLease(s.ctx, l)
			})
		}
		wg.Wait()
	}
}

func (s *Session) confirmLease(ctx context.Context, l *Lease) {
	e, _, _, err := s.lockName(ctx, l.name, false)
	if err != nil {
		return
	}
	defer s.unlockName(e)
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
		s.loseLocked(e, err.Error())
	default:
		s.loseLocked(e, "it was taken away while the connection was lost")
	}
}
