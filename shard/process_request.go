package shard

import (
	"bytes"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/process"
)

// MaxProcessesPerSession bounds the processes that one session is a member of in one shard. Beyond
// it a join is OVERLOADED.
const MaxProcessesPerSession = 10_000

// processRequest is a member's request whose session is known and which is to be carried out.
type processRequest struct {
	kind    CommandKind
	seq     uint64 // 0: it has no number, for it may be repeated
	name    []byte
	node    *node
	bucket  *bucket
	session *sessionRecord
	process *processRecord // nil if there is none with this name
}

// enterProcess does what all members' requests have in common, in this order: bucket, node, session
// and attach epoch, then the memory of requests. It reports false when the command is answered.
func (m *Machine) enterProcess(q *processRequest, c *rawCommand, head *protocol.Head, name []byte) bool {
	q.kind, q.seq, q.name = c.kind, head.Seq, name
	if !m.findProcess(q, c.node) {
		return false
	}
	if q.session = m.requireSession(head.Session, q.node, c.epoch, nil); q.session == nil {
		return false
	}
	if q.seq == 0 {
		return true
	}
	if a := q.session.findAnswer(head); a != nil {
		m.replyProcessAgain(q, *a)
		return false
	}
	_, member := q.session.memberships().find(q.name)
	return m.admitNew(q.session, q.seq, member && q.process != nil)
}

// findProcess finds bucket, node and process; it reports false when the command is answered.
func (m *Machine) findProcess(q *processRequest, node uint64) bool {
	if q.bucket = m.activeProcessBucket(node, q.name); q.bucket == nil {
		m.reply(protocol.StatusWrongShard, textWrongShard)
		return false
	}
	if q.node = m.requireNode(node); q.node == nil {
		return false
	}
	q.process = m.process(q.bucket, node, q.name)
	return true
}

// replyProcessAgain answers a number that was answered before. A join is looked at twice: it is
// repeated while the session is a member, and never carried out again.
func (m *Machine) replyProcessAgain(q *processRequest, a answer) {
	ev := Event{Kind: EventReply, Command: m.batch.command, Status: outcomeTable[a.outcome].status, Text: a.text()}
	switch {
	case a.kind != q.kind:
		m.reply(protocol.StatusBadRequest, textNumberReused)
		return
	case a.outcome != outOK:
	case a.kind == CmdProcessLeave:
		ev.Result = a.value
	case a.kind == CmdProcessJoin:
		if _, member := q.session.memberships().find(q.name); !member || q.process == nil || q.process.state.JoinOrder(q.session.id) != a.value {
			ev.Status, ev.Text = protocol.StatusAborted, textMemberNoMore
			break
		}
		ev.OrderID, ev.Result, ev.AlreadyMember = a.value, q.process.state.Topology(), true
		m.batch.out.List = append(m.batch.out.List, ev)
		q.process.state.Resend(q.session.id, &m.batch.proc)
		m.emitProcess(q.process)
		return
	}
	m.batch.out.List = append(m.batch.out.List, ev)
}

// finishProcess answers a request, remembers the answer if it has a number, and then emits what it
// did to others.
func (m *Machine) finishProcess(q *processRequest, ev Event, value uint64, err error) {
	ev.Kind, ev.Command = EventReply, m.batch.command
	out := outOK
	if err != nil {
		ev = Event{Kind: EventReply, Command: m.batch.command, Status: protocol.StatusBadRequest, Text: textMalformed}
		if e, ok := err.(*protocol.Error); ok {
			ev.Status, ev.Text = e.Status, e.Message
		}
		out = processOutcome(ev.Status)
	}
	if q.seq != 0 && ev.Status != protocol.StatusOverloaded {
		q.session.rememberAnswer(answer{seq: q.seq, kind: q.kind, bucket: q.bucket.number, outcome: out, value: value, sentence: q.session.keepSentence(ev.Text, out)})
	}
	m.batch.out.List = append(m.batch.out.List, ev)
	if q.process != nil {
		m.emitProcess(q.process)
	}
}

// processOutcome is how a refusal is remembered: its status, with its sentence, see keepSentence.
func processOutcome(status protocol.Status) outcome {
	switch status {
	case protocol.StatusNotFound:
		return outNotMember
	case protocol.StatusAlreadyExists:
		return outMemberOther
	case protocol.StatusAborted:
		return outRoundOver
	case protocol.StatusPreconditionFailed:
		return outRoundRefused
	}
	return outProcessArgument
}

func (m *Machine) refuseNotMember(q *processRequest) {
	m.finishProcess(q, Event{}, 0, &protocol.Error{Status: protocol.StatusNotFound, Message: outcomeTable[outNotMember].text + "; join first"})
}

// moreBytes is by how much a member of that size makes its node larger: a process that is not there
// is made, and a member that has the key goes.
func (q *processRequest) moreBytes(member uint64, key string) uint64 {
	if q.process == nil {
		return objectBytes + uint64(len(q.name)) + member
	}
	return growth(member, q.process.state.BytesOf(key))
}

