package shard

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
)

// Apply applies the log entry with this index, and appends what leaves the machine to out. It does
// not keep entry.
//
// The order within an Apply is part of the format: the leader epoch is checked; the stamp moves log
// time, unless it is a new leader's first; a take-over takes effect; work left over by earlier
// Applies goes on; deadlines that are due fire in order of time, kind and id; then the batch's
// commands run in order. Each of the steps before the commands is bounded, see NextDeadline. At the
// end, processes that were called start the rounds that are due.
//
// Any bytes are safe. An entry that is not a batch changes nothing but AppliedIndex, on every
// replica alike.
func (m *Machine) Apply(index uint64, entry []byte, out *Events) {
	m.applied = index
	h, rest, err := ReadHeader(entry)
	if err == ErrFormat {
		out.List = append(out.List, Event{Kind: EventUnknownFormat})
		return
	}
	if err != nil {
		return
	}
	takes, ok := inspect(rest)
	if !ok {
		return
	}
	// Only a take-over brings a newer epoch; another batch under one is not from a leader.
	if h.Epoch < m.epoch || h.Epoch > m.epoch && !takes {
		out.List = append(out.List, Event{Kind: EventRefused, Epoch: h.Epoch})
		return
	}
	if termOf(h.Epoch) == termOf(m.epoch) {
		m.logTime = max(m.logTime, h.LogTime) // a new leader goes on from what it finds
	}
	m.batch.out, m.batch.wall, m.batch.releaseBudget, m.batch.command = out, h.Wall, m.work.releases, 0

	if takes && h.Epoch > m.epoch {
		m.takeOver(h.Epoch)
	}
	m.sweep()
	m.purgeEnding()
	m.removeDroppedNodes()
	m.clearDropped()
	m.fireDeadlines()
	m.forgetEnded()

	r := varint.Reader{Rest: rest}
	var c rawCommand
	for len(r.Rest) > 0 {
		c.read(&r)
		m.apply(&c, takes)
		m.batch.command++
	}
	m.tickCalledProcesses()
	m.batch.out = nil
	if invariants {
		m.mustHold()
	}
}

// inspect walks the commands of a batch before any is applied, so that a batch is applied whole or
// not at all.
func inspect(commands []byte) (takes, ok bool) {
	r := varint.Reader{Rest: commands}
	var c rawCommand
	n := 0
	for len(r.Rest) > 0 {
		if !c.read(&r) {
			return false, false
		}
		takes = takes || c.kind == CmdTakeOver
		n++
	}
	return takes && n == 1, true
}

func (m *Machine) apply(c *rawCommand, takes bool) {
	switch c.kind {
	case CmdAcquire:
		m.applyAcquire(c)
	case CmdRelease:
		m.applyRelease(c)
	case CmdForceRelease:
		m.applyForceRelease(c)
	case CmdCreate:
		m.applyCreate(c)
	case CmdUpdate:
		m.applyUpdate(c)
	case CmdResize:
		m.applyResize(c)
	case CmdDelete:
		m.applyDelete(c)
	case CmdProcessJoin:
		m.applyProcessJoin(c)
	case CmdProcessLeave:
		m.applyProcessLeave(c)
	case CmdProcessConfirm:
		m.applyProcessConfirm(c)
	case CmdProcessFail:
		m.applyProcessFail(c)
	case CmdProcessComplete:
		m.applyProcessComplete(c)
	case CmdProcessForce:
		m.applyProcessForce(c)
	case CmdProcessEvict:
		m.applyProcessEvict(c)
	case CmdProcessAlter:
		m.applyProcessAlter(c)
	case CmdTrackCreate:
		m.applyTrackCreate(c)
	case CmdTrackAlter:
		m.applyTrackAlter(c)
	case CmdTrackDelete:
		m.applyTrackDelete(c)
	case CmdTrackRegister:
		m.applyTrackRegister(c)
	case CmdTrackUnregister:
		m.applyTrackUnregister(c)
	case CmdTrackPoll:
		m.applyTrackPoll(c)
	case CmdTrackReport:
		m.applyTrackReport(c)
	case CmdTrackRole:
		m.applyTrackRole(c)
	case CmdTrackPublish:
		m.applyTrackPublish(c)
	case CmdTrackWithdraw:
		m.applyTrackWithdraw(c)
	case CmdTrackAdmin:
		m.applyTrackAdmin(c)
	case CmdTrackGate:
		m.applyTrackGate(c)
	case CmdTrackAdvance:
		m.applyTrackAdvance(c)
	case CmdSessionStart:
		m.applyStart(c)
	case CmdSessionAttach:
		m.applyAttach(c)
	case CmdSessionStop:
		m.applyStop(c)
	case CmdSessionKill:
		m.applyKill(c)
	case CmdDetach:
		m.applyDetach(c)
	case CmdRemoteEnded:
		m.applyRemoteEnded(c)
	case CmdRemoteUpdate:
		m.applyRemoteUpdate(c)
	case CmdNodePut:
		m.applyNodePut(c)
	case CmdNodeDrop:
		m.applyNodeDrop(c)
	case CmdBuckets:
		m.applyBuckets(c)
	case CmdFreeze:
		m.applyFreeze(c)
	case CmdImport:
		m.applyImport(c)
	case CmdActivate:
		m.applyActivate(c)
	case CmdDropBuckets:
		m.applyDrop(c)
	case CmdHandOver:
		m.applyHandOver(c)
	case CmdTakeOver:
		if !takes {
			m.reply(protocol.StatusBadRequest, textMalformed)
			return
		}
		m.applyTakeOver()
	default:
		m.reply(protocol.StatusUnsupported, textUnknown)
	}
}

// fireDeadlines fires due deadlines, a bounded number of them.
func (m *Machine) fireDeadlines() {
	for range m.work.deadlines {
		at, rec := m.deadlines.first()
		if rec == nil || m.logTime <= at {
			return
		}
		if b, ok := rec.(*bucket); ok {
			_, rec = b.timers.first()
		}
		switch x := rec.(type) {
		case *entry:
			s := x.semaphore
			m.endWaiter(x)
			m.promote(s)
			m.reapEphemeral(s)
		case *homeSession:
			m.expireSession(x)
		case *sessionRecord:
			m.expireRemote(x)
		case *hostedObject:
			x.state.wake(m, x)
		}
	}
}

// expireSession ends a session whose deadline has passed.
func (m *Machine) expireSession(s *homeSession) {
	if s.node.dropped {
		m.endSession(s, protocol.EndNodeDropped, textNodeEnd)
		return
	}
	m.endSession(s, protocol.EndExpired, textExpired)
}

// forgetEnded drops ids and create ids whose time is over.
func (m *Machine) forgetEnded() {
	var ended func(uint64, expiringKey[[protocol.KeyLen]byte])
	var gone func(uint64, expiringKey[uint64])
	if m.snapshot != nil {
		ended, gone = m.snapshot.keepEndedCreateID, m.snapshot.keepEndedRemote
	}
	m.endedCreateIDs.forget(m.logTime, m.work.deadlines, ended)
	m.endedRemotes.forget(m.logTime, m.work.deadlines, gone)
}
