package leader

import (
	"cmp"
	"slices"
)

// subscription is this shard's subscription to one home shard.
//
// Its attempt numbers the tries to subscribe the whole list. Whatever makes the registrations
// doubtful starts a new attempt, with a request for every remote session: no confirmed heartbeat
// for a self-check period, or another leader of the home. The home drops an older attempt when it
// sees a newer one.
type subscription struct {
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

func (l *Leader) subscriptionTo(shard uint64) *subscription {
	if k := l.subscriptions[shard]; k != nil {
		return k
	}
	k := &subscription{shard: shard}
	l.resubscribe(k)
	l.subscriptions[shard] = k
	at, _ := slices.BinarySearchFunc(l.subscriptionOrder, shard, func(k *subscription, s uint64) int { return cmp.Compare(k.shard, s) })
	l.subscriptionOrder = slices.Insert(l.subscriptionOrder, at, k)
	return k
}

// resubscribe starts a new attempt: all remote sessions are requested again.
func (l *Leader) resubscribe(k *subscription) {
	l.lastAttempt++
	k.attempt, k.homeEpoch, k.nextUpdate = l.lastAttempt, 0, 1
	k.lastProof, k.emptySince = l.clock.seen, l.clock.seen
	k.timeout = l.cfg.SelfCheck
	k.requests = k.requests[:0]
	for _, q := range []*remoteList{&k.asked, &k.confirmed} {
		for q.n > 0 {
			l.requestAgain(k, q.first)
		}
	}
}

func (l *Leader) requestAgain(k *subscription, g *remoteSession) {
	g.unlist()
	g.request = 0
	k.queued.push(g)
}

// tickSubscription does what is due. It returns false for a subscription that is no longer needed.
func (l *Leader) tickSubscription(k *subscription) bool {
	now := l.clock.seen
	if k.queued.n+k.asked.n+k.confirmed.n > 0 {
		k.emptySince = now
	} else if now-k.emptySince > l.cfg.SelfCheck {
		return false
	}
	if k.homeEpoch != 0 && now-k.lastProof > l.cfg.SelfCheck {
		l.stats.LostSubscriptions++
		l.resubscribe(k)
	}
	late := false
	for len(k.requests) > 0 && now-k.requests[0].sentAt > k.timeout {
		late = true
		for _, id := range k.requests[0].sessions {
			if g := l.remotes[id]; g != nil && g.subscription == k && g.request == k.requests[0].id {
				l.requestAgain(k, g)
			}
		}
		k.requests = slices.Delete(k.requests, 0, 1)
	}
	if late {
		k.timeout = min(2*k.timeout, 8*l.cfg.SelfCheck)
	}
	for k.confirmed.n > 0 && now-k.confirmed.first.at >= l.cfg.Compare {
		l.requestAgain(k, k.confirmed.first)
	}
	l.sendRequests(k)
	if k.homeEpoch != 0 && now >= k.nextHeartbeat {
		k.nextHeartbeat = now + l.cfg.SelfCheck/2
		l.send(k.shard, &heartbeatMsg{epoch: l.epoch, attempt: k.attempt, sentAt: now, nextUpdate: k.nextUpdate})
	}
	return true
}

// sendRequests sends as many requests as may be pending.
func (l *Leader) sendRequests(k *subscription) {
	for k.queued.n > 0 && len(k.requests) < MaxPendingRequests {
		l.lastRequest++
		q := &request{id: l.lastRequest, sentAt: l.clock.seen}
		m := subscribeMsg{epoch: l.epoch, attempt: k.attempt, request: q.id}
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
		l.send(k.shard, &m)
		l.stats.Queried += uint64(q.left)
	}
}

// receiveSubscribeReply handles a reply to a request, or a part of it.
//
// The state "attached" counts only for records of that request, under the present attempt. The
// state "ended" always counts.
func (l *Leader) receiveSubscribeReply(from uint64, m *subscribeReply, st State) {
	if m.epoch != l.epoch {
		return
	}
	k := l.subscriptions[from]
	current := k != nil && m.attempt == k.attempt && m.homeEpoch >= k.homeEpoch
	if current && k.homeEpoch != 0 && m.homeEpoch > k.homeEpoch {
		// The registrations at the previous leader are void.
		l.resubscribe(k)
		current = false
	}
	var q *request
	if current {
		for _, x := range k.requests {
			if x.id == m.request && m.first+m.count <= uint64(len(x.sessions)) {
				q = x
			}
		}
	}
	if q != nil {
		if k.homeEpoch == 0 {
			k.homeEpoch, k.nextHeartbeat = m.homeEpoch, l.clock.seen+l.cfg.SelfCheck/2
		}
		k.lastProof = max(k.lastProof, q.sentAt)
		k.timeout = l.cfg.SelfCheck
	}
	for i := range m.sessions {
		e := &m.sessions[i]
		switch e.state {
		case stateEnded:
			l.remoteEnded(e.session)
		case stateAttached, stateDetached:
			l.updateRemote(e, st)
		case stateRetry:
			if g := l.remotes[e.session]; q != nil && g != nil && g.subscription == k && g.request == q.id {
				l.retryLater(g)
			}
		}
	}
	if q == nil {
		return
	}
	for i := m.first; i < m.first+m.count; i++ {
		id := q.sessions[i]
		if id == 0 {
			continue
		}
		q.sessions[i] = 0
		q.left--
		if g := l.remotes[id]; g != nil && g.subscription == k && g.request == q.id {
			l.confirm(g)
		}
	}
	if q.left == 0 {
		k.requests = slices.DeleteFunc(k.requests, func(x *request) bool { return x == q })
		if k.queued.n >= MaxRequestSessions {
			l.sendRequests(k)
		}
	}
}

// receiveHeartbeatReply handles the reply to a heartbeat, sent behind a barrier that began after
// the heartbeat arrived. It may say that the home does not know this attempt.
func (l *Leader) receiveHeartbeatReply(from uint64, m *heartbeatReply) {
	k := l.subscriptions[from]
	switch {
	case m.epoch != l.epoch || k == nil || m.attempt != k.attempt || m.homeEpoch < k.homeEpoch || m.sentAt > l.clock.seen:
		return
	case !m.known || k.homeEpoch != 0 && m.homeEpoch > k.homeEpoch:
		l.stats.LostSubscriptions++
		l.resubscribe(k)
	case k.homeEpoch != 0:
		k.lastProof = max(k.lastProof, m.sentAt)
	}
}

// receiveNotify handles updates that the home sends by itself. They are numbered per leadership of
// the home and attempt, and taken in order. The next heartbeat acknowledges them, and the home
// repeats missing ones.
func (l *Leader) receiveNotify(from uint64, m *notifyMsg, st State) {
	if m.epoch != l.epoch {
		return
	}
	k := l.subscriptions[from]
	if k != nil && m.attempt == k.attempt && k.homeEpoch != 0 && m.homeEpoch == k.homeEpoch && m.firstUpdate <= k.nextUpdate {
		k.nextUpdate = max(k.nextUpdate, m.firstUpdate+uint64(len(m.sessions)))
	}
	for i := range m.sessions {
		switch e := &m.sessions[i]; e.state {
		case stateEnded:
			l.remoteEnded(e.session)
		case stateAttached, stateDetached:
			l.updateRemote(e, st)
		}
	}
}

func (l *Leader) send(to uint64, m message) {
	l.ready.Messages = append(l.ready.Messages, Message{to, encode(m)})
}
