package client

import (
	"bytes"
	"fmt"
	"math"

	"github.com/signalbox-dev/signalbox/protocol"
)

// handleEvent hands on what the server sent unasked. The reader calls it, and an error
// ends the connection.
func (c *Client) handleEvent(cn *conn, h protocol.Header) error {
	switch h.Kind {
	case protocol.KindGoodbye:
		var m protocol.Goodbye
		if err := m.DecodeBody(h.Body); err != nil {
			return err
		}
		cn.mu.Lock()
		why := &protocol.Error{Status: m.Status, Message: m.Message}
		cn.goodbye = why
		cn.mu.Unlock()
		if m.Status == protocol.StatusUnauthenticated {
			c.state.revoked(why, cn.tokenChange, c.clock.now())
		}
	case protocol.KindMapChanged:
		var m protocol.MapChanged
		if err := m.DecodeBody(h.Body); err != nil {
			return err
		}
		r := c.routes.Load()
		if r == nil {
			c.fetchAnnouncedMap(m.Version, cn) // once there is a map
			break
		}
		if w := r.byShard[m.Shard]; w != nil {
			c.learnMaster(w, cn.instance, m.Master, m.Term)
		}
		switch {
		case m.Version > r.version:
			c.fetchAnnouncedMap(m.Version, cn)
		case m.Version == r.version && m.Shard == 0:
			c.instanceCaughtUp()
		}
	case protocol.KindSessionEnded:
		var m protocol.SessionEnded
		if err := m.DecodeBody(h.Body); err != nil {
			return err
		}
		if m.Reason != protocol.EndStopped { // else it is not a new one: instances that saw its ticket say so late
			cn.noteDetached(m.Session, math.MaxUint64, true)
		}
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
			s.mu.Lock()
			s.nameLocks.leaseLost(string(m.Name), m.OrderID, m.Message)
			s.mu.Unlock()
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

// processEvent hands an event of a process to its member.
func (c *Client) processEvent(h protocol.Header) error {
	body := bytes.Clone(h.Body) // it is kept
	var session uint64
	var name []byte
	var round *protocol.ProcessRound
	var message *protocol.ProcessMessage
	if h.Kind == protocol.KindProcessRound {
		round = new(protocol.ProcessRound)
		if err := round.DecodeBody(body); err != nil {
			return err
		}
		session, name = round.Session, round.Name
	} else {
		message = new(protocol.ProcessMessage)
		if err := message.DecodeBody(body); err != nil {
			return err
		}
		session, name = message.Session, message.Name
	}
	s := c.session(session)
	if s == nil {
		return nil
	}
	s.mu.Lock()
	handle := s.processHandlers[string(name)]
	s.mu.Unlock()
	if handle != nil {
		handle(round, message)
	}
	return nil
}

// connLost ends everything that lives on a connection that is over.
func (c *Client) connLost(cn *conn) {
	c.connEnded(cn)
	cn.mu.Lock()
	sessions, presented, streams, shots, objects := cn.sessions, cn.presented, cn.streams.byID, cn.oneShots, cn.objectStreams
	cn.sessions, cn.presented, cn.streams, cn.oneShots, cn.objectStreams = nil, nil, streamSet{}, nil, nil
	cn.mu.Unlock()
	for _, shot := range shots {
		shot.fire(WatchResult{})
	}
	for _, st := range streams {
		st.cut(errConnLost)
	}
	for _, f := range objects {
		f.cut(errConnLost)
	}
	for s := range sessions {
		s.connLost(cn)
	}
	for s := range presented {
		confirmLeases(s)
	}
}

func (c *Client) serverSilent(cn *conn) { c.run(func() { c.findLeader(cn.instance) }) }

// handleMap is called when there is a newer map. While buckets moved, nobody reported leases that
// were taken away.
func (c *Client) handleMap(first bool) {
	c.watches.notify()
	if !first {
		c.run(c.confirmMoved)
	}
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
