package client

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/session"
	"github.com/signalbox-dev/signalbox/protocol"
)

// confirming is how many leases are confirmed at a time after a reconnect.
const confirming = 64

// confirm asks the server about leases whose trail is broken: while the link was away, nobody could tell that one was taken away by force. The question is the acquire
// itself, with its old number: the server answers what became of it, and changes nothing.
func (s *Session) confirm() {
	s.step(func(*session.Machine, time.Duration) {
		s.recheck = true
		if !s.checking && s.err == nil {
			s.checking = s.c.run(s.confirmAll)
		}
	})
}

// strayed says that the shard of a trail does not own the bucket any more, or has no replica where the trail leads: what becomes of an entry is told elsewhere.
func (c *Client) strayed(tr trail, tier uint8, bucket uint32) bool {
	r := c.routes.Load()
	owner := r.owner(tier, bucket)
	return owner != 0 && (owner != tr.shard || !slices.Contains(r.shards[owner].Replicas, tr.cn.instance))
}

// confirmStrayed asks about leases that another shard has by the newest map: while they moved, nobody told that one was taken away, and from now on it is told where
// the session has not been yet.
func (c *Client) confirmStrayed() {
	c.mu.Lock()
	sessions := slices.Collect(maps.Values(c.sessions))
	c.mu.Unlock()
	for _, s := range sessions {
		if s.hasStrayed() {
			s.confirm()
		}
	}
}

func (s *Session) hasStrayed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := range s.entries.all {
		if l := e.lease; l != nil && l.over == nil && s.c.strayed(l.tr, s.node.tier, l.bucket) {
			return true
		}
	}
	return false
}

func (s *Session) confirmAll() {
	for {
		s.mu.Lock()
		if !s.recheck || s.err != nil || s.att == nil { // the next attach asks again
			s.checking = false
			s.mu.Unlock()
			return
		}
		s.recheck = false
		var doubted []*Lease
		for e := range s.entries.all {
			if l := e.lease; l != nil && l.over == nil && (l.tr.att != s.att || l.tr.broken() || s.c.strayed(l.tr, s.node.tier, l.bucket)) {
				doubted = append(doubted, l)
			}
		}
		s.mu.Unlock()
		var wg sync.WaitGroup
		slots := make(chan struct{}, confirming)
		for _, l := range doubted {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				s.confirmOne(s.ctx, l)
			})
		}
		wg.Wait()
	}
}

func (s *Session) confirmOne(ctx context.Context, l *Lease) {
	e, _, _, err := s.enter(ctx, l.name, false)
	if err != nil {
		return
	}
	defer s.exit(e)
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
	tr, _, err := s.send(ctx, protocol.KindAcquire, l.bucket, &numbered{seq: seq, head: &req.Head}, &req, &reply)
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
		l.tr = tr
		if tr.broken() {
			s.recheck = true
		}
	case protocol.StatusOf(err) == protocol.StatusBadSession || protocol.StatusOf(err) == protocol.StatusInternal:
		s.c.cfg.Logger.Warn("lease could not be confirmed", "session", s.id, "semaphore", l.name, "error", err)
	case err != nil:
		s.loseLocked(e, err.Error())
	default:
		s.loseLocked(e, "it was taken away while the connection was lost")
	}
}
