package shard

import (
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/process"
)

// processState is a coordination process as a hosted object. Living members take part in it.
type processState struct{ *process.Process }

func decodeProcess(record []byte) (hostedState, error) {
	p, err := process.Decode(record)
	return processState{p}, err
}

func validProcessName(name []byte) bool { return protocol.ValidateProcessName(name) == nil }

func (h *hostedObject) process() *process.Process { return h.state.(processState).Process }

func (s processState) sessions(list []uint64) []uint64 { return s.LiveSessions(list) }

func (s processState) part(session uint64) (label string, count int) { return s.Key(session), 1 }

func (s processState) size() int { return s.Len() }

func (s processState) highest() uint64 { return s.HighestEpoch() }

func (s processState) bumpCounters(next func(uint64) uint64) { s.SkipEpochs(next) }

// wake has the process ticked at the end of this Apply.
func (s processState) wake(m *Machine, x *hostedObject) {
	m.unschedule(x)
	x.callProcess(m)
}

func (s processState) sessionEnded(m *Machine, x *hostedObject, session uint64) {
	s.SessionEnded(x.callProcess(m), session, &m.batch.proc)
	m.spendWork(1 + len(m.batch.proc.Events))
	x.emitProcess(m)
}

func (s processState) requestDone(m *Machine, x *hostedObject) { x.emitProcess(m) }

// processNow is the time of a call: the bucket's, which moves with it.
func processNow(m *Machine, b *bucket) process.Now {
	return process.Now{Log: m.bucketTime(b), Wall: m.wall}
}

// callProcess prepares a call: it saves the process for a snapshot, and has it ticked at the end of
// this Apply.
func (h *hostedObject) callProcess(m *Machine) process.Now {
	m.touch(h)
	h.revision = m.applied
	if !h.called {
		h.called = true
		m.calledProcesses = append(m.calledProcesses, h)
	}
	return processNow(m, h.bucket)
}

// tickCalledProcesses ticks the processes that were called in this Apply, in order of the first
// calls.
func tickCalledProcesses(m *Machine) {
	for i, x := range m.calledProcesses {
		m.calledProcesses[i] = nil
		x.called = false
		if !x.deleted {
			x.tickProcess(m)
		}
	}
	m.calledProcesses = m.calledProcesses[:0]
}

// tickProcess ticks a process and schedules its timer. Starting a round costs as much work as
// members are notified. When the work of this Apply is used up, the timer is due, and the next
// Apply continues.
//
// A process that has expired is deleted.
func (h *hostedObject) tickProcess(m *Machine) {
	if m.batch.releaseBudget > 0 {
		at, p := processNow(m, h.bucket), h.process()
		p.Tick(at, &m.batch.proc)
		m.spendWork(1 + len(m.batch.proc.Events))
		h.emitProcess(m)
		if p.Expired(at) {
			m.emitProcessChange(h,
				protocol.ProcessChange{Kind: protocol.ProcessDeleted, Epoch: p.Epoch(), Topology: p.Topology()})
			h.delete(m)
			return
		}
	}
	h.schedule(m)
}

// emitProcess handles what a call left in m.batch.proc: memberships, events for members, changes
// for watches. A node that was dropped gets neither events nor changes.
func (h *hostedObject) emitProcess(m *Machine) {
	out := &m.batch.proc
	if h.chargedBytes > 0 {
		h.charge(h.quotaBytes())
	}
	for i := range out.Events {
		if e := &out.Events[i]; e.Kind == process.EventRemoved {
			h.removeMember(m, e.Session)
		}
	}
	for i := range out.Changes {
		switch c := &out.Changes[i]; c.Kind {
		case protocol.ProcessJoined, protocol.ProcessReturned:
			if p := m.sessions.get(c.Session); p != nil {
				p.addHolding(m, h)
			}
		case protocol.ProcessLeft, protocol.ProcessAbsent:
			h.removeMember(m, c.Session)
		}
	}
	if !h.node.dropped {
		if len(out.Events) > 0 {
			events := slices.Clone(out.Events)
			for i := range events {
				h.emitRound(m, &events[i])
			}
		}
		for i := range out.Changes {
			m.emitProcessChange(h, out.Changes[i])
		}
	}
	out.Reset()
}

// removeMember takes the process out of the holdings of a session that is a member no more.
func (h *hostedObject) removeMember(m *Machine, session uint64) {
	if p := m.sessions.get(session); p != nil && p.removeHolding(m, h) {
		p.remoteIdle(m)
	}
}

// emitRound notifies a session that is alive. It gets no event between its end and the call of
// SessionEnded.
func (h *hostedObject) emitRound(m *Machine, e *process.MemberEvent) {
	if p := m.sessions.get(e.Session); p != nil && !p.ended {
		m.batch.out.List = append(m.batch.out.List, Event{
			Kind: EventProcess, Session: e.Session, Epoch: p.epoch, Node: h.node.id, Name: h.name, Process: e,
		})
	}
}
