package shard

import (
	"bytes"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/process"
)

// processRecord is a coordination process as a record of this shard; what it does is package process's.
//
// Invariant: it is among the places of exactly the session records whose sessions are its living
// members. Invariant: between Applies its timer is armed one before what state.Next says, if that
// says anything.
type processRecord struct {
	bucket       *bucket
	node         *node
	name         []byte // never changed in place
	state        *process.Process
	revision     uint64 // log index of the last call that may have changed it
	timer        timer  // in the bucket's time
	snapMark     uint32
	chargedBytes uint64 // as counted by its node; 0 while it is not there
	called       bool   // in Machine.calledProcesses
	deleted      bool
}

func processLess(a, b *processRecord) bool { return bytes.Compare(a.name, b.name) < 0 }

func (x *processRecord) timerRef() *timer { return &x.timer }

// deadlineKey says the node; processes of one node and bucket that are due together fire in order of
// name.
func (x *processRecord) deadlineKey() (deadlineKind, uint64, uint32) {
	return deadlineProcess, x.node.id, x.bucket.number
}

// process looks one up.
func (m *Machine) process(b *bucket, node uint64, name []byte) *processRecord {
	m.batch.key = appendSemaphoreKey(m.batch.key[:0], node, name)
	return b.processes[string(m.batch.key)]
}

// activeProcessBucket is the bucket a process's name belongs to, or nil when it is not active here.
func (m *Machine) activeProcessBucket(node uint64, name []byte) *bucket {
	if len(m.buckets) == 0 {
		return nil
	}
	b := &m.buckets[protocol.ProcessBucket(node, name, uint32(len(m.buckets)))]
	if b.state != bucketActive {
		return nil
	}
	return b
}

// linkProcess puts a process into its bucket and node.
func (m *Machine) linkProcess(x *processRecord) {
	if x.bucket.processes == nil {
		x.bucket.processes = make(map[string]*processRecord)
	}
	m.batch.key = appendSemaphoreKey(m.batch.key[:0], x.node.id, x.name)
	x.bucket.processes[string(m.batch.key)] = x
	x.node.processes.insert(x, processLess)
	x.node.chargeObject(&x.chargedBytes, x.quotaBytes())
}

// unlinkProcess takes it out. No session may be a member. The next process of the name begins above
// its epochs: what they fenced stays fenced.
func (m *Machine) unlinkProcess(x *processRecord) {
	m.touchProcess(x)
	m.cancel(x)
	m.batch.key = appendSemaphoreKey(m.batch.key[:0], x.node.id, x.name)
	delete(x.bucket.processes, string(m.batch.key))
	x.node.processes.remove(x, processLess)
	x.node.chargeObject(&x.chargedBytes, 0)
	if x.bucket.state == bucketActive && !x.node.dropped {
		x.bucket.orderCounter = max(x.bucket.orderCounter, x.state.HighestEpoch())
	}
	x.deleted = true
}

// processNow is now, for a process: the bucket's time, which moves with it.
func (m *Machine) processNow(b *bucket) process.Now {
	return process.Now{Log: m.bucketTime(b), Wall: m.batch.wall}
}

// callProcess prepares a call: it saves the process for a snapshot, and has it ticked at the end of
// this Apply.
func (m *Machine) callProcess(x *processRecord) process.Now {
	m.touchProcess(x)
	x.revision = m.applied
	if !x.called {
		x.called = true
		m.calledProcesses = append(m.calledProcesses, x)
	}
	return m.processNow(x.bucket)
}

// tickCalledProcesses ticks the processes that were called in this Apply, in order of the first
// calls, and arms their timers. Starting a round costs as much work as members are notified. When
// the work of this Apply is used up, the timers of the others are due, and the next Apply
// continues.
func (m *Machine) tickCalledProcesses() {
	for i, x := range m.calledProcesses {
		m.calledProcesses[i] = nil
		x.called = false
		if x.deleted {
			continue
		}
		if m.batch.releaseBudget > 0 {
			at := m.processNow(x.bucket)
			x.state.Tick(at, &m.batch.proc)
			m.spendWork(1 + len(m.batch.proc.Events))
			m.emitProcess(x)
			if x.state.Expired(at) {
				m.emitProcessChange(x, protocol.ProcessChange{Kind: protocol.ProcessDeleted, Epoch: x.state.Epoch(), Topology: x.state.Topology()})
				m.unlinkProcess(x)
				continue
			}
		}
		m.armProcess(x)
	}
	m.calledProcesses = m.calledProcesses[:0]
}

