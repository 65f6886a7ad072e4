package shard

import (
	"bytes"

	"github.com/signalbox-dev/signalbox/protocol"
)

func (m *model) sem(node uint64, name []byte) *modelSemaphore {
	for _, s := range m.sems {
		if s.node == node && bytes.Equal(s.name, name) {
			return s
		}
	}
	return nil
}

// reachable reports whether name's bucket and the node are here; else the command is answered.
func (m *model) reachable(node uint64, name []byte) bool {
	switch {
	case m.total == 0 || !m.active[protocol.Bucket(node, name, m.total)]:
		m.reply(protocol.StatusWrongShard)
		return false
	case m.node(node) == nil:
		st := protocol.StatusNotFound
		for _, id := range m.dropped {
			if id == node {
				st = protocol.StatusSessionExpired
			}
		}
		m.reply(st)
		return false
	}
	return true
}

// request is what all requests on semaphores have in common. It gives nil when the request is
// answered.
func (m *model) request(o op, h protocol.Head, name []byte) *modelSession {
	if !m.reachable(o.node, name) {
		return nil
	}
	s := m.requestSession(h.Session, o.node, o.epoch, o.client)
	if s == nil {
		return nil
	}
	// What is overdue counts as gone: a session may have been detached in this batch with its
	// deadline behind it.
	var row *modelEntry
	if sem := m.sem(o.node, name); sem != nil {
		m.process(sem)
		row = sem.entryOf(s)
		if row != nil && row.owner && row.ends() && m.now > row.bound() {
			m.endAtBound(sem, row)
			m.process(sem)
			row = nil
		}
	}
	if h.Low > s.low {
		s.low = h.Low
		for seq := range s.answers {
			if seq < s.low {
				delete(s.answers, seq)
			}
		}
	}
	if o.kind == CmdAcquire && row != nil && row.seq == h.Seq {
		state := protocol.Acquired
		if !row.owner {
			state = protocol.Queued
		}
		m.countRule("sent again, answered by the entry")
		m.emit(Event{Kind: EventReply, Command: m.command, State: state, OrderID: row.order,
			Grant: m.grantOf(m.sem(o.node, name), row)})
		return nil
	}
	if a, ok := s.answers[h.Seq]; ok {
		a.reply.Command = m.command
		switch {
		case a.kind != o.kind:
			m.countRule("number of another kind")
			m.reply(protocol.StatusBadRequest)
		case a.reply.State == protocol.Acquired && (row == nil || !row.owner || row.order != a.reply.OrderID):
			m.countRule("sent again, acquired no more")
			m.reply(protocol.StatusAborted) // it would be a lie by now
		default:
			m.countRule("sent again, answered from memory")
			if a.reply.State == protocol.Acquired {
				a.reply.Grant = m.grantOf(m.sem(o.node, name), row)
			}
			m.emit(a.reply)
		}
		return nil
	}
	if h.Seq < s.low {
		m.countRule("number below the low-water mark")
		if o.kind == CmdAcquire {
			m.emit(Event{Kind: EventReply, Command: m.command, State: protocol.NotAcquired})
		} else {
			m.reply(protocol.StatusBadRequest)
		}
		return nil
	}
	if len(s.answers) >= m.limits.Answers {
		m.countRule("limit of answers")
		m.reply(protocol.StatusOverloaded)
		return nil
	}
	return s
}

// answer answers a request and remembers it; what may be sent again is not remembered.
func (m *model) answer(s *modelSession, o op, seq uint64, e Event) {
	e.Kind, e.Command = EventReply, m.command
	if !e.Status.Retryable() {
		s.answers[seq] = modelAnswer{o.kind, e}
	}
	m.emit(e)
}

func (m *model) refuse(s *modelSession, o op, seq uint64, st protocol.Status) {
	m.answer(s, o, seq, Event{Status: st})
}

// recall remembers what an acquire came to when its entry stops carrying its number, if the client
// may not know.
func (m *model) recall(r *modelEntry, e Event) {
	if s := r.session; !s.ended && r.seq >= s.low {
		e.Kind = EventReply
		s.answers[r.seq] = modelAnswer{CmdAcquire, e}
	}
}

func badHead(h protocol.Head, name []byte) bool {
	return h.Seq == 0 || len(name) == 0 || len(name) > 1024
}
