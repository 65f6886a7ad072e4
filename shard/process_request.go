package shard

import (
	"bytes"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/process"
)

// MaxProcessesPerSession bounds the processes that one session is a member of in one shard. Beyond it a join is OVERLOADED.
const MaxProcessesPerSession = 10_000

// procRequest is a member's request whose session is known and which is to be carried out.
type procRequest struct {
	kind  CommandKind
	seq   uint64 // 0: it has no number, for it may be repeated
	name  []byte
	node  *node
	b     *bucket
	party *party
	x     *proc // nil if there is none with this name
}

// enterProcess does what all members' requests have in common, in this order: bucket, node, session and attach epoch, then the memory of requests. It reports
// false when the command is answered.
func (m *Machine) enterProcess(q *procRequest, c *rawCommand, head *protocol.Head, name []byte) bool {
	q.kind, q.seq, q.name = c.kind, head.Seq, name
	if !m.reachProcess(q, c.node) {
		return false
	}
	if q.party = m.actor(head.Session, q.node, c.epoch, nil); q.party == nil {
		return false
	}
	if q.seq == 0 {
		return true
	}
	if a := q.party.recall(head); a != nil {
		m.processAgain(q, *a)
		return false
	}
	_, member := q.party.places().find(q.name)
	return m.fresh(q.party, q.seq, member && q.x != nil)
}

// reachProcess finds bucket, node and process; it reports false when the command is answered.
func (m *Machine) reachProcess(q *procRequest, node uint64) bool {
	if q.b = m.processBucket(node, q.name); q.b == nil {
		m.reply(protocol.StatusWrongShard, textWrongShard)
		return false
	}
	if q.node = m.liveNode(node); q.node == nil {
		return false
	}
	q.x = m.process(q.b, node, q.name)
	return true
}

// processAgain answers a number that was answered before. A join is looked at twice: it is repeated while the session is a member, and never carried out again.
func (m *Machine) processAgain(q *procRequest, a answer) {
	ev := Event{Kind: EventReply, Command: m.run.command, Status: outcomeTable[a.outcome].status, Text: a.text()}
	switch {
	case a.kind != q.kind:
		m.reply(protocol.StatusBadRequest, textNumberReused)
		return
	case a.outcome != outOK:
	case a.kind == CmdProcessLeave:
		ev.Version = a.value
	case a.kind == CmdProcessJoin:
		if _, member := q.party.places().find(q.name); !member || q.x == nil || q.x.state.Order(q.party.id) != a.value {
			ev.Status, ev.Text = protocol.StatusAborted, textMemberNoMore
			break
		}
		ev.OrderID, ev.Version, ev.Again = a.value, q.x.state.Topology(), true
		m.run.out.List = append(m.run.out.List, ev)
		q.x.state.Resend(q.party.id, &m.run.proc)
		m.tellProcess(q.x)
		return
	}
	m.run.out.List = append(m.run.out.List, ev)
}

// finishProcess answers a request, remembers the answer if it has a number, and then tells what it did to others.
func (m *Machine) finishProcess(q *procRequest, ev Event, value uint64, err error) {
	ev.Kind, ev.Command = EventReply, m.run.command
	out := outOK
	if err != nil {
		ev = Event{Kind: EventReply, Command: m.run.command, Status: protocol.StatusBadRequest, Text: textMalformed}
		if e, ok := err.(*protocol.Error); ok {
			ev.Status, ev.Text = e.Status, e.Message
		}
		out = processOutcome(ev.Status)
	}
	if q.seq != 0 && ev.Status != protocol.StatusOverloaded {
		q.party.remember(answer{seq: q.seq, kind: q.kind, bucket: q.b.number, outcome: out, value: value, said: q.party.keepSaid(ev.Text, out)})
	}
	m.run.out.List = append(m.run.out.List, ev)
	if q.x != nil {
		m.tellProcess(q.x)
	}
}

// processOutcome is how a refusal is remembered: its status, with its sentence, see keepSaid.
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

func (m *Machine) notMember(q *procRequest) {
	m.finishProcess(q, Event{}, 0, &protocol.Error{Status: protocol.StatusNotFound, Message: outcomeTable[outNotMember].text + "; join first"})
}

// ProcessOptions are the options as the machine of the process takes them.
func ProcessOptions(o protocol.ProcessOptions) process.Options {
	return process.Options{
		Election: process.Election(o.Election), Debounce: o.Debounce, RoundTimeout: o.RoundTimeout, BackoffMin: o.BackoffMin, BackoffMax: o.BackoffMax,
		Return: o.Return,
	}
}

// moreBytes is by how much a member of that size makes its node larger: a process that is not there is made, and a member that has the key goes.
func (q *procRequest) moreBytes(member uint64, key string) uint64 {
	if q.x == nil {
		return weightNamed + uint64(len(q.name)) + member
	}
	return growth(member, q.x.state.BytesOf(key))
}

