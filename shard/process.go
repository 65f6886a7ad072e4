package shard

import (
	"encoding/binary"
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

// Processes reads coordination processes.
type Processes struct{ reader }

// Describe reads a page of a process's description: members in order of joining, and the history
// with the first page. A page holds at most the request's limit of members and about PageBytes.
// Errors: BAD_REQUEST, WRONG_SHARD, NOT_FOUND.
func (r Processes) Describe(req *protocol.ProcessDescribe, out *protocol.ProcessStatus) error {
	if err := protocol.Validate(req); err != nil {
		return err
	}
	after := uint64(0) // the order of the last member given
	if len(req.Cursor) > 0 {
		if len(req.Cursor) != 8 {
			return badCursor()
		}
		after = binary.BigEndian.Uint64(req.Cursor)
	}
	x, err := r.object(kindProcess, req.Node, req.Name)
	if err != nil {
		return err
	}
	d := x.process().Describe()
	members := d.Members
	*out = d
	out.Index, out.Revision, out.Name, out.Clock, out.NumMembers =
		r.m.applied, x.revision, x.name, r.m.logTime, uint64(len(members))
	out.Members, out.History = nil, nil
	if d.Start > 0 {
		out.Start = x.bucket.logTimeAt(d.Start)
	}
	p := newPage(req.Limit, PageBytes)
	if req.Flags&protocol.WithProcessHistory != 0 && after == 0 {
		out.History = x.process().History()
		for i := range out.History {
			p.bytes += 80 + len(out.History[i].Text)
		}
	}
	if req.Flags&protocol.WithProcessMembers == 0 {
		return nil
	}
	for _, info := range members {
		member := &info.Member
		if member.Order <= after {
			continue
		}
		if !p.takes(80 + len(member.Key) + len(member.Identity) + len(member.Data)) {
			out.Cursor = binary.BigEndian.AppendUint64(nil, after)
			return nil
		}
		if info.Until > 0 {
			info.Until = x.bucket.logTimeAt(info.Until)
		}
		out.Members = append(out.Members, info)
		after = member.Order
	}
	return nil
}

// List reads a page of a node's processes in the active buckets of this shard, in order of name.
// The cursor is the last name of the page before. Errors: BAD_REQUEST, NOT_FOUND.
func (r Processes) List(req *protocol.ProcessList, out *protocol.ProcessListReply) error {
	if err := protocol.Validate(req); err != nil {
		return err
	}
	*out = protocol.ProcessListReply{Index: r.m.applied, Processes: out.Processes[:0], Runs: r.m.activeRuns(out.Runs)}
	page := objectPage{node: req.Node, prefix: req.Prefix, cursor: req.Cursor, limit: req.Limit}
	return r.listObjects(kindProcess, page, &out.Cursor, func(x *hostedObject) {
		p := x.process()
		out.Processes = append(out.Processes, protocol.ProcessItem{
			Name: x.name, Phase: p.Phase(), Epoch: p.Epoch(), Topology: p.Topology(),
			Coordinator: p.Coordinator(), NumMembers: uint64(p.Len()),
		})
	})
}

// ProcessView is a process as its shard's leader sees it. It is good until the next Apply.
type ProcessView struct{ object *hostedObject }

// Find looks a process up in its bucket, which must be active here. Errors: WRONG_SHARD; NOT_FOUND
// for the node or the process.
func (r Processes) Find(node uint64, name []byte) (ProcessView, error) {
	x, err := r.object(kindProcess, node, name)
	return ProcessView{x}, err
}

// Node and Name say which it is; Bucket where.
func (v ProcessView) Node() uint64   { return v.object.node.id }
func (v ProcessView) Name() []byte   { return v.object.name }
func (v ProcessView) Bucket() uint32 { return v.object.bucket.number }

// Revision is the index of the entry in which it was called last: equal revisions, equal states.
func (v ProcessView) Revision() uint64 { return v.object.revision }

// Epoch is that of the present round, or the last.
func (v ProcessView) Epoch() uint64 { return v.object.process().Epoch() }

// Phase is the present one.
func (v ProcessView) Phase() protocol.ProcessPhase { return v.object.process().Phase() }

// Open reports whether messages may pass between the members of the round, which Sessions appends.
func (v ProcessView) Open() bool { return v.object.process().AllowsMessages() }

// Sessions appends the living members of the present round.
func (v ProcessView) Sessions(list []uint64) []uint64 { return v.object.process().RoundSessions(list) }

// LiveSessions appends the living members, in the present round or not.
func (v ProcessView) LiveSessions(list []uint64) []uint64 {
	return v.object.process().LiveSessions(list)
}

// Len is the number of members, absent ones included.
func (v ProcessView) Len() int { return v.object.process().Len() }

// Latest is the round that ended last; false: none did.
func (v ProcessView) Latest() (protocol.ProcessHistoryRound, bool) {
	return v.object.process().Latest()
}

// Preparing appends the members that have not prepared the present round, and gives the log time at
// which it started.
func (v ProcessView) Preparing(list []uint64) (started uint64, sessions []uint64) {
	started, sessions = v.object.process().Preparing(list)
	return v.object.bucket.logTimeAt(started), sessions
}

// Resend appends the messages that the session has not confirmed, as EventProcess. It changes
// nothing. It is false if the session is not a member and was not one lately.
func (r Processes) Resend(v ProcessView, session uint64, out []Event) ([]Event, bool) {
	var sent process.Out
	known := v.object.process().Resend(session, &sent)
	epoch := uint64(0)
	if p := r.m.sessions.get(session); p != nil {
		epoch = p.epoch
	}
	for i := range sent.Events {
		out = append(out, Event{Kind: EventProcess, Session: session, Epoch: epoch,
			Node: v.object.node.id, Name: v.object.name, Process: &sent.Events[i]})
	}
	return out, known
}

// From yields the processes that are active here, in order of node and name, from the one named on.
func (r Processes) From(first uint64, name []byte, yield func(ProcessView) bool) {
	r.objectsFrom(kindProcess, first, name, func(x *hostedObject) bool { return yield(ProcessView{x}) })
}

// ProcessRound is an EventProcess as the message to the member, without the members: their list is
// the same for all that are notified of a round.
func ProcessRound(e *Event, out *protocol.ProcessRound) {
	p := e.Process
	*out = protocol.ProcessRound{
		Session: e.Session, Name: e.Name, Kind: protocol.ProcessRoundKind(p.Kind), Removal: p.Removal, Epoch: p.Epoch,
		Topology: p.Topology, Coordinator: p.Coordinator, Attempt: p.Attempt, Token: p.Token,
		CompletedEpoch: p.CompletedEpoch, Result: p.Result, Text: p.Text,
	}
}
