package leader

import "slices"

// pendingRequest waits for a barrier.
type pendingRequest struct {
	from uint64
	msg  subscribeMsg
}

type pendingHeartbeat struct {
	from uint64
	msg  heartbeatMsg
}

func (t *subscriberTable) receiveSubscribe(from uint64, m *subscribeMsg) {
	if t.queuedSessions+len(m.sessions) > MaxQueuedSessions {
		return
	}
	t.queuedSessions += len(m.sessions)
	t.requests.waiting = append(t.requests.waiting, pendingRequest{from, *m})
}

func (t *subscriberTable) receiveHeartbeat(from uint64, m *heartbeatMsg) {
	if len(t.heartbeats.waiting) >= MaxQueuedSessions {
		return
	}
	t.heartbeats.waiting = append(t.heartbeats.waiting, pendingHeartbeat{from, *m})
	p := t.byShard[from]
	if p == nil || p.dropped || p.epoch != m.epoch || p.attempt != m.attempt {
		return
	}
	p.lastHeard = t.clock.seen
	if p.acknowledge(m.nextUpdate) {
		t.scheduleNotify(p)
	}
}

// waiting reports whether something waits for a barrier to begin.
func (t *subscriberTable) waiting() bool {
	return len(t.requests.waiting) > 0 || len(t.heartbeats.waiting) > 0
}

// beginReplies has what arrived so far wait for the barrier that begins now.
func (t *subscriberTable) beginReplies() {
	t.requests.begin()
	t.heartbeats.begin()
}

// retryReplies has what waited for a failed barrier wait for the next one.
func (t *subscriberTable) retryReplies() {
	t.requests.requeue()
	t.heartbeats.requeue()
}

// reply answers what waited for the barrier that succeeded, on a state at or after the barrier.
func (t *subscriberTable) reply(st State) {
	t.replyRequests(st)
	for _, b := range t.heartbeats.inFlight {
		t.replyHeartbeat(b)
	}
	t.heartbeats.done()
}

// replyRequests answers the requests. Those over the limit wait for the next barrier.
func (t *subscriberTable) replyRequests(st State) {
	budget := MaxLookups
	done := 0
	for done < len(t.requests.inFlight) && budget > 0 {
		q := &t.requests.inFlight[done]
		budget -= len(q.msg.sessions)
		t.queuedSessions -= len(q.msg.sessions)
		t.replySubscribe(q, st)
		done++
	}
	if rest := t.requests.inFlight[done:]; len(rest) > 0 {
		t.requests.waiting = append(slices.Clone(rest), t.requests.waiting...)
	}
	t.requests.done()
}

// replySubscribe answers a request. For each session it registers the subscriber, checks that the
// home bucket is ACTIVE here under the named epoch, and looks up the session, all on one state.
// Events of later entries follow this call, so that a subscriber either sees an event's effect now
// or is notified later.
func (t *subscriberTable) replySubscribe(q *pendingRequest, st State) {
	p := t.subscriberFor(q.from, q.msg.epoch, q.msg.attempt)
	if p == nil {
		if p = t.byShard[q.from]; p.dropped && p.epoch == q.msg.epoch && p.attempt == q.msg.attempt {
			t.send(p.shard, &heartbeatReply{homeEpoch: t.epoch, epoch: p.epoch, attempt: p.attempt, sentAt: 0})
		}
		return
	}
	p.lastHeard = t.clock.seen
	m := subscribeReply{homeEpoch: t.epoch, epoch: p.epoch, attempt: p.attempt, request: q.msg.request}
	size := 0
	for i, a := range q.msg.sessions {
		e := sessionStatus{session: a.session, state: stateRetry}
		if epoch, active := st.HomeBucket(a.session); active && epoch == a.bucketEpoch {
			t.subscribe(a.session, p)
			v, alive := st.Session(a.session)
			switch {
			case !alive:
				// The end is final: there is nothing left to notify.
				delete(p.subs, a.session)
				t.unsubscribe(a.session, p)
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
				t.send(p.shard, &m)
				m.first, m.sessions, size = uint64(i), m.sessions[:0], 0
			}
			size += e.size()
			m.sessions = append(m.sessions, e)
		}
	}
	m.count = uint64(len(q.msg.sessions)) - m.first
	t.send(p.shard, &m)
}

// replyHeartbeat confirms, behind the barrier, that this leadership is alive, and reports whether it
// knows the subscriber.
func (t *subscriberTable) replyHeartbeat(b pendingHeartbeat) {
	p := t.byShard[b.from]
	m := heartbeatReply{homeEpoch: t.epoch, epoch: b.msg.epoch, attempt: b.msg.attempt, sentAt: b.msg.sentAt}
	m.known = p != nil && !p.dropped && p.epoch == m.epoch && p.attempt == m.attempt
	if p != nil && newerAttempt(p.epoch, p.attempt, m.epoch, m.attempt) {
		return // outdated
	}
	t.send(b.from, &m)
}
