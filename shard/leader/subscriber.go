package leader

import (
	"cmp"
	"slices"
)

// subscriber is the home side towards the leader of one shard that has guests of ours. It is soft: a new leadership starts without any, and peers subscribe again.
type subscriber struct {
	shard       uint64
	epoch       uint64 // its leadership
	attempt     uint64 // its attempt
	subs        map[uint64]struct{}
	updates     []sessionStatus // not confirmed, the first numbered base
	firstUpdate uint64
	sent        int    // of news, how many were sent
	acked       uint64 // what its last beat said
	lastHeard   uint64
	scheduled   bool // in Leader.notifyQueue
	dropped     bool // it was dropped: this attempt is refused for good, because what it had registered is forgotten
}

// pendingRequest is a question, or a beat, that waits for a barrier.
type pendingRequest struct {
	from uint64
	msg  subscribeMsg
}

type pendingHeartbeat struct {
	from uint64
	msg  heartbeatMsg
}

// newerAttempt compares attempts: of a newer leadership, or a later one of the same.
func newerAttempt(guest, link, thanEpoch, thanAttempt uint64) bool {
	return guest > thanEpoch || guest == thanEpoch && link > thanAttempt
}

// subscriberFor is the subscriber behind a question, nil if it is an outdated or a dropped one. A newer attempt replaces all that was registered before.
func (l *Leader) subscriberFor(from, guest, link uint64) *subscriber {
	p := l.subscribers[from]
	switch {
	case p == nil:
	case newerAttempt(guest, link, p.epoch, p.attempt):
		l.dropSubscriber(p)
		l.subscriberOrder = slices.DeleteFunc(l.subscriberOrder, func(x *subscriber) bool { return x == p })
	case guest == p.epoch && link == p.attempt && !p.dropped:
		return p
	default:
		return nil
	}
	p = &subscriber{shard: from, epoch: guest, attempt: link, subs: make(map[uint64]struct{}), firstUpdate: 1, lastHeard: l.clock.seen}
	l.subscribers[from] = p
	at, _ := slices.BinarySearchFunc(l.subscriberOrder, from, func(p *subscriber, s uint64) int { return cmp.Compare(p.shard, s) })
	l.subscriberOrder = slices.Insert(l.subscriberOrder, at, p)
	return p
}

// dropSubscriber forgets what a subscriber registered. The record stays, so that the same attempt cannot register a part of its list again and be told that
// it is known.
func (l *Leader) dropSubscriber(p *subscriber) {
	for id := range p.subs { // the order of removals shows nowhere
		l.unsubscribe(id, p)
	}
	p.dropped, p.subs, p.updates, p.sent = true, nil, nil, 0
}

func (l *Leader) subscribe(id uint64, p *subscriber) {
	if _, ok := p.subs[id]; ok {
		return
	}
	p.subs[id] = struct{}{}
	list := l.subscribersOf[id]
	at, _ := slices.BinarySearchFunc(list, p, func(a, b *subscriber) int { return cmp.Compare(a.shard, b.shard) })
	l.subscribersOf[id] = slices.Insert(list, at, p)
}

func (l *Leader) unsubscribe(id uint64, p *subscriber) {
	list := slices.DeleteFunc(l.subscribersOf[id], func(x *subscriber) bool { return x == p })
	if len(list) == 0 {
		delete(l.subscribersOf, id)
	} else {
		l.subscribersOf[id] = list
	}
}

func (l *Leader) receiveSubscribe(from uint64, m *subscribeMsg) {
	if l.queuedSessions+len(m.sessions) > MaxQueuedSessions {
		l.stats.Dropped++
		return
	}
	l.queuedSessions += len(m.sessions)
	l.requestsWaiting = append(l.requestsWaiting, pendingRequest{from, *m})
}

func (l *Leader) receiveHeartbeat(from uint64, m *heartbeatMsg) {
	if len(l.heartbeatsWaiting) >= MaxQueuedSessions {
		l.stats.Dropped++
		return
	}
	l.heartbeatsWaiting = append(l.heartbeatsWaiting, pendingHeartbeat{from, *m})
	p := l.subscribers[from]
	if p == nil || p.dropped || p.epoch != m.epoch || p.attempt != m.attempt {
		return
	}
	p.lastHeard = l.clock.seen
	if m.nextUpdate > p.firstUpdate+uint64(len(p.updates)) {
		return // not ours
	}
	if m.nextUpdate > p.firstUpdate {
		n := int(m.nextUpdate - p.firstUpdate)
		p.updates = slices.Delete(p.updates, 0, n)
		p.firstUpdate, p.sent = m.nextUpdate, max(p.sent-n, 0)
	} else if p.sent > 0 && m.nextUpdate == p.acked {
		p.sent = 0 // a whole period without progress: repeat
	}
	p.acked = m.nextUpdate
	l.scheduleNotify(p)
}

// replySubscribes answers the questions whose barrier was successful, on the state st, which is at or after it. The rest waits for the next barrier.
//
// For each session in this order: register the subscriber, check that the home bucket is ACTIVE here under the epoch the subscriber named, look the
// session up. All three see one state, and events of later entries come after this call: whoever is not told now is registered then.
func (l *Leader) replySubscribes(st State) {
	budget := MaxLookups
	done := 0
	for done < len(l.requestsInFlight) && budget > 0 {
		q := &l.requestsInFlight[done]
		budget -= len(q.msg.sessions)
		l.queuedSessions -= len(q.msg.sessions)
		l.replySubscribe(q, st)
		done++
	}
	if rest := l.requestsInFlight[done:]; len(rest) > 0 {
		l.requestsWaiting = append(slices.Clone(rest), l.requestsWaiting...)
	}
	clear(l.requestsInFlight)
	l.requestsInFlight = l.requestsInFlight[:0]
}

