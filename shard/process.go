package shard

import (
	"bytes"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/process"
)

// proc is a coordination process as a record of this shard; what it does is package process's.
//
// Invariant: it is among the places of exactly the parties whose sessions are its living members.
// Invariant: between Applies its timer is armed one before what state.Next says, if that says anything.
type proc struct {
	bucket   *bucket
	node     *node
	name     []byte // never changed in place
	state    *process.Process
	revision uint64 // log index of the last call that may have changed it
	timer    timer  // in the bucket's time
	mark     uint32
	weighs   uint64 // as counted by its node; 0 while it is not there
	called   bool   // in Machine.called
	deleted  bool
}

func procLess(a, b *proc) bool { return bytes.Compare(a.name, b.name) < 0 }

func (x *proc) clock() *timer { return &x.timer }

// deadline says the node; processes of one node and bucket that are due together fire in order of name.
func (x *proc) deadline() (deadlineKind, uint64, uint32) {
	return deadlineProcess, x.node.id, x.bucket.number
}

// process looks one up.
func (m *Machine) process(b *bucket, node uint64, name []byte) *proc {
	m.run.key = appendSemaphoreKey(m.run.key[:0], node, name)
	return b.processes[string(m.run.key)]
}

// processBucket is the bucket a process's name belongs to, or nil when it is not active here.
func (m *Machine) processBucket(node uint64, name []byte) *bucket {
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
func (m *Machine) linkProcess(x *proc) {
	if x.bucket.processes == nil {
		x.bucket.processes = make(map[string]*proc)
	}
	m.run.key = appendSemaphoreKey(m.run.key[:0], x.node.id, x.name)
	x.bucket.processes[string(m.run.key)] = x
	x.node.processes.insert(x, procLess)
	x.node.reweigh(&x.weighs, x.weight())
}

// unlinkProcess takes it out. It must be nobody's place. The next process of the name begins above its epochs: what they fenced stays fenced.
func (m *Machine) unlinkProcess(x *proc) {
	m.touchProcess(x)
	m.cancel(x)
	m.run.key = appendSemaphoreKey(m.run.key[:0], x.node.id, x.name)
	delete(x.bucket.processes, string(m.run.key))
	x.node.processes.remove(x, procLess)
	x.node.reweigh(&x.weighs, 0)
	if x.bucket.state == bucketActive && !x.node.dropped {
		x.bucket.orders = max(x.bucket.orders, x.state.Last())
	}
	x.deleted = true
}

// moment is now, for a process: the bucket's time, which moves with it.
func (m *Machine) moment(b *bucket) process.Moment {
	return process.Moment{Time: m.time(b), Wall: m.run.wall}
}

// call has a process ready to be called: set aside for a snapshot, and to be ticked at the end of this Apply.
func (m *Machine) call(x *proc) process.Moment {
	m.touchProcess(x)
	x.revision = m.applied
	if !x.called {
		x.called = true
		m.called = append(m.called, x)
	}
	return m.moment(x.bucket)
}

// rest ticks what was called in this Apply, in order of the first calls, and arms the timers. Starting a round costs as many units of work as members are told.
// When the work of this Apply is used up, the timers of the others are due, and the next one goes on.
func (m *Machine) rest() {
	for i, x := range m.called {
		m.called[i] = nil
		x.called = false
		if x.deleted {
			continue
		}
		if m.run.released > 0 {
			at := m.moment(x.bucket)
			x.state.Tick(at, &m.run.proc)
			m.spend(1 + len(m.run.proc.Events))
			m.tellProcess(x)
			if x.state.Gone(at) {
				m.tellProcessChange(x, process.Change{Kind: process.ChangeGone, Epoch: x.state.Epoch(), Topology: x.state.Topology()})
				m.unlinkProcess(x)
				continue
			}
		}
		m.armProcess(x)
	}
	m.called = m.called[:0]
}

// spend takes from the work of this Apply what was done of it, beyond its end if need be.
func (m *Machine) spend(n int) {
	m.run.released -= min(n, max(m.run.released, 0))
}

// armProcess arms the timer for what the process says: it is due when time is above the timer, and a process has something to do when time has reached Next.
func (m *Machine) armProcess(x *proc) {
	at, ok := x.state.Next()
	if !ok {
		m.cancel(x)
		return
	}
	m.arm(x, max(at, 1)-1)
}

// tellProcess takes what a call left in m.run.proc: places that were taken and given up, events for members, changes for watches. Nothing is told about a node
// that was dropped.
func (m *Machine) tellProcess(x *proc) {
	out := &m.run.proc
	if x.weighs > 0 {
		x.node.reweigh(&x.weighs, x.weight())
	}
	for i := range out.Events {
		if e := &out.Events[i]; e.Kind == process.EventRemoved {
			m.givePlaceUp(m.parties[e.Session], x)
		}
	}
	for i := range out.Changes {
		switch c := &out.Changes[i]; c.Kind {
		case process.ChangeJoined, process.ChangeReturned:
			m.takePlace(m.parties[c.Session], x)
		case process.ChangeLeft, process.ChangeAbsent:
			m.givePlaceUp(m.parties[c.Session], x)
		}
	}
	if !x.node.dropped {
		if len(out.Events) > 0 {
			events := slices.Clone(out.Events)
			for i := range events {
				m.tellMember(x, &events[i])
			}
		}
		for i := range out.Changes {
			m.tellProcessChange(x, out.Changes[i])
		}
	}
	out.Reset()
}

// tellMember tells a session that lives. Between the end of a session and the call of Ended nothing is told to it.
func (m *Machine) tellMember(x *proc, e *process.Event) {
	if p := m.parties[e.Session]; p != nil && !p.gone {
		m.run.out.List = append(m.run.out.List, Event{
			Kind: EventProcess, Session: e.Session, Epoch: p.epoch, Node: x.node.id, Name: x.name, Process: e,
		})
	}
}

func (m *Machine) tellProcessChange(x *proc, c process.Change) {
	if !x.node.dropped {
		m.run.out.Processes = append(m.run.out.Processes, ProcessChange{Node: x.node.id, Bucket: x.bucket.number, Name: x.name, Change: c})
	}
}

// takePlace and givePlaceUp tell the leader about a guest's first and last thing here.
func (m *Machine) takePlace(p *party, x *proc) {
	if p != nil && p.addPlace(x) && p.things() == 1 && !p.gone && !m.atHome(p) {
		m.becameHeld(p)
	}
}

func (m *Machine) givePlaceUp(p *party, x *proc) {
	if p != nil && p.removePlace(x) && !p.busy() && !m.atHome(p) {
		m.touchParty(p)
		m.becameIdle(p)
	}
}

// mayChange says whether members may go: a copy that is not active stays as it is, unless its node is gone.
func (x *proc) mayChange() bool { return x.bucket.state == bucketActive || x.node.dropped }

// vacate ends a gone party's memberships, in order of name, as far as the work of this Apply goes; done: no other may be ended.
func (m *Machine) vacate(p *party) (done bool) {
	for i := 0; i < len(p.places()); {
		x := p.places()[i]
		if !x.mayChange() {
			i++
			continue
		}
		if m.run.released <= 0 {
			return false
		}
		x.state.Ended(m.call(x), p.id, &m.run.proc)
		m.spend(1 + len(m.run.proc.Events))
		m.tellProcess(x)
	}
	return true
}

// dropProcesses removes those of a dropped node, whose sessions are all gone.
func (m *Machine) dropProcesses(n *node) {
	for x := n.processes.first(); x != nil && m.run.released > 0; x = n.processes.first() {
		m.run.released--
		m.unlinkProcess(x)
	}
}

// clearProcess lets go of one in a dropped copy. It is true.
func (m *Machine) clearProcess(x *proc) bool {
	sessions := x.state.Living(m.run.ids[:0])
	m.spend(1 + len(sessions))
	for _, id := range sessions {
		p := m.parties[id]
		if p != nil && p.removePlace(x) && !p.busy() && !p.gone && !m.atHome(p) {
			m.touchParty(p)
			m.becameIdle(p)
		}
	}
	m.run.ids = sessions[:0]
	m.unlinkProcess(x)
	return true
}
