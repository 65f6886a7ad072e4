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

// find finds bucket, node and object. It is false when the command is answered.
func (q *objectRequest) find(m *Machine, c *rawCommand, node uint64, name []byte) bool {
	q.kind, q.name = c.kind, name
	if q.bucket = m.activeObjectBucket(q.of, node, name); q.bucket == nil {
		m.reply(protocol.StatusWrongShard, textWrongShard)
		return false
	}
	if q.node = requireNode(m, node); q.node == nil {
		return false
	}
	q.object = q.bucket.object(m, q.of, node, name)
	return true
}

// enter does what all sessions' requests have in common, in this order: bucket, node, session and
// attach epoch, then the memory of requests. It is false when the command is answered.
func (q *objectRequest) enter(m *Machine, c *rawCommand, head *protocol.Head, name []byte) bool {
	if !q.find(m, c, c.node, name) {
		return false
	}
	if q.session = requireSession(m, head.Session, q.node, c.epoch, nil); q.session == nil {
		return false
	}
	if q.seq = head.Seq; q.seq == 0 {
		return true
	}
	if a := q.session.findAnswer(head); a != nil {
		q.replyAgain(m, *a)
		return false
	}
	return admitNew(m, q.session, q.seq, q.object != nil && q.session.holds(q.of, name))
}

// enterExisting is enter for requests on an object that must be there.
func (q *objectRequest) enterExisting(m *Machine, c *rawCommand, head *protocol.Head, name []byte) bool {
	if !q.enter(m, c, head, name) {
		return false
	}
	if q.object == nil {
		q.refuse(m, protocol.StatusNotFound, hostedKinds[q.of].notFound)
		return false
	}
	return true
}

// enterOperator does what operators' requests without a session have in common. The server checks
// their rights.
func (q *objectRequest) enterOperator(m *Machine, c *rawCommand, node uint64, name []byte) bool {
	if !q.find(m, c, node, name) {
		return false
	}
	if q.object == nil {
		m.reply(protocol.StatusNotFound, hostedKinds[q.of].missing)
		return false
	}
	return true
}

// replyAgain answers a number that was answered before.
func (q *objectRequest) replyAgain(m *Machine, a answer) {
	ev := Event{Kind: EventReply, Command: m.batch.command, Status: outcomeTable[a.outcome].status, Text: a.text()}
	switch {
	case a.kind != q.kind:
		m.reply(protocol.StatusBadRequest, textNumberReused)
		return
	case a.outcome != outcomeOK:
	case a.kind == CmdProcessJoin:
		q.replyJoinAgain(m, ev, a.value)
		return
	default:
		ev.Result = a.value
	}
	m.batch.out.List = append(m.batch.out.List, ev)
}

// finish answers a request, remembers the answer if it has a number, and then emits what it did to
// others.
func (q *objectRequest) finish(m *Machine, ev Event, err error) {
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

func (q *objectRequest) refuse(m *Machine, status protocol.Status, text string) {
	q.finish(m, Event{}, &protocol.Error{Status: status, Message: text})
}

// requireBytes reports whether the node may have so many bytes more here; else the request is
// answered.
func (q *objectRequest) requireBytes(m *Machine, more uint64) bool {
	if !m.roomForBytes(q.node, more) {
		q.refuse(m, protocol.StatusPreconditionFailed, textBytesQuota(q.node.config.MaxBytes))
		return false
	}
	return true
}

// requireName reports whether the node may have one more object here; else the request is answered.
func (q *objectRequest) requireName(m *Machine) bool {
	if !m.roomForName(q.node) {
		q.refuse(m, protocol.StatusPreconditionFailed, textQuota(q.node.config.MaxSemaphores))
		return false
	}
	return true
}
