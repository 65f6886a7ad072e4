package client

import (
	"fmt"
	"math"
	"time"

	"github.com/signalbox-dev/signalbox/client/sessionstate"
	"github.com/signalbox-dev/signalbox/protocol"
)

// handleEvent hands on what the server sent unasked. It runs on the reader goroutine, and an
// error ends the connection.
func (c *Client) handleEvent(cn *conn, h protocol.Header) error {
	switch h.Kind {
	case protocol.KindGoodbye:
		var m protocol.Goodbye
		if err := m.DecodeBody(h.Body); err != nil {
			return err
		}
		cn.mu.Lock()
		cn.goodbye = &protocol.Error{Status: m.Status, Message: m.Message}
		cn.mu.Unlock()
	case protocol.KindMapChanged:
		var m protocol.MapChanged
		if err := m.DecodeBody(h.Body); err != nil {
			return err
		}
		r := c.routes.Load()
		if r == nil {
			break
		}
		if w := r.byShard[m.Shard]; w != nil {
			c.learnMaster(w, cn.instance, m.Master, m.Term)
		}
		if m.Version > r.version {
			c.fetchAnnouncedMap(m.Version, cn)
		}
	case protocol.KindSessionEnded:
		var m protocol.SessionEnded
		if err := m.DecodeBody(h.Body); err != nil {
			return err
		}
		cn.noteDetached(m.Session, math.MaxUint64, true)
		if s := c.session(m.Session); s != nil {
			s.endedByServer(endReason(m.Reason, m.Message))
			cn.forgetDetached(m.Session)
		}
	case protocol.KindTakenOver:
		var m protocol.TakenOver
		if err := m.DecodeBody(h.Body); err != nil {
			return err
		}
		cn.noteDetached(m.Session, m.Epoch-1, true)
		if s := c.session(m.Session); s != nil {
			s.takenOver(cn, m.Epoch)
		}
	case protocol.KindDetached:
		var m protocol.Detached
		if err := m.DecodeBody(h.Body); err != nil {
			return err
		}
		cn.noteDetached(m.Session, m.Epoch, false)
		if s := c.session(m.Session); s != nil {
			s.detachedByServer(cn, m.Epoch)
		}
	case protocol.KindAcquireResult:
		var m protocol.AcquireResult
		if err := m.DecodeBody(h.Body); err != nil {
			return err
		}
		if s := c.session(m.Session); s != nil {
			s.acquireResult(m)
		}
	case protocol.KindLeaseLost:
		var m protocol.LeaseLost
		if err := m.DecodeBody(h.Body); err != nil {
			return err
		}
		if s := c.session(m.Session); s != nil {
			s.leaseLost(string(m.Name), m.OrderID, m.Message)
		}
	case protocol.KindWatchFired:
		var m protocol.WatchFired
		if err := m.DecodeBody(h.Body); err != nil {
			return err
		}
		cn.fired(&m)
	case protocol.KindProcessRound, protocol.KindProcessMessage:
		return c.processEvent(h)
	case protocol.KindTrackStatus, protocol.KindTrackEvents, protocol.KindProcessState, protocol.KindProcessChanges:
		_, err := cn.objectStreamEvent(h)
		return err
	case protocol.KindStreamCut:
		if of, err := cn.objectStreamEvent(h); of {
			return err
		}
		return cn.streamEvent(h)
	case protocol.KindSnapshot, protocol.KindDelta:
		return cn.streamEvent(h)
	}
	return nil // what a newer server adds does not concern this client
}

// endReason is why the server ended a session, as an error.
func endReason(reason protocol.EndReason, message string) error {
	what := "ended"
	switch reason {
	case protocol.EndStopped:
		what = "stopped"
	case protocol.EndExpired:
		what = "its timeout passed"
	case protocol.EndKilled:
		what = "killed by an operator"
	case protocol.EndNodeDropped:
		what = "its coordination node was dropped"
	}
	if message != "" {
		what += ": " + message
	}
	return fmt.Errorf("%s", what)
}

func (s *Session) endedByServer(why error) {
	s.step(func(m *sessionstate.Machine, _ time.Duration) {
		s.end(sessionstate.EndedByServer, fmt.Errorf("%w (%w)", ErrSessionExpired, why))
	})
}

// takenOver is called when the server says on a connection that the session was attached elsewhere.
// If this client did so on another connection, the epoch is one that it used. If it is the
// attachment's own epoch, a start that was sent twice arrived in the wrong order. The session is
// then attached on a connection that this client gave up, and pongs on this one do not renew it any
// more.
func (s *Session) takenOver(cn *conn, epoch uint64) {
	s.step(func(m *sessionstate.Machine, now time.Duration) {
		switch {
		case epoch > s.epoch:
			s.end(sessionstate.TakenOver, ErrTakenOver)
		case s.attachment != nil && s.attachment.cn == cn && s.attachment.epoch <= epoch:
			s.detach()
			m.ConnLost(now)
		}
	})
}

// detachedByServer is called when the session's home moves or has another leader. Pongs on this
// connection no longer renew the attach. The session is attached again where the map says by then.
func (s *Session) detachedByServer(cn *conn, epoch uint64) {
	s.step(func(m *sessionstate.Machine, now time.Duration) {
		if s.attachment != nil && s.attachment.cn == cn && s.attachment.epoch <= epoch {
			s.detach()
			s.lowPriority = true
			m.ConnLost(now)
		}
	})
}
