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
func (o *objectRequest) find(m *Machine, c *rawCommand, node uint64, name []byte) bool {
	o.kind, o.name = c.kind, name
	if o.bucket = m.activeObjectBucket(o.of, node, name); o.bucket == nil {
		m.reply(protocol.StatusWrongShard, textWrongShard)
		return false
	}
	if o.node = requireNode(m, node); o.node == nil {
		return false
	}
	o.object = o.bucket.object(m, o.of, node, name)
	return true
}

// enter does what all sessions' requests have in common, in this order: bucket, node, session and
// attach epoch, then the memory of requests. It is false when the command is answered.
func (o *objectRequest) enter(m *Machine, c *rawCommand, head *protocol.Head, name []byte) bool {
	if !o.find(m, c, c.node, name) {
		return false
	}
	if o.session = requireSession(m, head.Session, o.node, c.epoch, nil); o.session == nil {
		return false
	}
	if o.seq = head.Seq; o.seq == 0 {
		return true
	}
	if a := o.session.findAnswer(head); a != nil {
		o.replyAgain(m, *a)
		return false
	}
	return admitNew(m, o.session, o.seq, o.object != nil && o.session.holds(o.of, name))
}

// enterExisting is enter for requests on an object that must be there.
func (o *objectRequest) enterExisting(m *Machine, c *rawCommand, head *protocol.Head, name []byte) bool {
	if !o.enter(m, c, head, name) {
		return false
	}
	if o.object == nil {
		o.finish(m, Event{}, hostedKinds[o.of].notFound)
		return false
	}
	return true
}

// enterOperator does what operators' requests without a session have in common. The server checks
// their rights.
func (o *objectRequest) enterOperator(m *Machine, c *rawCommand, node uint64, name []byte) bool {
	if !o.find(m, c, node, name) {
		return false
	}
	if o.object == nil {
		m.replyError(hostedKinds[o.of].missing)
		return false
	}
	return true
}

// replyAgain answers a number that was answered before.
func (o *objectRequest) replyAgain(m *Machine, a answer) {
	ev := Event{Kind: EventReply, Command: m.batch.command}
	ev.Status, ev.Refusal = a.outcome.status()
	switch {
	case a.kind != o.kind:
		m.reply(protocol.StatusBadRequest, textNumberReused)
		return
	case a.outcome != outcomeOK:
		ev.Text = "request was refused when it came first: look at the " + hostedKinds[o.of].name +
			", and send a new one"
	case a.kind == CmdProcessJoin:
		o.replyJoinAgain(m, ev, a.value)
		return
	default:
		ev.Result = a.value
	}
	m.batch.out.List = append(m.batch.out.List, ev)
}

// finish answers a request, remembers the answer if it has a number, and then emits what it did to
// others.
func (o *objectRequest) finish(m *Machine, ev Event, err error) {
	ev.Kind, ev.Command = EventReply, m.batch.command
	out := outcomeOK
	if err != nil {
		ev = Event{Kind: EventReply, Command: m.batch.command, Status: protocol.StatusBadRequest, Text: textMalformed}
		if e, ok := err.(*protocol.Error); ok {
			ev.Status, ev.Refusal, ev.Text = e.Status, e.Refusal, e.Message
		}
		out = hostedOutcome(ev.Status, ev.Refusal)
	}
	if o.seq != 0 && ev.Status != protocol.StatusOverloaded {
		a := answer{seq: o.seq, kind: o.kind, bucket: o.bucket.number, outcome: out, value: ev.Result}
		if ev.OrderID != 0 {
			a.value = ev.OrderID // of a join
		}
		o.session.rememberAnswer(a)
	}
	m.batch.out.List = append(m.batch.out.List, ev)
	if o.object != nil {
		o.object.state.requestDone(m, o.object)
	}
}

func (o *objectRequest) refuse(m *Machine, status protocol.Status, text string) {
	o.finish(m, Event{}, &protocol.Error{Status: status, Message: text})
}

// requireBytes reports whether the node may have so many bytes more here; else the request is
// answered.
func (o *objectRequest) requireBytes(m *Machine, more uint64) bool {
	if !m.roomForBytes(o.node, more) {
		o.refuse(m, protocol.StatusPreconditionFailed, textBytesQuota(o.node.config.MaxBytes))
		return false
	}
	return true
}

// requireName reports whether the node may have one more object here; else the request is answered.
func (o *objectRequest) requireName(m *Machine) bool {
	if !m.roomForName(o.node) {
		o.refuse(m, protocol.StatusPreconditionFailed, textQuota(o.node.config.MaxSemaphores))
		return false
	}
	return true
}
