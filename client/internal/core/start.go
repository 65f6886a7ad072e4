package core

import (
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/sessionstate"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Start is the start of a session. First it is sent with the path of the node, once, which saves
// the round trip for the node. Whatever is wrong with that, the node is asked for, and the start is
// sent by the node's id until it is answered. All have one create id, and so are the same start.
//
// A start that its caller gave up is completed in the background and stopped. Else the pings of the
// connection would keep the session for ever. See R7.
type Start struct {
	Request
	Create [protocol.KeyLen]byte // random, set before the start
	Again  [protocol.KeyLen]byte // the same: for the case that what the first one made has ended unseen

	s        *Session
	stage    startStage
	mayExist bool // a start was sent and not answered
	sent     moment
	msg      protocol.SessionStart
	node     protocol.NodeDescribe
	info     protocol.NodeInfo
	reply    protocol.SessionReply
}

type startStage uint8

const (
	startByPath startStage = iota
	describeNode
	startByID
)

func (x *Start) begin(e *Engine, s *Session) {
	x.s = s
	x.Request = Request{Waiter: x.Waiter, purpose: purpose{op: x}}
	s.numbers.Reset(1)
	s.epoch = 1
	x.msg = protocol.SessionStart{
		CreateID: x.Create[:], Key: s.Key[:], Timeout: uint64(s.Timeout.Milliseconds()), Description: s.Description,
		Nonce: s.Nonce, Parent: s.Parent,
	}
	if s.Node != 0 { // it is known
		s.Timeout = sessionstate.Enlarge(s.Timeout, s.Grace)
		x.sendByID(e)
		return
	}
	// No grace period is so long that the timeout must be raised for it.
	const longest = protocol.MaxGracePeriod * time.Millisecond
	if sessionstate.Enlarge(s.Timeout, longest) != s.Timeout {
		x.describe(e)
		return
	}
	x.stage, x.once = startByPath, true
	x.kind, x.message, x.msg.Path = protocol.KindSessionStart, &x.msg, s.Path
	x.to, x.limit = x.byPath, stopTimeout
	e.send(&x.Request)
}

// byPath is the first connection, whose hello was not sent yet, or that to the home. The server
// finds the home of the first, because there is no map yet.
func (x *Start) byPath(e *Engine, r *Request) *Conn {
	if c := e.routes.bootstrap.attempt; c != nil && !c.taken {
		r.arg = protocol.HomeOfCreateID
		return c
	}
	if id, t := e.routes.table.onlyTier(); t != nil {
		r.arg = uint64(protocol.HomeBucket(x.Create, t.buckets))
		if w := t.owner(uint32(r.arg)); w != nil && w.link != nil && w.link.conn != nil {
			r.tier, r.shard = id, w.shard
			return w.link.conn
		}
	}
	x.describe(e)
	return nil
}

// describe asks for the node.
func (x *Start) describe(e *Engine) {
	x.next(describeNode, protocol.KindNodeDescribe, &x.node, anyInstance)
	x.node.Path = x.s.Path
	e.send(&x.Request)
}

// next begins another stage. Waiter and Result stay as they are: a caller that was told that the
// start goes on in the background reads them meanwhile.
func (x *Start) next(stage startStage, kind protocol.Kind, m protocol.Message, to destination) {
	x.mayExist = x.mayExist || x.unanswered && x.stage != describeNode
	x.stage, x.kind, x.message, x.to = stage, kind, m, to
	x.once, x.limit, x.arg, x.shard = false, 0, 0, 0
	x.unanswered, x.last, x.retry, x.attempts = false, nil, retry{}, 0
}

// sendByID sends the start by the id of the node.
func (x *Start) sendByID(e *Engine) {
	s := x.s
	x.msg.Path, x.msg.Node, x.msg.Timeout = "", s.Node, uint64(s.Timeout.Milliseconds())
	x.tier = s.Tier
	x.next(startByID, protocol.KindSessionStart, &x.msg, x.byID)
	e.send(&x.Request)
}

// byID is the leader of the home.
func (x *Start) byID(e *Engine, r *Request) *Conn {
	t := e.routes.table.tier(r.tier)
	if t == nil {
		return e.routes.toLeader(e, r, nil)
	}
	r.arg = uint64(protocol.HomeBucket([protocol.KeyLen]byte(x.msg.CreateID), t.buckets))
	return e.routes.toLeader(e, r, t.owner(uint32(r.arg)))
}

// prepare implements preparer.
func (x *Start) prepare(e *Engine, _ *Conn, _ uint64) { x.sent = e.moment() }

func (x *Start) turn(*Engine) {}

func (x *Start) decode(body []byte) (bool, error) {
	if x.stage == describeNode {
		return false, protocol.DecodeBody(&x.info, body)
	}
	return false, protocol.DecodeBody(&x.reply, body)
}

func (x *Start) decided(e *Engine, err error) {
	s := x.s
	switch {
	case x.stage == startByPath && (err != nil || x.reply.Node == 0):
		x.describe(e)
	case x.stage == describeNode && err != nil:
		e.refuse(&x.Request, err)
	case x.stage == describeNode:
		s.Node, s.Tier = x.info.ID, x.info.Tier
		s.Timeout = sessionstate.Enlarge(s.Timeout, millis(x.info.Config.GracePeriod))
		x.sendByID(e)
	case err != nil && sessionGone(err) && (x.mayExist || x.unanswered) && x.Create != x.Again:
		// What an earlier sending made has ended before this client was heard again. Nobody has
		// seen it.
		x.mayExist, x.Create = false, x.Again
		x.msg.CreateID = x.Create[:]
		x.next(startByID, protocol.KindSessionStart, &x.msg, x.byID)
		e.send(&x.Request)
	case err != nil:
		e.refuse(&x.Request, err)
	default:
		x.started(e)
	}
}

// started is the end of a start.
func (x *Start) started(e *Engine) {
	s := x.s
	if x.reply.Node != 0 {
		s.Node = x.reply.Node
	}
	s.Relaxed = x.reply.ReadConsistency == protocol.Relaxed
	s.live(e, x.from, &x.reply, x.sent, x.mayExist || x.unanswered)
	if x.InBackground {
		s.end(e, sessionstate.Closed, ErrSessionClosed)
	}
	e.complete(&x.Request, Result{})
}

// left: what may have been started is stopped.
func (x *Start) left(e *Engine, err error) {
	if x.mayExist || x.unanswered || x.state == Sent && x.stage != describeNode {
		e.notify(&x.Request, Result{Err: err, Unknown: true, InBackground: true})
		return
	}
	e.withdraw(&x.Request)
	e.complete(&x.Request, Result{Err: err})
}

// over: the connection of the first try is lost.
func (x *Start) over(e *Engine, err error) {
	if x.stage == startByPath {
		x.describe(e)
		return
	}
	e.fail(&x.Request, err)
}

// onlyTier is the tier of a cluster that has one; nil of one that has several, or none yet.
func (t *table) onlyTier() (id uint8, only *tier) {
	if t == nil {
		return 0, nil
	}
	for i, other := range t.tiers {
		switch {
		case other == nil:
		case only != nil:
			return 0, nil
		default:
			id, only = uint8(i), other
		}
	}
	return id, only
}

func millis(n uint64) time.Duration {
	const most = uint64(1<<63-1) / uint64(time.Millisecond)
	return time.Duration(min(n, most)) * time.Millisecond
}
