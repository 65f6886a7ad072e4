package request

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/session"
	"github.com/signalbox-dev/signalbox/shard"
)

// rejectUnbound answers a request on a session that is not bound to this connection:
// SESSION_EXPIRED if there is no such session, whether it ended or never was, and BAD_SESSION if
// one exists. The leader of the session's home knows, behind a barrier where its machine has not
// given the id out; an instance that is neither says BAD_SESSION, and the attach that it advises
// finds out. The caller holds no machine.
func rejectUnbound(c *Client, o *Outbox, kind protocol.Kind, id, sessionID uint64) {
	bad := c.UnboundError(sessionID)
	if rejectWithoutHome(c, o, kind, id, sessionID) {
		return
	}
	d := c.server.Routes().Shard(protocol.SessionTier(sessionID), uint64(protocol.SessionBucket(sessionID)))
	if d == nil || bad.Status == protocol.StatusSessionExpired {
		o.FailError(c, kind, id, bad)
		return
	}
	switch lives, gone := sessionState(d, sessionID); {
	case gone:
		o.FailError(c, kind, id, session.ErrExpired())
	case lives || !d.Replica().Leading():
		o.FailError(c, kind, id, bad)
	default:
		d.Replica().Barrier(func(ok bool) {
			o := d.Requests().out
			if ok {
				defer o.Flush()
			} else { // on any goroutine, as for readBatch.afterBarrier
				o = d.Requests().server.BorrowOutbox()
				defer d.Requests().server.ReturnOutbox(o)
			}
			active := false
			d.Replica().View(func(m *shard.Machine) {
				_, active = m.Bucket(protocol.SessionBucket(sessionID))
				_, lives = m.Sessions().Home(sessionID)
			})
			if ok && active && !lives {
				bad = session.ErrExpired()
			}
			o.FailError(c, kind, id, bad)
		})
	}
}

// rejectWithoutHome answers SESSION_EXPIRED and returns true if no session can have the id.
func rejectWithoutHome(c *Client, o *Outbox, kind protocol.Kind, id, sessionID uint64) bool {
	if !c.server.Routes().noHome(sessionID) {
		return false
	}
	o.FailError(c, kind, id, session.ErrExpired())
	return true
}

// sessionState reports whether a session lives in its home here, or did and has ended, as far as
// the machine has come.
func sessionState(d Shard, sessionID uint64) (lives, ended bool) {
	d.Replica().View(func(m *shard.Machine) {
		_, lives = m.Sessions().Home(sessionID)
		ended = m.Sessions().Ended(sessionID)
	})
	return lives, ended
}

// sessionEnded reports whether a session which is at home here has ended: the log here has given
// out its id, and ids are never used again.
func sessionEnded(s *Server, sessionID uint64) bool {
	d := s.Routes().Shard(protocol.SessionTier(sessionID), uint64(protocol.SessionBucket(sessionID)))
	if d == nil {
		return false
	}
	_, ended := sessionState(d, sessionID)
	return ended
}
