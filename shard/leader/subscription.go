package leader

import "slices"

// subscription is this shard's subscription to one home shard.
//
// Its attempt numbers the tries to subscribe the whole list. Whatever makes the registrations
// doubtful starts a new attempt, with a request for every remote session: no confirmed heartbeat
// for a self-check period, or another leader of the home. The home drops an older attempt when it
// sees a newer one.
type subscription struct {
	table      *remoteTable
	shard      uint64
	attempt    uint64
	homeEpoch  uint64 // of the leadership that replied to this attempt, 0: none
	nextUpdate uint64 // number of the next update expected

	queued, asked, confirmed remoteList // to be requested; requested; registered, oldest confirmation first
	requests                 []*request

	lastProof     uint64 // when the newest request or heartbeat was sent that has been answered behind a barrier
	nextHeartbeat uint64
	timeout       uint64 // of a reply
	emptySince    uint64 // since when it has no remote session
}

// request is a subscribe request that waits for its reply. A session is 0 once it is answered.
type request struct {
	id, sentAt uint64
	sessions   []uint64
	left       int
}

// resubscribe starts a new attempt: all remote sessions are requested again.
func (s *subscription) resubscribe() {
	t := s.table
	t.lastAttempt++
	s.attempt, s.homeEpoch, s.nextUpdate = t.lastAttempt, 0, 1
	s.lastProof, s.emptySince = t.clock.seen, t.clock.seen
	s.timeout = t.cfg.SelfCheck
	s.requests = s.requests[:0]
	for _, q := range []*remoteList{&s.asked, &s.confirmed} {
		for q.n > 0 {
			s.requestAgain(q.first)
		}
	}
}

func (s *subscription) requestAgain(g *remoteSession) {
	g.unlist()
	g.request = 0
	s.queued.push(g)
}

// tick does what is due. It returns false for a subscription that is no longer needed.
func (s *subscription) tick() bool {
	t := s.table
	now := t.clock.seen
	if s.queued.n+s.asked.n+s.confirmed.n > 0 {
		s.emptySince = now
	} else {
		s.lastProof = now // nothing relies on it
		return now-s.emptySince <= t.cfg.SelfCheck
	}
	if s.homeEpoch != 0 && now-s.lastProof > t.cfg.SelfCheck {
		t.stats.LostSubscriptions++
		s.resubscribe()
	}
	late := false
	for len(s.requests) > 0 && now-s.requests[0].sentAt > s.timeout {
		late = true
		for _, id := range s.requests[0].sessions {
			if g := t.sessions[id]; g != nil && g.askedBy(s, s.requests[0]) {
				s.requestAgain(g)
			}
		}
		s.requests = slices.Delete(s.requests, 0, 1)
	}
	if late {
		s.timeout = min(2*s.timeout, 8*t.cfg.SelfCheck)
	}
	for s.confirmed.n > 0 && now-s.confirmed.first.at >= t.cfg.Compare {
		s.requestAgain(s.confirmed.first)
	}
	s.sendRequests()
	if s.homeEpoch != 0 && now >= s.nextHeartbeat {
		s.scheduleHeartbeat()
		t.send(s.shard, &heartbeatMsg{epoch: t.epoch, attempt: s.attempt, sentAt: now, nextUpdate: s.nextUpdate})
	}
	return true
}

// scheduleHeartbeat sets the next heartbeat to a multiple of half a self-check period. The clock is
// the host's: a home gets the heartbeats of all its leaders at once, and answers them behind the
// same barrier.
func (s *subscription) scheduleHeartbeat() {
	half := max(s.table.cfg.SelfCheck/2, 1)
	s.nextHeartbeat = (s.table.clock.seen/half + 1) * half
}

// sendRequests sends as many requests as may be pending.
func (s *subscription) sendRequests() {
	t := s.table
	for s.queued.n > 0 && len(s.requests) < MaxPendingRequests {
		t.lastRequest++
		q := &request{id: t.lastRequest, sentAt: t.clock.seen}
		m := subscribeMsg{epoch: t.epoch, attempt: s.attempt, request: q.id}
		for s.queued.n > 0 && len(q.sessions) < MaxRequestSessions {
			g := s.queued.first
			s.queued.remove(g)
			s.asked.push(g)
			g.request = q.id
			q.sessions = append(q.sessions, g.session)
			m.sessions = append(m.sessions, subscribeEntry{g.session, g.bucketEpoch, g.knownEpoch()})
		}
		q.left = len(q.sessions)
		s.requests = append(s.requests, q)
		t.send(s.shard, &m)
	}
}

// replied returns the request that a reply is about: nil if the reply is outdated.
func (s *subscription) replied(m *subscribeReply) *request {
	if s == nil || m.attempt != s.attempt || m.homeEpoch < s.homeEpoch {
		return nil
	}
	if s.homeEpoch != 0 && m.homeEpoch > s.homeEpoch {
		// The registrations at the previous leader are void.
		s.resubscribe()
		return nil
	}
	for _, q := range s.requests {
		if q.id != m.request || m.first+m.count > uint64(len(q.sessions)) {
			continue
		}
		if s.homeEpoch == 0 {
			s.homeEpoch = m.homeEpoch
			s.scheduleHeartbeat()
		}
		s.lastProof = max(s.lastProof, q.sentAt)
		s.timeout = s.table.cfg.SelfCheck
		return q
	}
	return nil
}

// confirm notes that the home has registered this leadership for sessions [first, first+count) of a
// request, except those that it cannot answer for.
func (s *subscription) confirm(q *request, first, count uint64) {
	t := s.table
	for i := first; i < first+count; i++ {
		id := q.sessions[i]
		if id == 0 {
			continue
		}
		q.sessions[i] = 0
		q.left--
		if g := t.sessions[id]; g != nil && g.askedBy(s, q) {
			g.unlist()
			g.request, g.at = 0, t.clock.seen
			s.confirmed.push(g)
		}
	}
	if q.left == 0 {
		s.requests = slices.DeleteFunc(s.requests, func(x *request) bool { return x == q })
		if s.queued.n >= MaxRequestSessions {
			s.sendRequests()
		}
	}
}

// heartbeatReplied notes that the home is alive, or begins a new attempt if it does not know this
// one.
func (s *subscription) heartbeatReplied(m *heartbeatReply) {
	switch {
	case m.attempt != s.attempt || m.homeEpoch < s.homeEpoch:
	case !m.known || s.homeEpoch != 0 && m.homeEpoch > s.homeEpoch:
		s.table.stats.LostSubscriptions++
		s.resubscribe()
	case s.homeEpoch != 0:
		s.lastProof = max(s.lastProof, m.sentAt)
	}
}

// notified counts the updates that came in order.
func (s *subscription) notified(m *notifyMsg) {
	if m.attempt == s.attempt && s.homeEpoch != 0 && m.homeEpoch == s.homeEpoch && m.firstUpdate <= s.nextUpdate {
		s.nextUpdate = max(s.nextUpdate, m.firstUpdate+uint64(len(m.sessions)))
	}
}
