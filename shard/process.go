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

func (x *hostedObject) process() *process.Process { return x.state.(processState).Process }

func (s processState) sessions(list []uint64) []uint64 { return s.LiveSessions(list) }

func (s processState) part(session uint64) (label string, count int) { return s.Key(session), 1 }

func (s processState) size() int { return s.Len() }

func (s processState) skipAhead(numbers uint64) { s.SkipEpochs(numbers) }

// wake has the process ticked at the end of this Apply.
func (s processState) wake(m *Machine, x *hostedObject) {
	m.unschedule(x)
	m.callProcess(x)
}

func (s processState) sessionEnded(m *Machine, x *hostedObject, session uint64) {
	s.SessionEnded(m.callProcess(x), session, &m.batch.proc)
	m.spendWork(1 + len(m.batch.proc.Events))
	m.emitProcess(x)
}

func (s processState) requestDone(m *Machine, x *hostedObject) { m.emitProcess(x) }

// processNow is the time of a call: the bucket's, which moves with it.
func (m *Machine) processNow(b *bucket) process.Now {
	return process.Now{Log: m.bucketTime(b), Wall: m.batch.wall}
}

// callProcess prepares a call: it saves the process for a snapshot, and has it ticked at the end of
// this Apply.
func (m *Machine) callProcess(x *hostedObject) process.Now {
	m.touch(x)
	x.revision = m.applied
	if !x.called {
		x.called = true
		m.calledProcesses = append(m.calledProcesses, x)
	}
	return m.processNow(x.bucket)
}

// tickCalledProcesses ticks the processes that were called in this Apply, in order of the first
// calls, and schedules their timers. Starting a round costs as much work as members are notified.
// When the work of this Apply is used up, the timers of the others are due, and the next Apply
// continues.
//
// A process that has expired is deleted. The next process of the name begins above its epochs, so
// that what they fenced stays fenced.
func (m *Machine) tickCalledProcesses() {
	for i, x := range m.calledProcesses {
		m.calledProcesses[i] = nil
		x.called = false
		if x.deleted {
			continue
		}
		if m.batch.releaseBudget > 0 {
			at, p := m.processNow(x.bucket), x.process()
			p.Tick(at, &m.batch.proc)
			m.spendWork(1 + len(m.batch.proc.Events))
			m.emitProcess(x)
			if p.Expired(at) {
				m.emitProcessChange(x,
					protocol.ProcessChange{Kind: protocol.ProcessDeleted, Epoch: p.Epoch(), Topology: p.Topology()})
				m.unlinkObject(x)
				if x.bucket.state == bucketActive && !x.node.dropped {
					x.bucket.orderCounter = max(x.bucket.orderCounter, p.HighestEpoch())
				}
				continue
			}
		}
		m.scheduleObject(x)
	}
	m.calledProcesses = m.calledProcesses[:0]
}

// emitProcess handles what a call left in m.batch.proc: memberships, events for members, changes
// for watches. A node that was dropped gets neither events nor changes.
func (m *Machine) emitProcess(x *hostedObject) {
	out := &m.batch.proc
	if x.chargedBytes > 0 {
		x.charge(x.quotaBytes())
	}
	for i := range out.Events {
		if e := &out.Events[i]; e.Kind == process.EventRemoved {
			m.removeMember(e.Session, x)
		}
	}
	for i := range out.Changes {
		switch c := &out.Changes[i]; c.Kind {
		case protocol.ProcessJoined, protocol.ProcessReturned:
			m.addHolding(m.sessions.get(c.Session), x)
		case protocol.ProcessLeft, protocol.ProcessAbsent:
			m.removeMember(c.Session, x)
		}
	}
	if !x.node.dropped {
		if len(out.Events) > 0 {
			events := slices.Clone(out.Events)
			for i := range events {
				m.emitRound(x, &events[i])
			}
		}
		for i := range out.Changes {
			m.emitProcessChange(x, out.Changes[i])
		}
	}
	out.Reset()
}

func (m *Machine) removeMember(session uint64, x *hostedObject) {
	if p := m.sessions.get(session); p != nil && m.removeHolding(p, x) {
		m.remoteIdle(p)
	}
}

// emitRound notifies a session that is alive. It gets no event between its end and the call of
// SessionEnded.
func (m *Machine) emitRound(x *hostedObject, e *process.MemberEvent) {
	if p := m.sessions.get(e.Session); p != nil && !p.ended {
		m.batch.out.List = append(m.batch.out.List, Event{
			Kind: EventProcess, Session: e.Session, Epoch: p.epoch, Node: x.node.id, Name: x.name, Process: e,
		})
	}
}

func (m *Machine) emitProcessChange(x *hostedObject, c protocol.ProcessChange) {
	if !x.node.dropped {
		m.batch.out.ProcessChanges = append(m.batch.out.ProcessChanges, ProcessChange{
			Node: x.node.id, Bucket: x.bucket.number, Name: x.name, ProcessChange: c,
		})
	}
}
