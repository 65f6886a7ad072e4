package core

import (
	"bytes"
	"math"

	"github.com/signalbox-dev/signalbox/protocol"
)

// event processes what a server sent unasked.
func (c *Conn) event(e *Engine, h *protocol.Header) error {
	switch h.Kind {
	case protocol.KindGoodbye:
		return decoded(h, func(m *protocol.Goodbye) { c.goodbye = &protocol.Error{Status: m.Status, Message: m.Message} })
	case protocol.KindMapChanged:
		return decoded(h, func(m *protocol.MapChanged) { e.routes.mapChanged(e, c, m) })
	case protocol.KindAcquireResult:
		var m protocol.AcquireResult
		if err := m.DecodeBody(h.Body); err != nil {
			return err
		}
		if s := e.sessions[m.Session]; s != nil {
			s.result(e, &m)
		}
	case protocol.KindLeaseLost:
		return decoded(h, func(m *protocol.LeaseLost) {
			if s := e.sessions[m.Session]; s != nil {
				s.leaseLost(e, m)
			}
		})
	case protocol.KindLeasePreempted:
		return decoded(h, func(m *protocol.LeasePreempted) {
			if s := e.sessions[m.Session]; s != nil {
				leasePreempted(e, s, m)
			}
		})
	case protocol.KindSessionEnded:
		return decoded(h, func(m *protocol.SessionEnded) {
			if s := e.sessions[m.Session]; s != nil {
				s.endedByServer(e, endCauses[m.Reason], endReason(m.Reason, m.Message))
			} else if m.Reason != protocol.EndStopped {
				// It may be a new one, whose start is not answered yet. One that was stopped is not:
				// instances that saw its ticket say so late.
				c.noteDetached(m.Session, math.MaxUint64)
			}
		})
	case protocol.KindTakenOver:
		return decoded(h, func(m *protocol.TakenOver) {
			c.noteDetached(m.Session, m.Epoch-1)
			if s := e.sessions[m.Session]; s != nil {
				s.takenOver(e, c, m.Epoch)
			}
		})
	case protocol.KindDetached:
		return decoded(h, func(m *protocol.Detached) {
			c.noteDetached(m.Session, m.Epoch)
			if s := e.sessions[m.Session]; s != nil {
				s.detachedByServer(e, c, m.Epoch)
			}
		})
	case protocol.KindDelta:
		return e.deltas.received(e, c, h)
	case protocol.KindProcessRound:
		m := &protocol.ProcessRound{}
		if err := protocol.DecodeBody(m, bytes.Clone(h.Body)); err != nil {
			return err
		}
		if s := e.sessions[m.Session]; s != nil {
			e.ready.Process = append(e.ready.Process, ProcessEvent{Session: s, Round: m})
		}
	case protocol.KindProcessMessage:
		m := &protocol.ProcessMessage{}
		if err := protocol.DecodeBody(m, bytes.Clone(h.Body)); err != nil {
			return err
		}
		if s := e.sessions[m.Session]; s != nil {
			e.ready.Process = append(e.ready.Process, ProcessEvent{Session: s, Message: m})
		}
	case protocol.KindWatchFired:
		return decoded(h, func(m *protocol.WatchFired) {
			if o := c.oneShots[m.WatchID]; o != nil {
				o.fire(e, m.DataChanged, m.OwnersChanged)
			}
		})
	case protocol.KindStreamCut:
		return decoded(h, func(m *protocol.StreamCut) {
			if p := c.streams.byID[h.ID]; p != nil { // else it was closed a moment ago
				p.cut(e, &protocol.Error{Status: m.Status, Message: m.Message})
			}
		})
	case protocol.KindSnapshot, protocol.KindProcessState, protocol.KindProcessChanges,
		protocol.KindTrackStatus, protocol.KindTrackEvents, protocol.KindLimitChanged:
		if p := c.streams.byID[h.ID]; p != nil {
			return p.of.event(e, p, h)
		}
	}
	return nil // what a newer server adds does not concern this client
}

// decoded handles a message that is decoded first.
func decoded[M any, P interface {
	*M
	protocol.Message
}](h *protocol.Header, handle func(P)) error {
	m := P(new(M))
	err := protocol.DecodeBody(m, h.Body)
	if err == nil {
		handle(m)
	}
	return err
}
