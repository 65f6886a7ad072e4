package client

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// addSession makes the connection keep a session alive that was attached on it, at this home shard
// and epoch. pinged is the id of the last ping before that. ok is false if the connection or the
// attach is over.
func (cn *conn) addSession(s *Session, shard, epoch uint64, period time.Duration) (v *renewal, pinged uint64, ok bool) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	if cn.err != nil || cn.detachedUpTo[s.id] >= epoch {
		return nil, 0, false
	}
	delete(cn.detachedUpTo, s.id)
	v = cn.renewals[shard]
	if v == nil {
		v = &renewal{}
		cn.renewals[shard] = v
	}
	if before, ok := cn.sessions[s]; ok {
		cn.periods.Remove(before)
	}
	cn.sessions[s] = period
	cn.periods.Add(period)
	cn.updatePeriod()
	return v, cn.lastPing, true
}

// removeSession is called when a session is not attached here any more.
func (cn *conn) removeSession(s *Session) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	if before, ok := cn.sessions[s]; ok {
		delete(cn.sessions, s)
		cn.periods.Remove(before)
		cn.updatePeriod()
	}
}

// noteDetached records that pongs renew no attach of the session up to this epoch. The attach's
// reply may have been read before and be processed later. An early event comes right after the
// reply to a start or restore, when the session is not known yet. The session is then not attached
// here, and attaches again. Otherwise pongs for others would renew it until its first request.
func (cn *conn) noteDetached(session, epoch uint64, early bool) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	if !early || len(cn.detachedUpTo) < maxEarlyDetaches {
		put(&cn.detachedUpTo, session, max(cn.detachedUpTo[session], epoch))
	}
}

// forgetDetached drops the record of a session that is known and over.
func (cn *conn) forgetDetached(session uint64) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	delete(cn.detachedUpTo, session)
}

// detachFromHome detaches the sessions on a connection that are at home in a shard.
func (cn *conn) detachFromHome(shard uint64) {
	var sessions []*Session
	cn.mu.Lock()
	if cn.renewals[shard] != nil {
		sessions = slices.Collect(maps.Keys(cn.sessions))
	}
	cn.mu.Unlock()
	for _, s := range sessions {
		s.detachFrom(cn, func(att *attachment) bool { return att.shard == shard })
	}
}

func (cn *conn) forgetPresented(s *Session) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	delete(cn.presented, s)
}

// forgetSession forgets what the connection knows of a session that is over; last: and of its id,
// which another object of the client does not have. presented is the epoch of the ticket that was
// presented here, 0 for none. The session's mu is held.
func (cn *conn) forgetSession(s *Session, last bool) (presented uint64) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	presented = cn.presented[s]
	delete(cn.presented, s)
	if last {
		delete(cn.detachedUpTo, s.id)
	}
	return presented
}

// takeTicketBack tells an instance that is not the session's home, and does not hear of its end
// otherwise, that it need not keep the session and its watches. Nobody waits for the answer.
func (cn *conn) takeTicketBack(ctx context.Context, session, epoch uint64) {
	m := &protocol.SessionStop{Session: session, Epoch: epoch}
	_, _, _ = cn.startCall(ctx, nil, protocol.KindSessionStop, uint64(protocol.SessionBucket(session)), m,
		func(_ uint64, cl *call) { cl.reply = func(protocol.Status, []byte, error) {} })
}

// failSessionCalls ends the calls of a session that has ended. The session's ended is set already,
// so no call of it follows.
func (cn *conn) failSessionCalls(of *Session) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	cn.calls.Each(func(id uint64, cl *call) {
		if cl.session == of && cl.reply == nil {
			cn.calls.Abandon(id)
			cl.err = errCallStopped
			cl.done <- struct{}{}
			cn.reader.recallLocked()
		}
	})
}

// waitsFor says whether a request, or a session at home there, waits for a shard on this
// connection.
func (cn *conn) waitsFor(shard uint64) (waits bool) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	if cn.renewals[shard] != nil && len(cn.sessions) > 0 {
		return true
	}
	cn.calls.Each(func(_ uint64, cl *call) { waits = waits || cl.shard == shard })
	return waits
}

// failShardCalls ends the calls that wait for a shard as the end of the connection would. They
// count against the window until they are answered.
func (cn *conn) failShardCalls(shard uint64) {
	var waiting []*call
	cn.mu.Lock()
	cn.calls.Each(func(id uint64, cl *call) {
		if cl.shard == shard {
			cn.calls.Abandon(id)
			waiting = append(waiting, cl)
			cn.reader.recallLocked()
		}
	})
	cn.mu.Unlock()
	for _, cl := range waiting {
		cl.err = errConnLost
		cl.done <- struct{}{}
	}
}
