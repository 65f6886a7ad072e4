package shard

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
	"github.com/signalbox-dev/signalbox/shard/container"
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
	m.format = max(m.format, h.Format)
	if termOf(h.Epoch) == termOf(m.epoch) {
		m.logTime = max(m.logTime, h.LogTime) // a new leader continues from the time that it finds
	}
	m.spares.beginApply()
	m.batch.out, m.wall, m.batch.releaseBudget, m.batch.command = out, h.Wall, m.work.releases, 0
	m.batch.format = h.Format

	if takes && h.Epoch > m.epoch {
		takeOver(m, h.Epoch)
	}
	m.takeovers.sweep(m)
	m.sessionTable.purgeEnding(m)
	m.nodeTable.removeDropped(m)
	m.clearing.advance(m)
	m.fireDeadlines()
	m.forgetEnded()

	r := varint.Reader{Rest: rest}
	c := &m.batch.raw
	for len(r.Rest) > 0 {
		c.read(&r)
		m.apply(c, takes)
		m.batch.command++
	}
	*c = rawCommand{} // it aliases the entry
	tickCalledProcesses(m)
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

// applyCommand are the rules of the commands, by kind. CmdTakeOver has none: it takes effect before
// anything else, see Apply.
var applyCommand = [256]func(*Machine, *rawCommand){
	CmdAcquire:         applyAcquire,
	CmdRelease:         applyRelease,
	CmdForceRelease:    applyForceRelease,
	CmdCreate:          applyCreate,
	CmdUpdate:          applyUpdate,
	CmdResize:          applyResize,
	CmdDelete:          applyDelete,
	CmdAlter:           applyAlter,
	CmdProcessJoin:     applyProcessJoin,
	CmdProcessLeave:    applyProcessLeave,
	CmdProcessConfirm:  applyProcessConfirm,
	CmdProcessFail:     applyProcessFail,
	CmdProcessComplete: applyProcessComplete,
	CmdProcessForce:    applyProcessForce,
	CmdProcessEvict:    applyProcessEvict,
	CmdProcessAlter:    applyProcessAlter,
	CmdTrackCreate:     applyTrackCreate,
	CmdTrackAlter:      applyTrackAlter,
	CmdTrackDelete:     applyTrackDelete,
	CmdTrackRegister:   applyTrackRegister,
	CmdTrackUnregister: applyTrackUnregister,
	CmdTrackPoll:       applyTrackPoll,
	CmdTrackReport:     applyTrackReport,
	CmdTrackRole:       applyTrackRole,
	CmdTrackPublish:    applyTrackPublish,
	CmdTrackWithdraw:   applyTrackWithdraw,
	CmdTrackAdmin:      applyTrackAdmin,
	CmdTrackGate:       applyTrackGate,
	CmdTrackAdvance:    applyTrackAdvance,
	CmdLimitCreate:     applyLimitCreate,
	CmdLimitAlter:      applyLimitAlter,
	CmdLimitDelete:     applyLimitDelete,
	CmdLimitJoin:       applyLimitJoin,
	CmdLimitLeave:      applyLimitLeave,
	CmdSessionStart:    applyStart,
	CmdSessionAttach:   applyAttach,
	CmdSessionStop:     applyStop,
	CmdSessionKill:     applyKill,
	CmdDetach:          applyDetach,
	CmdRemoteEnded:     applyRemoteEnded,
	CmdRemoteUpdate:    applyRemoteUpdate,
	CmdNodePut:         applyNodePut,
	CmdNodeDrop:        applyNodeDrop,
	CmdBuckets:         applyBuckets,
	CmdFreeze:          applyFreeze,
	CmdImport:          applyImport,
	CmdActivate:        applyActivate,
	CmdDropBuckets:     applyDrop,
	CmdTransfer:        applyTransfer,
}

func (m *Machine) apply(c *rawCommand, takes bool) {
	switch rule := applyCommand[c.kind]; {
	case additions[c.kind] != nil && !c.limitTo(m.batch.format):
		m.reply(protocol.StatusUnsupported, textUnknown)
	case rule != nil:
		rule(m, c)
	case c.kind != CmdTakeOver:
		m.reply(protocol.StatusUnsupported, textUnknown)
	case takes:
		applyTakeOver(m)
	default:
		m.reply(protocol.StatusBadRequest, textMalformed)
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
			x.endInTime(m)
			s.promote(m)
			s.reapEphemeral(m)
		case *homeSession:
			x.expire(m)
		case *sessionRecord:
			x.expireRemote(m)
		case *hostedObject:
			x.state.wake(m, x)
		}
	}
}

// forgetEnded drops ids and create ids whose time is over.
func (m *Machine) forgetEnded() {
	var ended func(uint64, container.ExpiringKey[[protocol.KeyLen]byte])
	var gone func(uint64, container.ExpiringKey[uint64])
	if m.snapshot != nil {
		ended, gone = m.snapshot.keepEndedCreateID, m.snapshot.keepEndedRemote
	}
	m.endedCreateIDs.Forget(m.logTime, m.work.deadlines, ended)
	m.endedRemotes.Forget(m.logTime, m.work.deadlines, gone)
}
