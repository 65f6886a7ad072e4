package leader

// receiveSubscribeReply handles a reply to a request, or a part of it.
//
// The state "attached" counts only for records of that request, under the present attempt. The
// state "ended" always counts.
func (t *remoteTable) receiveSubscribeReply(from uint64, m *subscribeReply, st State) {
	if m.epoch != t.epoch {
		return
	}
	k := t.subscriptions[from]
	q := k.replied(m)
	for i := range m.sessions {
		e := &m.sessions[i]
		switch e.state {
		case stateEnded:
			t.sessionEnded(e.session, e.ending)
		case stateAttached, stateDetached:
			t.update(e, st)
		case stateRetry:
			if g := t.sessions[e.session]; q != nil && g != nil && g.askedBy(k, q) {
				t.retryLater(g)
			}
		}
	}
	if q != nil {
		k.confirm(q, m.first, m.count)
	}
}

// receiveHeartbeatReply handles the reply to a heartbeat, sent behind a barrier that began after
// the heartbeat arrived. It may say that the home does not know this attempt.
func (t *remoteTable) receiveHeartbeatReply(from uint64, m *heartbeatReply) {
	if k := t.subscriptions[from]; k != nil && m.epoch == t.epoch && m.sentAt <= t.clock.seen {
		k.heartbeatReplied(m)
	}
}

// receiveNotify handles updates that the home sends by itself. They are numbered per leadership of
// the home and attempt, and taken in order. The next heartbeat acknowledges them, and the home
// repeats missing ones.
func (t *remoteTable) receiveNotify(from uint64, m *notifyMsg, st State) {
	if m.epoch != t.epoch {
		return
	}
	if k := t.subscriptions[from]; k != nil {
		k.notified(m)
	}
	for i := range m.sessions {
		switch e := &m.sessions[i]; e.state {
		case stateEnded:
			t.sessionEnded(e.session, e.ending)
		case stateAttached, stateDetached:
			t.update(e, st)
		}
	}
}
