package shard

import "github.com/signalbox-dev/signalbox/protocol"

// objectRequest is a request on a hosted object, to be carried out.
type objectRequest struct {
	of      kindNumber
	kind    CommandKind
	seq     uint64 // 0: it has no number, for it may be repeated
	name    []byte
	node    *node
	bucket  *bucket
	session *sessionRecord // nil for an operator's
	object  *hostedObject  // nil if there is none with this name
}

// message is the body of a command.
type message interface {
	protocol.Message
	protocol.Validator
}

// readBody reads and checks a command's body, or answers it.
func (m *Machine) readBody(x message, c *rawCommand) bool { return m.decode(x, c.body) && m.valid(x) }

// findObject finds bucket, node and object. It is false when the command is answered.
func (m *Machine) findObject(q *objectRequest, c *rawCommand, node uint64, name []byte) bool {
	q.kind, q.name = c.kind, name
	if q.bucket = m.activeObjectBucket(q.of, node, name); q.bucket == nil {
		m.reply(protocol.StatusWrongShard, textWrongShard)
		return false
	}
	if q.node = m.requireNode(node); q.node == nil {
		return false
	}
	q.object = m.object(q.of, q.bucket, node, name)
	return true
}

// enterObject does what all sessions' requests have in common, in this order: bucket, node, session
// and attach epoch, then the memory of requests. It is false when the command is answered.
func (m *Machine) enterObject(q *objectRequest, c *rawCommand, head *protocol.Head, name []byte) bool {
	if !m.findObject(q, c, c.node, name) {
		return false
	}
	if q.session = m.requireSession(head.Session, q.node, c.epoch, nil); q.session == nil {
		return false
	}
	if q.seq = head.Seq; q.seq == 0 {
		return true
	}
	if a := q.session.findAnswer(head); a != nil {
		m.replyObjectAgain(q, *a)
		return false
	}
	return m.admitNew(q.session, q.seq, q.object != nil && q.session.holds(q.of, name))
}

// enterExistingObject is enterObject for requests on an object that must be there.
func (m *Machine) enterExistingObject(q *objectRequest, c *rawCommand, head *protocol.Head, name []byte) bool {
	if !m.enterObject(q, c, head, name) {
		return false
	}
	if q.object == nil {
		m.refuseObject(q, protocol.StatusNotFound, hostedKinds[q.of].notFound)
		return false
	}
	return true
}

// enterOperator does what operators' requests without a session have in common. The server checks
// their rights.
func (m *Machine) enterOperator(q *objectRequest, c *rawCommand, node uint64, name []byte) bool {
	if !m.findObject(q, c, node, name) {
		return false
	}
	if q.object == nil {
		m.reply(protocol.StatusNotFound, hostedKinds[q.of].missing)
		return false
	}
	return true
}

// replyObjectAgain answers a number that was answered before.
func (m *Machine) replyObjectAgain(q *objectRequest, a answer) {
	ev := Event{Kind: EventReply, Command: m.batch.command, Status: outcomeTable[a.outcome].status, Text: a.text()}
	switch {
	case a.kind != q.kind:
		m.reply(protocol.StatusBadRequest, textNumberReused)
		return
	case a.outcome != outcomeOK:
	case a.kind == CmdProcessJoin:
		m.replyJoinAgain(q, ev, a.value)
		return
	default:
		ev.Result = a.value
	}
	m.batch.out.List = append(m.batch.out.List, ev)
}

// finishObject answers a request, remembers the answer if it has a number, and then emits what it
// did to others.
func (m *Machine) finishObject(q *objectRequest, ev Event, err error) {
	ev.Kind, ev.Command = EventReply, m.batch.command
	out := outcomeOK
	if err != nil {
		ev = Event{Kind: EventReply, Command: m.batch.command, Status: protocol.StatusBadRequest, Text: textMalformed}
		if e, ok := err.(*protocol.Error); ok {
			ev.Status, ev.Text = e.Status, e.Message
		}
		out = hostedKinds[q.of].outcome(ev.Status)
	}
	if q.seq != 0 && ev.Status != protocol.StatusOverloaded {
		a := answer{seq: q.seq, kind: q.kind, bucket: q.bucket.number, outcome: out, value: ev.Result}
		if ev.OrderID != 0 {
			a.value = ev.OrderID // of a join
		}
		a.sentence = q.session.keepSentence(ev.Text, out)
		q.session.rememberAnswer(a)
	}
	m.batch.out.List = append(m.batch.out.List, ev)
	if q.object != nil {
		q.object.state.requestDone(m, q.object)
	}
}

// refuseObject answers a request with an error.
func (m *Machine) refuseObject(q *objectRequest, status protocol.Status, text string) {
	m.finishObject(q, Event{}, &protocol.Error{Status: status, Message: text})
}

// requireObjectBytes says whether the node may have so many bytes more here; else the request is
// answered.
func (m *Machine) requireObjectBytes(q *objectRequest, more uint64) bool {
	if !m.roomForBytes(q.node, more) {
		m.refuseObject(q, protocol.StatusPreconditionFailed, textBytesQuota(q.node.config.MaxBytes))
		return false
	}
	return true
}

// requireObjectName says whether the node may have one more object here; else the request is
// answered.
func (m *Machine) requireObjectName(q *objectRequest) bool {
	if !m.roomForName(q.node) {
		m.refuseObject(q, protocol.StatusPreconditionFailed, textQuota(q.node.config.MaxSemaphores))
		return false
	}
	return true
}