// spendWork takes n from the work of this Apply, at most what is left.
func (m *Machine) spendWork(n int) {
	m.batch.releaseBudget -= min(n, max(m.batch.releaseBudget, 0))
}

// armProcess arms the timer for what the process says: it is due when time is above the timer, and
// a process has something to do when time has reached Next.
func (m *Machine) armProcess(x *processRecord) {
	at, ok := x.state.Next()
	if !ok {
		m.cancel(x)
		return
	}
	m.arm(x, max(at, 1)-1)
}

// emitProcess handles what a call left in m.batch.proc: memberships, events for members, changes
// for watches. A node that was dropped gets neither events nor changes.
func (m *Machine) emitProcess(x *processRecord) {
	out := &m.batch.proc
	if x.chargedBytes > 0 {
		x.node.chargeObject(&x.chargedBytes, x.quotaBytes())
	}
	for i := range out.Events {
		if e := &out.Events[i]; e.Kind == process.EventRemoved {
			m.removeMembership(m.sessions[e.Session], x)
		}
	}
	for i := range out.Changes {
		switch c := &out.Changes[i]; c.Kind {
		case protocol.ProcessJoined, protocol.ProcessReturned:
			m.addMembership(m.sessions[c.Session], x)
		case protocol.ProcessLeft, protocol.ProcessAbsent:
			m.removeMembership(m.sessions[c.Session], x)
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

// emitRound notifies a session that is alive. It gets no event between its end and the call of
// Ended.
func (m *Machine) emitRound(x *processRecord, e *process.MemberEvent) {
	if p := m.sessions[e.Session]; p != nil && !p.ended {
		m.batch.out.List = append(m.batch.out.List, Event{
			Kind: EventProcess, Session: e.Session, Epoch: p.epoch, Node: x.node.id, Name: x.name, Process: e,
		})
	}
}

func (m *Machine) emitProcessChange(x *processRecord, c protocol.ProcessChange) {
	if !x.node.dropped {
		m.batch.out.ProcessChanges = append(m.batch.out.ProcessChanges, ProcessChange{Node: x.node.id, Bucket: x.bucket.number, Name: x.name, ProcessChange: c})
	}
}

// addMembership and removeMembership report a remote session's first and last reference to the
// leader.
func (m *Machine) addMembership(p *sessionRecord, x *processRecord) {
	if p != nil && p.addMembership(x) && p.references() == 1 && !p.ended && !m.atHome(p) {
		m.remoteHeld(p)
	}
}

func (m *Machine) removeMembership(p *sessionRecord, x *processRecord) {
	if p != nil && p.removeMembership(x) && !p.hasReferences() && !m.atHome(p) {
		m.touchSessionRecord(p)
		m.remoteIdle(p)
	}
}

// mayChange says whether members may go: a copy that is not active stays as it is, unless its node
// is gone.
func (x *processRecord) mayChange() bool { return x.bucket.state == bucketActive || x.node.dropped }

// endMemberships ends an ended session's memberships, in order of name, as far as the work of this
// Apply goes; done: no other can be ended.
func (m *Machine) endMemberships(p *sessionRecord) (done bool) {
	for i := 0; i < len(p.memberships()); {
		x := p.memberships()[i]
		if !x.mayChange() {
			i++
			continue
		}
		if m.batch.releaseBudget <= 0 {
			return false
		}
		x.state.SessionEnded(m.callProcess(x), p.id, &m.batch.proc)
		m.spendWork(1 + len(m.batch.proc.Events))
		m.emitProcess(x)
	}
	return true
}

// dropProcesses removes those of a dropped node, whose sessions are all gone.
func (m *Machine) dropProcesses(n *node) {
	for x := n.processes.first(); x != nil && m.batch.releaseBudget > 0; x = n.processes.first() {
		m.batch.releaseBudget--
		m.unlinkProcess(x)
	}
}

// clearProcess removes one of a dropped copy. It is true.
func (m *Machine) clearProcess(x *processRecord) bool {
	sessions := x.state.LiveSessions(m.batch.ids[:0])
	m.spendWork(1 + len(sessions))
	for _, id := range sessions {
		p := m.sessions[id]
		if p != nil && p.removeMembership(x) && !p.hasReferences() && !p.ended && !m.atHome(p) {
			m.touchSessionRecord(p)
			m.remoteIdle(p)
		}
	}
	m.batch.ids = sessions[:0]
	m.unlinkProcess(x)
	return true
}
