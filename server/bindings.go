package server

import (
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/session"
	"github.com/signalbox-dev/signalbox/shard"
)

// ID implements session.Home.
func (d *shardHost) ID() uint64 { return d.id }

// RenewLeases implements session.Home.
func (d *shardHost) RenewLeases(conn, ping uint64) { d.raft.Ping(conn, ping) }

// ConnClosed implements session.Home.
func (d *shardHost) ConnClosed(conn uint64, heard time.Duration) { d.raft.ConnClosed(conn, heard) }

// rejectUnbound answers a request on a session that is not bound to this connection: SESSION_EXPIRED if there is no such
// session, whether it ended or never was, and BAD_SESSION if there is one. The leader of the session's home knows,
// behind a barrier where its machine has not given the id out; an instance that is neither says BAD_SESSION, and the
// attach that it advises tells. The caller holds no machine.
func (c *conn) rejectUnbound(o *outbox, kind protocol.Kind, id, sessionID uint64) {
	bad := c.UnboundError(sessionID)
	d := c.server.routing().shard(protocol.SessionTier(sessionID), uint64(protocol.SessionBucket(sessionID)))
	if d == nil || bad.Status == protocol.StatusSessionExpired {
		o.failError(c, kind, id, bad)
		return
	}
	switch lives, gone := d.sessionState(sessionID); {
	case gone:
		o.failError(c, kind, id, session.ErrExpired())
	case lives || !d.raft.Leading():
		o.failError(c, kind, id, bad)
	default:
		d.raft.Barrier(func(ok bool) {
			defer d.barrierOutbox.flush()
			active := false
			d.raft.View(func(m *shard.Machine) {
				_, active = m.Bucket(protocol.SessionBucket(sessionID))
				_, lives = m.Session(sessionID)
			})
			if ok && active && !lives {
				bad = session.ErrExpired()
			}
			d.barrierOutbox.failError(c, kind, id, bad)
		})
	}
}

// sessionState says whether a session lives in its home here, or did and has ended, as far as the machine has come.
func (d *shardHost) sessionState(sessionID uint64) (lives, ended bool) {
	d.raft.View(func(m *shard.Machine) {
		_, lives = m.Session(sessionID)
		ended = m.SessionEnded(sessionID)
	})
	return lives, ended
}

// sessionEnded says that a session which is at home here has ended: its id was given out by what is in the log here, and ids are never used again.
func (s *Server) sessionEnded(sessionID uint64) bool {
	d := s.routing().shard(protocol.SessionTier(sessionID), uint64(protocol.SessionBucket(sessionID)))
	if d == nil {
		return false
	}
	_, ended := d.sessionState(sessionID)
	return ended
}

// sessionAttached is told by the home's log that a session was attached: through a connection of this instance, or, with a nil conn, through another instance or
// one that is closed; the shard's leader knows the latter by itself. Connections that had the session under an older epoch lose it and are told.
func (d *shardHost) sessionAttached(c *conn, e *shard.Event) {
	if c == nil || !c.NewBinding(e.Session, e.Epoch, e.Node, d, e.Text).Bind(time.Duration(e.Timeout)*time.Millisecond) {
		d.server.bindings.Elsewhere(e.Session, e.Epoch, d)
	}
}
