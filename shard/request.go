package shard

import "github.com/signalbox-dev/signalbox/protocol"

// request is a semaphore request whose session is known and whose number is new.
type request struct {
	kind      CommandKind
	seq       uint64
	name      []byte
	node      *node
	bucket    *bucket
	session   *sessionRecord
	semaphore *semaphore // nil if it does not exist
	entry     *entry     // the session's on it, if any
}

// enter does what all semaphore requests have in common, in this order: bucket, node, session and
// attach epoch, then the memory of requests. It reports false when the command is answered.
func (q *request) enter(m *Machine, c *rawCommand, head *protocol.Head, name []byte) bool {
	q.kind, q.seq, q.name = c.kind, head.Seq, name
	if q.bucket = m.activeBucket(c.node, name); q.bucket == nil {
		m.reply(protocol.StatusWrongShard, textWrongShard)
		return false
	}
	if q.node = requireNode(m, c.node); q.node == nil {
		return false
	}
	if q.session = requireSession(m, head.Session, q.node, c.epoch, c.sender); q.session == nil {
		return false
	}
	q.findEntry(m)

	p := q.session
	again := p.findAnswer(head)
	if q.kind == CmdAcquire && q.entry != nil && q.entry.seq == q.seq {
		if q.entry.waiting {
			replyQueued(m, q.entry)
		} else {
			replyAcquired(m, q.entry)
		}
		return false
	}
	if again != nil {
		q.replyAgain(m, *again)
		return false
	}
	if q.kind == CmdAcquire && q.seq < p.low {
		// It was queued, and nothing has come of it that is still there.
		m.replyAnswer(answer{kind: CmdAcquire, state: protocol.NotAcquired})
		return false
	}
	return admitNew(m, p, q.seq, q.entry != nil)
}

// requireNode finds a node. If there is none it answers the command and returns nil.
func requireNode(m *Machine, id uint64) *node {
	n := m.nodes[id]
	switch {
	case n != nil:
	case m.isDropped(id):
		m.reply(protocol.StatusSessionExpired, textNodeDropped)
	default:
		m.replyError(errNoNode)
	}
	return n
}

// admitNew reports whether a number without a remembered answer may be carried out; if not, it
// answers the command. own: the session has something where the request goes, which it may want to
// release, so no quota refuses that. A client that is refused for long keeps its low-water mark, so
// answers pile up in an honest client too.
func admitNew(m *Machine, p *sessionRecord, seq uint64, own bool) bool {
	switch {
	case seq < p.low:
		m.reply(protocol.StatusBadRequest, textAnswered)
	case p.answers.len() >= m.limits.Answers:
		m.reply(protocol.StatusOverloaded, textAnswersLimit)
	case !own && p.answers.len() >= freeAnswers && !m.roomForBytes(p.node, answerBytes):
		m.reply(protocol.StatusOverloaded, textAnswersQuota)
	default:
		return true
	}
	return false
}

// findEntry looks up the semaphore and the session's entry. A waiter at the head, or of this
// session, that is overdue but was not fired yet counts as gone: it is timed out here. So is this
// session's hold that has passed its bound. Where there are lanes, they are examined, no matter
// which waiters are first.
func (q *request) findEntry(m *Machine) {
	q.semaphore = m.semaphores.lookup(q.bucket, q.node.id, q.name)
	if q.semaphore == nil {
		return
	}
	if head := q.semaphore.waiters.first; head != nil &&
		(m.waiterEnded(head) || q.semaphore.queue().laned()) {
		q.semaphore.promote(m)
		q.semaphore.reapEphemeral(m)
	}
	if q.semaphore.deleted {
		q.semaphore = nil
		return
	}
	if q.entry = q.semaphore.entryOf(q.session); q.entry != nil && m.entryEnded(q.entry) {
		q.entry.endInTime(m)
		q.semaphore.promote(m) // it is the head where the work of this Apply was used up
		q.semaphore.reapEphemeral(m)
		q.entry = nil
		if q.semaphore.deleted {
			q.semaphore = nil
		}
	}
}

// replyAgain answers a repeated number with the same answer. "Acquired" is repeated only while it
// is still true.
func (q *request) replyAgain(m *Machine, a answer) {
	if a.kind != q.kind {
		m.reply(protocol.StatusBadRequest, textNumberReused)
		return
	}
	if a.outcome == outcomeOK && a.state == protocol.Acquired &&
		(q.entry == nil || q.entry.waiting || q.entry.orderID != a.value) {
		a = answer{kind: a.kind, outcome: outcomeGivenBack}
	}
	if a.outcome == outcomeOK && a.state == protocol.Acquired {
		replyAcquired(m, q.entry)
		return
	}
	m.replyAnswer(a)
}

// finish answers a request and remembers the answer. A limit that was reached is not remembered:
// the request may be sent again.
func (q *request) finish(m *Machine, a answer) {
	a.seq, a.kind, a.bucket = q.seq, q.kind, q.bucket.number
	if outcomeTable[a.outcome].status != protocol.StatusOverloaded {
		q.session.rememberAnswer(a)
	}
	m.replyAnswer(a)
}

// refuse answers a request with an outcome other than OK.
func (q *request) refuse(m *Machine, out outcome) {
	q.finish(m, answer{outcome: out, value: q.outcomeValue(out)})
}