func (m *Machine) applyProcessJoin(c *rawCommand) {
	var body protocol.ProcessJoin
	var q processRequest
	if !m.decode(&body, c.body) || !m.valid(&body) || !m.enterProcess(&q, c, &body.Head, body.Name) {
		return
	}
	p := q.session
	_, member := p.memberships().find(q.name)
	if !member && len(p.memberships()) >= MaxProcessesPerSession {
		m.finishProcess(&q, Event{}, 0, &protocol.Error{Status: protocol.StatusOverloaded, Message: textMembershipsLimit})
		return
	}
	made := q.process == nil
	if !member && !m.roomForBytes(q.node, q.moreBytes(process.JoinBytes(len(body.Key), len(c.client), len(body.Data)), body.Key)) {
		m.finishProcess(&q, Event{}, 0, &protocol.Error{Status: protocol.StatusPreconditionFailed, Message: textBytesQuota(q.node.config.MaxBytes)})
		return
	}
	if made {
		if !m.roomForName(q.node) {
			m.finishProcess(&q, Event{}, 0, &protocol.Error{Status: protocol.StatusPreconditionFailed, Message: textQuota(q.node.config.MaxSemaphores)})
			return
		}
		state, err := process.New(m.processNow(q.bucket), q.bucket.orderCounter, body.Options)
		if err != nil {
			m.finishProcess(&q, Event{}, 0, err)
			return
		}
		q.process = &processRecord{bucket: q.bucket, node: q.node, name: bytes.Clone(q.name), state: state, snapMark: m.snapMark}
	}
	join := process.Join{Session: p.id, Key: body.Key, Identity: string(c.client), Data: body.Data, Weight: body.Weight}
	if err := join.Validate(); err != nil { // before a process is made for it
		q.process = nil
		m.finishProcess(&q, Event{}, 0, err)
		return
	}
	if made {
		m.linkProcess(q.process)
	}
	j, err := q.process.state.Join(m.callProcess(q.process), join, &m.batch.proc)
	m.finishProcess(&q, Event{OrderID: j.Order, Result: j.Topology, Flag: j.Returned, AlreadyMember: j.AlreadyMember}, j.Order, err)
}

func (m *Machine) applyProcessLeave(c *rawCommand) {
	var body protocol.ProcessLeave
	var q processRequest
	if !m.decode(&body, c.body) || !m.valid(&body) || !m.enterProcess(&q, c, &body.Head, body.Name) {
		return
	}
	if q.process == nil {
		m.refuseNotMember(&q)
		return
	}
	settled, err := q.process.state.Leave(m.callProcess(q.process), q.session.id, &m.batch.proc)
	m.finishProcess(&q, Event{Result: settled}, settled, err)
}

func (m *Machine) applyProcessComplete(c *rawCommand) {
	var body protocol.ProcessComplete
	var q processRequest
	if !m.decode(&body, c.body) || !m.valid(&body) || !m.enterProcess(&q, c, &body.Head, body.Name) {
		return
	}
	if q.process == nil {
		m.refuseNotMember(&q)
		return
	}
	m.finishProcess(&q, Event{}, 0, q.process.state.Complete(m.callProcess(q.process), q.session.id, body.Epoch, body.Result, &m.batch.proc))
}

func (m *Machine) applyProcessConfirm(c *rawCommand) {
	var body protocol.ProcessConfirm
	var q processRequest
	if !m.decode(&body, c.body) || !m.valid(&body) || !m.enterProcess(&q, c, &protocol.Head{Session: body.Session}, body.Name) {
		return
	}
	if q.process == nil {
		m.refuseNotMember(&q)
		return
	}
	at := m.callProcess(q.process)
	var err error
	if body.Step == protocol.StepPrepared {
		err = q.process.state.Prepared(at, q.session.id, body.Epoch, &m.batch.proc)
	} else {
		err = q.process.state.Completed(at, q.session.id, body.Epoch, &m.batch.proc)
	}
	m.finishProcess(&q, Event{}, 0, err)
}

func (m *Machine) applyProcessFail(c *rawCommand) {
	var body protocol.ProcessFail
	var q processRequest
	if !m.decode(&body, c.body) || !m.valid(&body) || !m.enterProcess(&q, c, &protocol.Head{Session: body.Session}, body.Name) {
		return
	}
	if q.process == nil {
		m.refuseNotMember(&q)
		return
	}
	m.finishProcess(&q, Event{}, 0, q.process.state.Fail(m.callProcess(q.process), q.session.id, body.Epoch, body.Text, &m.batch.proc))
}

// enterOperator does what operators' requests have in common. Rights are the server's to check.
func (m *Machine) enterOperator(q *processRequest, c *rawCommand, node uint64, name []byte) bool {
	q.kind, q.name = c.kind, name
	if !m.findProcess(q, node) {
		return false
	}
	if q.process == nil {
		m.reply(protocol.StatusNotFound, textNoProcess)
		return false
	}
	return true
}

func (m *Machine) applyProcessForce(c *rawCommand) {
	var body protocol.ProcessForceRound
	var q processRequest
	if m.decode(&body, c.body) && m.valid(&body) && m.enterOperator(&q, c, body.Node, body.Name) {
		m.finishProcess(&q, Event{}, 0, q.process.state.Force(m.callProcess(q.process), body.Text, &m.batch.proc))
	}
}

func (m *Machine) applyProcessEvict(c *rawCommand) {
	var body protocol.ProcessEvict
	var q processRequest
	if m.decode(&body, c.body) && m.valid(&body) && m.enterOperator(&q, c, body.Node, body.Name) {
		m.finishProcess(&q, Event{}, 0, q.process.state.Evict(m.callProcess(q.process), body.Session, body.Text, &m.batch.proc))
	}
}

func (m *Machine) applyProcessAlter(c *rawCommand) {
	var body protocol.ProcessAlter
	var q processRequest
	if m.decode(&body, c.body) && m.valid(&body) && m.enterOperator(&q, c, body.Node, body.Name) {
		m.finishProcess(&q, Event{}, 0, q.process.state.Alter(m.callProcess(q.process), body.Options, &m.batch.proc))
	}
}
