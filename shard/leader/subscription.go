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
func (k *subscription) resubscribe() {
	t := k.table
	t.lastAttempt++
	k.attempt, k.homeEpoch, k.nextUpdate = t.lastAttempt, 0, 1
	k.lastProof, k.emptySince = t.clock.seen, t.clock.seen
	k.timeout = t.cfg.SelfCheck
	k.requests = k.requests[:0]
	for _, q := range []*remoteList{&k.asked, &k.confirmed} {
		for q.n > 0 {
			k.requestAgain(q.first)
		}
	}
}

func (k *subscription) requestAgain(g *remoteSession) {
	g.unlist()
	g.request = 0
	k.queued.push(g)
}

// tick does what is due. It returns false for a subscription that is no longer needed.
func (k *subscription) tick() bool {
	t := k.table
	now := t.clock.seen
	if k.queued.n+k.asked.n+k.confirmed.n > 0 {
		k.emptySince = now
	} else {
		k.lastProof = now // nothing relies on it
		return now-k.emptySince <= t.cfg.SelfCheck
	}
	if k.homeEpoch != 0 && now-k.lastProof > t.cfg.SelfCheck {
		t.stats.LostSubscriptions++
		k.resubscribe()
	}
	late := false
	for len(k.requests) > 0 && now-k.requests[0].sentAt > k.timeout {
		late = true
		for _, id := range k.requests[0].sessions {
			if g := t.sessions[id]; g != nil && g.askedBy(k, k.requests[0]) {
				k.requestAgain(g)
			}
		}
		k.requests = slices.Delete(k.requests, 0, 1)
	}
	if late {
		k.timeout = min(2*k.timeout, 8*t.cfg.SelfCheck)
	}
	for k.confirmed.n > 0 && now-k.confirmed.first.at >= t.cfg.Compare {
		k.requestAgain(k.confirmed.first)
	}
	k.sendRequests()
	if k.homeEpoch != 0 && now >= k.nextHeartbeat {
		k.scheduleHeartbeat()
		t.send(k.shard, &heartbeatMsg{epoch: t.epoch, attempt: k.attempt, sentAt: now, nextUpdate: k.nextUpdate})
	}
	return true
}

// scheduleHeartbeat sets the next heartbeat to a multiple of half a self-check period. The clock is
// the host's: a home gets the heartbeats of all its leaders at once, and answers them behind the
// same barrier.
func (k *subscription) scheduleHeartbeat() {
	half := max(k.table.cfg.SelfCheck/2, 1)
	k.nextHeartbeat = (k.table.clock.seen/half + 1) * half
}

// sendRequests sends as many requests as may be pending.
func (k *subscription) sendRequests() {
	t := k.table
	for k.queued.n > 0 && len(k.requests) < MaxPendingRequests {
		t.lastRequest++
		q := &request{id: t.lastRequest, sentAt: t.clock.seen}
		m := subscribeMsg{epoch: t.epoch, attempt: k.attempt, request: q.id}
		for k.queued.n > 0 && len(q.sessions) < MaxRequestSessions {
			g := k.queued.first
			k.queued.remove(g)
			k.asked.push(g)
			g.request = q.id
			q.sessions = append(q.sessions, g.session)
			m.sessions = append(m.sessions, subscribeEntry{g.session, g.bucketEpoch, g.knownEpoch()})
		}
		q.left = len(q.sessions)
		k.requests = append(k.requests, q)
		t.send(k.shard, &m)
	}
}

// replied returns the request that a reply is about: nil if the reply is outdated.
func (k *subscription) replied(m *subscribeReply) *request {
	if k == nil || m.attempt != k.attempt || m.homeEpoch < k.homeEpoch {
		return nil
	}
	if k.homeEpoch != 0 && m.homeEpoch > k.homeEpoch {
		// The registrations at the previous leader are void.
		k.resubscribe()
		return nil
	}
	for _, q := range k.requests {
		if q.id != m.request || m.first+m.count > uint64(len(q.sessions)) {
			continue
		}
		if k.homeEpoch == 0 {
			k.homeEpoch = m.homeEpoch
			k.scheduleHeartbeat()
		}
		k.lastProof = max(k.lastProof, q.sentAt)
		k.timeout = k.table.cfg.SelfCheck
		return q
	}
	return nil
}

// confirm notes that the home has registered this leadership for sessions [first, first+count) of a
// request, except those that it cannot answer for.
func (k *subscription) confirm(q *request, first, count uint64) {
	t := k.table
	for i := first; i < first+count; i++ {
		id := q.sessions[i]
		if id == 0 {
			continue
		}
		q.sessions[i] = 0
		q.left--
		if g := t.sessions[id]; g != nil && g.askedBy(k, q) {
			g.unlist()
			g.request, g.at = 0, t.clock.seen
			k.confirmed.push(g)
		}
	}
	if q.left == 0 {
		k.requests = slices.DeleteFunc(k.requests, func(x *request) bool { return x == q })
		if k.queued.n >= MaxRequestSessions {
			k.sendRequests()
		}
	}
}

// heartbeatReplied notes that the home is alive, or begins a new attempt if it does not know this
// one.
func (k *subscription) heartbeatReplied(m *heartbeatReply) {
	switch {
	case m.attempt != k.attempt || m.homeEpoch < k.homeEpoch:
	case !m.known || k.homeEpoch != 0 && m.homeEpoch > k.homeEpoch:
		k.table.stats.LostSubscriptions++
		k.resubscribe()
	case k.homeEpoch != 0:
		k.lastProof = max(k.lastProof, m.sentAt)
	}
}

// notified counts the updates that came in order.
func (k *subscription) notified(m *notifyMsg) {
	if m.attempt == k.attempt && k.homeEpoch != 0 && m.homeEpoch == k.homeEpoch && m.firstUpdate <= k.nextUpdate {
		k.nextUpdate = max(k.nextUpdate, m.firstUpdate+uint64(len(m.sessions)))
	}
}