func (m *Machine) applyProcessJoin(c *rawCommand) {
	var body protocol.ProcessJoin
	var q procRequest
	if !m.decode(&body, c.body) || !m.valid(&body) || !m.enterProcess(&q, c, &body.Head, body.Name) {
		return
	}
	p := q.party
	_, member := p.places().find(q.name)
	if !member && len(p.places()) >= MaxProcessesPerSession {
		m.finishProcess(&q, Event{}, 0, &protocol.Error{Status: protocol.StatusOverloaded, Message: textPlacesLimit})
		return
	}
	made := q.x == nil
	if !member && !m.room(q.node, q.moreBytes(process.JoinBytes(len(body.Key), len(c.client), len(body.Data)), body.Key)) {
		m.finishProcess(&q, Event{}, 0, &protocol.Error{Status: protocol.StatusPreconditionFailed, Message: textBytesQuota(q.node.config.MaxBytes)})
		return
	}
	if made {
		if !m.roomForName(q.node) {
			m.finishProcess(&q, Event{}, 0, &protocol.Error{Status: protocol.StatusPreconditionFailed, Message: textQuota(q.node.config.MaxSemaphores)})
			return
		}
		state, err := process.New(m.moment(q.b), q.b.orders, ProcessOptions(body.Options))
		if err != nil {
			m.finishProcess(&q, Event{}, 0, err)
			return
		}
		q.x = &proc{bucket: q.b, node: q.node, name: bytes.Clone(q.name), state: state, mark: m.mark}
	}
	join := process.Join{Session: p.id, Key: body.Key, Identity: string(c.client), Data: body.Data, Weight: body.Weight}
	if err := join.Validate(); err != nil { // before a process is made for it
		q.x = nil
		m.finishProcess(&q, Event{}, 0, err)
		return
	}
	if made {
		m.linkProcess(q.x)
	}
	j, err := q.x.state.Join(m.call(q.x), join, &m.run.proc)
	m.finishProcess(&q, Event{OrderID: j.Order, Version: j.Topology, Flag: j.Returned, Again: j.Again}, j.Order, err)
}

func (m *Machine) applyProcessLeave(c *rawCommand) {
	var body protocol.ProcessLeave
	var q procRequest
	if !m.decode(&body, c.body) || !m.valid(&body) || !m.enterProcess(&q, c, &body.Head, body.Name) {
		return
	}
	if q.x == nil {
		m.notMember(&q)
		return
	}
	settled, err := q.x.state.Leave(m.call(q.x), q.party.id, &m.run.proc)
	m.finishProcess(&q, Event{Version: settled}, settled, err)
}

func (m *Machine) applyProcessComplete(c *rawCommand) {
	var body protocol.ProcessComplete
	var q procRequest
	if !m.decode(&body, c.body) || !m.valid(&body) || !m.enterProcess(&q, c, &body.Head, body.Name) {
		return
	}
	if q.x == nil {
		m.notMember(&q)
		return
	}
	m.finishProcess(&q, Event{}, 0, q.x.state.Complete(m.call(q.x), q.party.id, body.Epoch, body.Result, &m.run.proc))
}

func (m *Machine) applyProcessConfirm(c *rawCommand) {
	var body protocol.ProcessConfirm
	var q procRequest
	if !m.decode(&body, c.body) || !m.valid(&body) || !m.enterProcess(&q, c, &protocol.Head{Session: body.Session}, body.Name) {
		return
	}
	if q.x == nil {
		m.notMember(&q)
		return
	}
	at := m.call(q.x)
	var err error
	if body.Step == protocol.StepPrepared {
		err = q.x.state.Prepared(at, q.party.id, body.Epoch, &m.run.proc)
	} else {
		err = q.x.state.Completed(at, q.party.id, body.Epoch, &m.run.proc)
	}
	m.finishProcess(&q, Event{}, 0, err)
}

func (m *Machine) applyProcessFail(c *rawCommand) {
	var body protocol.ProcessFail
	var q procRequest
	if !m.decode(&body, c.body) || !m.valid(&body) || !m.enterProcess(&q, c, &protocol.Head{Session: body.Session}, body.Name) {
		return
	}
	if q.x == nil {
		m.notMember(&q)
		return
	}
	m.finishProcess(&q, Event{}, 0, q.x.state.Fail(m.call(q.x), q.party.id, body.Epoch, body.Text, &m.run.proc))
}

// enterOperator does what operators' requests have in common. Rights are the door's to check.
func (m *Machine) enterOperator(q *procRequest, c *rawCommand, node uint64, name []byte) bool {
	q.kind, q.name = c.kind, name
	if !m.reachProcess(q, node) {
		return false
	}
	if q.x == nil {
		m.reply(protocol.StatusNotFound, textNoProcess)
		return false
	}
	return true
}

func (m *Machine) applyProcessForce(c *rawCommand) {
	var body protocol.ProcessForce
	var q procRequest
	if m.decode(&body, c.body) && m.valid(&body) && m.enterOperator(&q, c, body.Node, body.Name) {
		m.finishProcess(&q, Event{}, 0, q.x.state.Force(m.call(q.x), body.Text, &m.run.proc))
	}
}

func (m *Machine) applyProcessEvict(c *rawCommand) {
	var body protocol.ProcessEvict
	var q procRequest
	if m.decode(&body, c.body) && m.valid(&body) && m.enterOperator(&q, c, body.Node, body.Name) {
		m.finishProcess(&q, Event{}, 0, q.x.state.Evict(m.call(q.x), body.Session, body.Text, &m.run.proc))
	}
}

func (m *Machine) applyProcessAlter(c *rawCommand) {
	var body protocol.ProcessAlter
	var q procRequest
	if m.decode(&body, c.body) && m.valid(&body) && m.enterOperator(&q, c, body.Node, body.Name) {
		m.finishProcess(&q, Event{}, 0, q.x.state.Alter(m.call(q.x), ProcessOptions(body.Options), &m.run.proc))
	}
}
