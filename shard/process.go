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
func (x *hostedObject) callProcess(m *Machine) process.Now {
	m.touch(x)
	x.revision = m.applied
	if !x.called {
		x.called = true
		m.calledProcesses = append(m.calledProcesses, x)
	}
	return processNow(m, x.bucket)
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
// A process that has expired is deleted. The next process of the name begins above its epochs, so
// that what they fenced stays fenced.
func (x *hostedObject) tickProcess(m *Machine) {
	if m.batch.releaseBudget > 0 {
		at, p := processNow(m, x.bucket), x.process()
		p.Tick(at, &m.batch.proc)
		m.spendWork(1 + len(m.batch.proc.Events))
		x.emitProcess(m)
		if p.Expired(at) {
			m.emitProcessChange(x,
				protocol.ProcessChange{Kind: protocol.ProcessDeleted, Epoch: p.Epoch(), Topology: p.Topology()})
			x.unlink(m)
			if !x.node.dropped {
				x.bucket.orderCounter = max(x.bucket.orderCounter, p.HighestEpoch())
			}
			return
		}
	}
	x.schedule(m)
}

// emitProcess handles what a call left in m.batch.proc: memberships, events for members, changes
// for watches. A node that was dropped gets neither events nor changes.
func (x *hostedObject) emitProcess(m *Machine) {
	out := &m.batch.proc
	if x.chargedBytes > 0 {
		x.charge(x.quotaBytes())
	}
	for i := range out.Events {
		if e := &out.Events[i]; e.Kind == process.EventRemoved {
			x.removeMember(m, e.Session)
		}
	}
	for i := range out.Changes {
		switch c := &out.Changes[i]; c.Kind {
		case protocol.ProcessJoined, protocol.ProcessReturned:
			if p := m.sessions.get(c.Session); p != nil {
				p.addHolding(m, x)
			}
		case protocol.ProcessLeft, protocol.ProcessAbsent:
			x.removeMember(m, c.Session)
		}
	}
	if !x.node.dropped {
		if len(out.Events) > 0 {
			events := slices.Clone(out.Events)
			for i := range events {
				x.emitRound(m, &events[i])
			}
		}
		for i := range out.Changes {
			m.emitProcessChange(x, out.Changes[i])
		}
	}
	out.Reset()
}

// removeMember takes the process out of the holdings of a session that is a member no more.
func (x *hostedObject) removeMember(m *Machine, session uint64) {
	if p := m.sessions.get(session); p != nil && p.removeHolding(m, x) {
		p.remoteIdle(m)
	}
}

// emitRound notifies a session that is alive. It gets no event between its end and the call of
// SessionEnded.
func (x *hostedObject) emitRound(m *Machine, e *process.MemberEvent) {
	if p := m.sessions.get(e.Session); p != nil && !p.ended {
		m.batch.out.List = append(m.batch.out.List, Event{
			Kind: EventProcess, Session: e.Session, Epoch: p.epoch, Node: x.node.id, Name: x.name, Process: e,
		})
	}
}