func (l *Leader) replySubscribe(q *pendingRequest, st State) {
	p := l.subscriberFor(q.from, q.msg.epoch, q.msg.attempt)
	if p == nil {
		if p = l.subscribers[q.from]; p.dropped && p.epoch == q.msg.epoch && p.attempt == q.msg.attempt {
			l.send(p.shard, heartbeatReply{homeEpoch: l.epoch, epoch: p.epoch, attempt: p.attempt, sentAt: 0}.append(nil))
		}
		return
	}
	p.lastHeard = l.clock.seen
	m := subscribeReply{homeEpoch: l.epoch, epoch: p.epoch, attempt: p.attempt, request: q.msg.request}
	size := 0
	for i, a := range q.msg.sessions {
		e := sessionStatus{session: a.session, state: stateRetry}
		if epoch, active := st.HomeBucket(a.session); active && epoch == a.bucketEpoch || faultNonOwner {
			l.subscribe(a.session, p)
			v, alive := st.Session(a.session)
			switch {
			case !alive:
				// Final, so that there is nothing left to tell.
				delete(p.subs, a.session)
				l.unsubscribe(a.session, p)
				e.state = stateEnded
			case v.Attached && v.Epoch == a.known:
				e.state = stateUnchanged
			default:
				e.state, e.epoch, e.description = stateAttached, v.Epoch, v.Description
				if !v.Attached {
					e.state = stateDetached
				}
			}
		}
		if e.state != stateUnchanged {
			if size+e.size() > MaxMessage-maxMessageOverhead {
				m.count = uint64(i) - m.first
				l.send(p.shard, m.append(nil))
				m.first, m.sessions, size = uint64(i), m.sessions[:0], 0
			}
			size += e.size()
			m.sessions = append(m.sessions, e)
		}
	}
	m.count = uint64(len(q.msg.sessions)) - m.first
	l.send(p.shard, m.append(nil))
}

// replyHeartbeats says, behind the barrier, that this leadership lives and knows the subscriber, or that it does not.
func (l *Leader) replyHeartbeats() {
	for _, b := range l.heartbeatsInFlight {
		p := l.subscribers[b.from]
		m := heartbeatReply{homeEpoch: l.epoch, epoch: b.msg.epoch, attempt: b.msg.attempt, sentAt: b.msg.sentAt}
		m.known = p != nil && !p.dropped && p.epoch == m.epoch && p.attempt == m.attempt
		if p != nil && newerAttempt(p.epoch, p.attempt, m.epoch, m.attempt) {
			continue // an outdated beat
		}
		l.send(b.from, m.append(nil))
	}
	clear(l.heartbeatsInFlight)
	l.heartbeatsInFlight = l.heartbeatsInFlight[:0]
}

func (l *Leader) notifyEnded(id uint64) {
	list := l.subscribersOf[id]
	delete(l.subscribersOf, id)
	for _, p := range list {
		delete(p.subs, id)
		l.notify(p, sessionStatus{session: id, state: stateEnded})
	}
}

// notifyAlive tells subscribers that a session was attached, or that it was detached.
func (l *Leader) notifyAlive(id uint64, v sessionState, attachEpoch uint64, description string) {
	for _, p := range slices.Clone(l.subscribersOf[id]) {
		l.notify(p, sessionStatus{session: id, state: v, epoch: attachEpoch, description: description})
	}
}

// notify queues news for a subscriber. One that does not confirm is dropped: its next beat learns it, and it subscribes anew.
func (l *Leader) notify(p *subscriber, e sessionStatus) {
	if p.dropped {
		return
	}
	if len(p.updates) >= MaxUnacked {
		l.stats.DroppedSubscribers++
		l.dropSubscriber(p)
		return
	}
	p.updates = append(p.updates, e)
	l.scheduleNotify(p)
}

func (l *Leader) scheduleNotify(p *subscriber) {
	if !p.scheduled && p.sent < len(p.updates) {
		p.scheduled = true
		l.notifyQueue = append(l.notifyQueue, p)
	}
}

// flushNotify sends news, at most a window of unconfirmed ones per subscriber.
func (l *Leader) flushNotify() {
	for _, p := range l.notifyQueue {
		p.scheduled = false
		if p.dropped || l.subscribers[p.shard] != p {
			continue
		}
		for p.sent < len(p.updates) && p.sent < maxNotifyWindow*maxNotifySessions {
			m := notifyMsg{homeEpoch: l.epoch, epoch: p.epoch, attempt: p.attempt, firstUpdate: p.firstUpdate + uint64(p.sent)}
			size := 0
			n := p.sent
			for n < len(p.updates) && n-p.sent < maxNotifySessions && size+p.updates[n].size() <= MaxMessage-maxMessageOverhead {
				size += p.updates[n].size()
				n++
			}
			m.sessions = p.updates[p.sent:n]
			p.sent = n
			l.send(p.shard, m.append(nil))
		}
	}
	clear(l.notifyQueue)
	l.notifyQueue = l.notifyQueue[:0]
}

// expireSubscribers forgets subscribers that were silent for long: their leadership ended, or they have no guests of ours any more.
func (l *Leader) expireSubscribers() {
	for _, p := range l.subscriberOrder {
		if !p.dropped && l.clock.seen-p.lastHeard > subscriberTimeout {
			l.dropSubscriber(p)
		}
	}
}
