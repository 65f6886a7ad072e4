package leader

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// detachAll takes all sessions off a connection and detaches them, as of the last receive on it.
func (l *liveness) detachAll(c *conn, link protocol.Link) {
	for _, s := range c.sessions {
		s.conn, s.index = nil, int32(link)
		s.at = max(c.last, s.at)
		if s.detachID == 0 {
			l.queueDetach(s, link)
		}
	}
	clear(c.sessions)
	c.sessions, c.undecided = c.sessions[:0], 0
}

func (l *liveness) queueDetach(s *session, link protocol.Link) {
	s.index = -int32(link)
	l.detachQueue = append(l.detachQueue, s)
}

// flushDetaches proposes the detaches that are queued, as fast as the limiter permits.
func (l *liveness) flushDetaches(p *proposals) {
	for (len(l.detachQueue) > 0 || l.unlogged && l.expires) && p.limiter.tokens > 0 {
		f, body := proposal{stood: l.unlogged}, shard.DetachBody{}
		if l.unlogged {
			body.Stood, body.StoodAt, l.unlogged = l.stood, l.stoodAt, false
		}
		for len(l.detachQueue) > 0 && p.limiter.tokens > 0 && len(f.sessions) < MaxExpiries {
			s := l.detachQueue[0]
			l.detachQueue[0] = nil
			l.detachQueue = l.detachQueue[1:]
			if !s.detachQueued() {
				continue // attached again, or ended
			}
			s.unqueue()
			p.limiter.tokens--
			f.sessions = append(f.sessions, s)
			body.Sessions = append(body.Sessions, shard.DetachItem{Session: s.id, Epoch: s.epoch, LastContact: s.at, Link: s.link()})
		}
		if len(f.sessions) == 0 && body.Stood == 0 {
			return
		}
		id := p.propose(shard.CmdDetach, shard.AppendDetach(nil, body), f)
		for _, s := range f.sessions {
			s.detachID = id
		}
	}
}

// detachesDone handles the outcome of the command that detaches these sessions.
func (l *liveness) detachesDone(command uint64, list []*session, applied bool) {
	for _, s := range list {
		if l.sessions.Get(s.id) != s || s.detachID != command {
			continue // the log has decided it already
		}
		s.detachID = 0
		if s.conn != nil {
			s.conn.undecided--
		}
		switch {
		case applied:
			// The machine did not have it attached under this epoch.
			l.forgetDetached(s)
		case s.conn == nil:
			l.queueDetach(s, s.link())
		}
	}
}
