package shard

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/process"
)

// MaxProcessesPerSession bounds the processes that one session is a member of in one shard. Beyond
// it a join is OVERLOADED.
const MaxProcessesPerSession = 10_000

// replyJoinAgain answers a join that was answered before. It is repeated while the session is a
// member, and never carried out again.
func (o *objectRequest) replyJoinAgain(m *Machine, ev Event, order uint64) {
	if o.object == nil || !o.session.holds(o.of, o.name) || o.object.process().JoinOrder(o.session.id) != order {
		ev.Status, ev.Text = protocol.StatusAborted, textMemberNoMore
		m.batch.out.List = append(m.batch.out.List, ev)
		return
	}
	p := o.object.process()
	ev.OrderID, ev.Result, ev.AlreadyMember = order, p.Topology(), true
	m.batch.out.List = append(m.batch.out.List, ev)
	p.Resend(o.session.id, &m.batch.proc)
	o.object.emitProcess(m)
}

func applyProcessJoin(m *Machine, c *rawCommand) {
	var body protocol.ProcessJoin
	q := objectRequest{of: kindProcess}
	if !m.readBody(&body, c) || !q.enter(m, c, &body.Head, body.Name) {
		return
	}
	p := q.session
	member := p.holds(kindProcess, q.name)
	if !member && len(p.objects(kindProcess)) >= MaxProcessesPerSession {
		q.refuse(m, protocol.StatusOverloaded, textMembershipsLimit)
		return
	}
	// A process that is not there is made, and a member that has the key goes.
	made, bytes := q.object == nil, process.JoinBytes(len(body.Key), len(c.sender), len(body.Data))
	if made {
		bytes += objectBytes + uint64(len(q.name))
	} else {
		bytes = growth(bytes, q.object.process().BytesOf(body.Key))
	}
	if !member && !q.requireBytes(m, bytes) || made && !q.requireName(m) {
		return
	}
	var state *process.Process
	var err error
	if made {
		state, err = process.New(processNow(m, q.bucket), q.bucket.orderCounter, body.Options)
	}
	join := process.Join{Session: p.id, Key: body.Key, Identity: string(c.sender),
		Data: body.Data, Weight: body.Weight}
	if err == nil {
		err = join.Validate() // a wrong request makes no process, and calls none
	}
	if err != nil {
		q.finish(m, Event{}, err)
		return
	}
	if made {
		q.object = newObject(m, kindProcess, q.bucket, q.node, q.name, processState{state})
		q.object.link(m)
	}
	j, err := q.object.process().Join(q.object.callProcess(m), join, &m.batch.proc)
	q.finish(m, Event{OrderID: j.Order, Result: j.Topology, Flag: j.Returned, AlreadyMember: j.AlreadyMember},
		err)
}

func applyProcessLeave(m *Machine, c *rawCommand) {
	var body protocol.ProcessLeave
	q := objectRequest{of: kindProcess}
	if !m.readBody(&body, c) || !q.enterExisting(m, c, &body.Head, body.Name) {
		return
	}
	completed, err := q.object.process().Leave(q.object.callProcess(m), q.session.id, &m.batch.proc)
	q.finish(m, Event{Result: completed}, err)
}

func applyProcessComplete(m *Machine, c *rawCommand) {
	var body protocol.ProcessComplete
	q := objectRequest{of: kindProcess}
	if m.readBody(&body, c) && q.enterExisting(m, c, &body.Head, body.Name) {
		p, now := q.object.process(), q.object.callProcess(m)
		q.finish(m, Event{}, p.Complete(now, q.session.id, body.Epoch, body.Result, &m.batch.proc))
	}
}

func applyProcessConfirm(m *Machine, c *rawCommand) {
	var body protocol.ProcessConfirm
	q := objectRequest{of: kindProcess}
	if !m.readBody(&body, c) || !q.enterExisting(m, c, &protocol.Head{Session: body.Session}, body.Name) {
		return
	}
	p, now := q.object.process(), q.object.callProcess(m)
	confirm := p.Completed
	if body.Step == protocol.StepPrepared {
		confirm = p.Prepared
	}
	q.finish(m, Event{}, confirm(now, q.session.id, body.Epoch, &m.batch.proc))
}

func applyProcessFail(m *Machine, c *rawCommand) {
	var body protocol.ProcessFail
	q := objectRequest{of: kindProcess}
	if m.readBody(&body, c) && q.enterExisting(m, c, &protocol.Head{Session: body.Session}, body.Name) {
		p, now := q.object.process(), q.object.callProcess(m)
		q.finish(m, Event{}, p.Fail(now, q.session.id, body.Epoch, body.Text, &m.batch.proc))
	}
}

func applyProcessForce(m *Machine, c *rawCommand) {
	var body protocol.ProcessForceRound
	q := objectRequest{of: kindProcess}
	if m.readBody(&body, c) && q.enterOperator(m, c, body.Node, body.Name) {
		q.finish(m, Event{}, q.object.process().Force(q.object.callProcess(m), body.Text, &m.batch.proc))
	}
}

func applyProcessEvict(m *Machine, c *rawCommand) {
	var body protocol.ProcessEvict
	q := objectRequest{of: kindProcess}
	if m.readBody(&body, c) && q.enterOperator(m, c, body.Node, body.Name) {
		p, now := q.object.process(), q.object.callProcess(m)
		q.finish(m, Event{}, p.Evict(now, body.Session, body.Text, &m.batch.proc))
	}
}

func applyProcessAlter(m *Machine, c *rawCommand) {
	var body protocol.ProcessAlter
	q := objectRequest{of: kindProcess}
	if m.readBody(&body, c) && q.enterOperator(m, c, body.Node, body.Name) {
		q.finish(m, Event{}, q.object.process().Alter(q.object.callProcess(m), body.Options, &m.batch.proc))
	}
}
