package leader

import (
	"cmp"
	"slices"
)

// subscriber is the leader of one shard that has remote sessions at home here. It is soft state:
// after a change of leader here all shards subscribe again.
type subscriber struct {
	shard       uint64
	epoch       uint64 // of its leadership
	attempt     uint64 // of its subscription
	subs        map[uint64]struct{}
	updates     []sessionStatus // not acknowledged; the first one has the number firstUpdate
	firstUpdate uint64
	sent        int    // of updates
	acked       uint64 // by its last heartbeat
	lastHeard   uint64
	scheduled   bool // in Leader.notifyQueue
	dropped     bool // this attempt is rejected for good, because its registrations are lost
}

// pendingRequest waits for a barrier.
type pendingRequest struct {
	from uint64
	msg  subscribeMsg
}

type pendingHeartbeat struct {
	from uint64
	msg  heartbeatMsg
}

// newerAttempt compares attempts: of a newer leadership, or a later one of the same.
func newerAttempt(epoch, attempt, thanEpoch, thanAttempt uint64) bool {
	return epoch > thanEpoch || epoch == thanEpoch && attempt > thanAttempt
}

// subscriberFor returns the subscriber of a request, nil if it is outdated or was dropped. A newer
// attempt replaces everything registered before.
func (l *Leader) subscriberFor(from, epoch, attempt uint64) *subscriber {
	p := l.subscribers[from]
	switch {
	case p == nil:
	case newerAttempt(epoch, attempt, p.epoch, p.attempt):
		l.dropSubscriber(p)
		l.subscriberOrder = slices.DeleteFunc(l.subscriberOrder, func(x *subscriber) bool { return x == p })
	case epoch == p.epoch && attempt == p.attempt && !p.dropped:
		return p
	default:
		return nil
	}
	p = &subscriber{shard: from, epoch: epoch, attempt: attempt, subs: make(map[uint64]struct{}), firstUpdate: 1, lastHeard: l.clock.seen}
	l.subscribers[from] = p
	at, _ := slices.BinarySearchFunc(l.subscriberOrder, from, func(p *subscriber, s uint64) int { return cmp.Compare(p.shard, s) })
	l.subscriberOrder = slices.Insert(l.subscriberOrder, at, p)
	return p
}

// dropSubscriber removes all registrations. The record stays: the same attempt must not register a
// part of its list again and then look complete.
func (l *Leader) dropSubscriber(p *subscriber) {
	for id := range p.subs { // the order of removals has no effect
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
		return // of another leadership here
	}
	if m.nextUpdate > p.firstUpdate {
		n := int(m.nextUpdate - p.firstUpdate)
		p.updates = slices.Delete(p.updates, 0, n)
		p.firstUpdate, p.sent = m.nextUpdate, max(p.sent-n, 0)
	} else if p.sent > 0 && m.nextUpdate == p.acked {
		p.sent = 0 // no progress for a whole period: send again
	}
	p.acked = m.nextUpdate
	l.scheduleNotify(p)
}

// replySubscribes answers the requests whose barrier succeeded, on a state at or after the barrier.
// Requests over the limit wait for the next barrier.
//
// For each session it registers the subscriber, checks that the home bucket is ACTIVE here under
// the named epoch, and looks up the session, all on one state. Events of later entries follow this
// call, so that a subscriber either sees an event's effect now or is notified later.
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
			l.send(p.shard, &heartbeatReply{homeEpoch: l.epoch, epoch: p.epoch, attempt: p.attempt, sentAt: 0})
		}
		return
	}
	p.lastHeard = l.clock.seen
	m := subscribeReply{homeEpoch: l.epoch, epoch: p.epoch, attempt: p.attempt, request: q.msg.request}
	size := 0
	for i, a := range q.msg.sessions {
		e := sessionStatus{session: a.session, state: stateRetry}
		if epoch, active := st.HomeBucket(a.session); active && epoch == a.bucketEpoch {
			l.subscribe(a.session, p)
			v, alive := st.Session(a.session)
			switch {
			case !alive:
				// The end is final: there is nothing left to notify.
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
				l.send(p.shard, &m)
				m.first, m.sessions, size = uint64(i), m.sessions[:0], 0
			}
			size += e.size()
			m.sessions = append(m.sessions, e)
		}
	}
	m.count = uint64(len(q.msg.sessions)) - m.first
	l.send(p.shard, &m)
}

// replyHeartbeats confirms, behind the barrier, that this leadership is alive, and says whether it
// knows the subscriber.
func (l *Leader) replyHeartbeats() {
	for _, b := range l.heartbeatsInFlight {
		p := l.subscribers[b.from]
		m := heartbeatReply{homeEpoch: l.epoch, epoch: b.msg.epoch, attempt: b.msg.attempt, sentAt: b.msg.sentAt}
		m.known = p != nil && !p.dropped && p.epoch == m.epoch && p.attempt == m.attempt
		if p != nil && newerAttempt(p.epoch, p.attempt, m.epoch, m.attempt) {
			continue // outdated
		}
		l.send(b.from, &m)
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

// notifyAlive notifies subscribers that a session was attached or detached.
func (l *Leader) notifyAlive(id uint64, v sessionState, attachEpoch uint64, description string) {
	for _, p := range slices.Clone(l.subscribersOf[id]) {
		l.notify(p, sessionStatus{session: id, state: v, epoch: attachEpoch, description: description})
	}
}

// notify queues an update. A subscriber that does not acknowledge is dropped; its next heartbeat
// notifies it, and it subscribes again.
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

// flushNotify sends updates, within a window of unacknowledged ones per subscriber.
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
			l.send(p.shard, &m)
		}
	}
	clear(l.notifyQueue)
	l.notifyQueue = l.notifyQueue[:0]
}

// expireSubscribers drops subscribers that were silent for long. Their leadership has ended, or
// they have no remote sessions at home here any more.
func (l *Leader) expireSubscribers() {
	for _, p := range l.subscriberOrder {
		if !p.dropped && l.clock.seen-p.lastHeard > subscriberTimeout {
			l.dropSubscriber(p)
		}
	}
}
