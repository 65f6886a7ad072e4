package leader

import "github.com/signalbox-dev/signalbox/protocol"

// Events of the log, of connections and of routes, and messages of other leaders, as calls. Each
// goes to the parts that it concerns, in a fixed order.

// Attached is EventSessionAttached: the session is attached on this connection under this epoch.
// Timeout in ms. Connection 0 stands for one that is closed: the session is detached at once.
func (l *Leader) Attached(now, conn, session, attachEpoch, timeout uint64, description string) {
	if l.enter(now) {
		l.liveness.bind(conn, session, attachEpoch, timeout)
	} else if conn != 0 {
		l.cutConn(conn, "the shard is not led here; connect to its master")
	}
	if l.epoch != 0 {
		l.subscribers.notifyAlive(session, stateAttached, attachEpoch, description)
	}
}

// Detached is EventSessionDetached.
func (l *Leader) Detached(now, session, attachEpoch uint64, description string) {
	if l.enter(now) {
		l.subscribers.notifyAlive(session, stateDetached, attachEpoch, description)
		l.liveness.detached(session, attachEpoch)
	}
}

// Ended is EventSessionEnded.
func (l *Leader) Ended(now, session uint64, how *protocol.Ending) {
	if l.enter(now) {
		l.liveness.ended(session)
		l.subscribers.notifyEnded(session, how)
	}
}

// Ping asks for a pong behind a barrier that begins after this call. A newer ping of the connection
// replaces a waiting one. A connection without sessions at home here gets no pong.
func (l *Leader) Ping(now, conn, ping uint64) {
	if l.enter(now) {
		l.liveness.ping(conn, ping)
	}
}

// ConnClosed reports a closed connection, when something was last received on it, and who closed it.
func (l *Leader) ConnClosed(now, conn, lastHeard uint64, link protocol.Link) {
	if l.enter(now) {
		l.liveness.closed(conn, lastHeard, link)
	}
}

// RemoteHeld is EventRemoteHeld. The next tick requests it from the home shard, so that short locks
// cost nothing. Of more than [MaxNewAtOnce] within [NewRemoteDelay], the rest is delayed by that
// and at most twice that, and is requested if it still holds something then.
func (l *Leader) RemoteHeld(now, session uint64) {
	if l.enter(now) {
		l.remotes.held(session)
	}
}

// RemoteIdle is EventRemoteIdle. The record is dropped, and its subscription with it.
func (l *Leader) RemoteIdle(now, session uint64) {
	if l.enter(now) {
		l.remotes.idle(session)
	}
}

// Holdings answers Ready.Compare with the sessions that hold or wait for something here and have no
// ACTIVE home bucket here. Unknown ones are requested; others are dropped.
func (l *Leader) Holdings(now uint64, remotes []uint64) {
	if l.enter(now) {
		l.remotes.compare(remotes)
	}
}

// RouteChanged must be called when Route may answer differently. A remote session whose home has
// another owner or another bucket epoch is requested again.
func (l *Leader) RouteChanged(now uint64) {
	if l.enter(now) {
		l.remotes.routeChanged()
	}
}

// BucketsFrozen is EventBucketsFrozen: the buckets are about to move away, and their sessions leave
// their connections. The driver notifies the clients before this call, so a later pong does not
// count for these sessions. What they hold here belongs to remote sessions now.
func (l *Leader) BucketsFrozen(now uint64, first, count uint32) {
	if l.enter(now) {
		l.liveness.frozen(first, count)
		l.ready.Compare = true
	}
}

// BucketsActive is EventBucketsActive: sessions at home in the buckets are no longer remote, and
// others that hold something in them may be new here.
func (l *Leader) BucketsActive(now uint64) {
	if l.enter(now) {
		l.ready.Compare = true
	}
}

// BucketsLeft is EventBucketsLeft: the subscriptions for sessions of these buckets are dropped.
// Requests about them are answered "retry".
func (l *Leader) BucketsLeft(now uint64, first, count uint32) {
	if l.enter(now) {
		l.subscribers.left(first, count)
		l.ready.Compare = true
	}
}

// Receive handles a message of the leader of shard from. Malformed messages are counted and
// ignored.
func (l *Leader) Receive(now, from uint64, msg []byte, st State) {
	if !l.enter(now) {
		return
	}
	if err := l.receive(from, msg, st); err != nil {
		l.stats.Malformed++
	}
}

func (l *Leader) receive(from uint64, msg []byte, st State) error {
	if len(msg) < 2 {
		return errMalformed
	}
	if msg[0] != messageVersion {
		return nil
	}
	ok := true
	switch fields := msg[2:]; msg[1] {
	case kindSubscribe:
		ok = handle(fields, func(m *subscribeMsg) { l.subscribers.receiveSubscribe(from, m) })
	case kindHeartbeat:
		ok = handle(fields, func(m *heartbeatMsg) { l.subscribers.receiveHeartbeat(from, m) })
	case kindSubscribeReply:
		ok = handle(fields, func(m *subscribeReply) { l.remotes.receiveSubscribeReply(from, m, st) })
	case kindHeartbeatReply:
		ok = handle(fields, func(m *heartbeatReply) { l.remotes.receiveHeartbeatReply(from, m) })
	case kindNotify:
		ok = handle(fields, func(m *notifyMsg) { l.remotes.receiveNotify(from, m, st) })
	}
	if !ok {
		return errMalformed
	}
	return nil
}
