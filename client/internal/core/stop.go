package core

import (
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// stopTimeout is how long an instance has to answer a stop before it is sent again.
const stopTimeout = 5 * time.Second

// stop tells the server that a session is over, for as long as that takes: the server keeps the
// session while a connection that it was attached on sends pings. It goes out where the session is
// attached. Without such a connection the session is attached first, under one epoch above all that
// it used before: with an epoch for each try it would overtake another holder some day, and end the
// session of that holder. See R8.
type stop struct {
	Request
	s      *Session
	conn   *Conn // that the session is attached on; nil: none
	own    uint64
	attach *attach // that is under way
	msg    protocol.SessionStop
}

// newStop is the stop of a session. last is its last attachment, or nil.
func newStop(s *Session, last *attachment) *stop {
	x := &stop{s: s}
	x.msg.Session = s.ID
	if last != nil && !last.conn.over {
		x.conn, x.msg.Epoch = last.conn, last.epoch
	}
	x.Request = Request{purpose: purpose{
		kind: protocol.KindSessionStop, message: &x.msg, op: x, to: x.where, tier: s.Tier,
		arg: uint64(protocol.SessionBucket(s.ID)), limit: stopTimeout,
	}}
	return x
}

// where is the connection that the session is attached on, while its home is served there.
func (x *stop) where(e *Engine, r *Request) *Conn {
	w := e.routes.table.tier(r.tier).owner(uint32(r.arg))
	if c := x.conn; c != nil && !c.over && (w == nil || w.leader == c.instance) {
		if w != nil {
			r.shard = w.shard
		}
		return c
	}
	x.conn = nil
	if x.own == 0 {
		x.s.epoch++
		x.own = x.s.epoch
	}
	x.attach = newAttach(x.s)
	x.attach.before, x.attach.msg.Epoch = x, x.own
	e.send(&x.attach.Request)
	return nil
}

// attached is the answer to the attach.
func (x *stop) attached(e *Engine, c *Conn, epoch uint64, err error) {
	x.attach.state, x.attach = Over, nil
	switch {
	case err == nil:
		x.conn, x.msg.Epoch = c, epoch
		e.send(&x.Request)
	case sessionGone(err) || protocol.StatusOf(err) == protocol.StatusBadSession || IsPermanent(err):
		x.end(e)
	default:
		e.pause(&x.Request)
	}
}

func (x *stop) turn(*Engine)                {}
func (x *stop) decode([]byte) (bool, error) { return false, nil }
func (x *stop) over(*Engine, error)         {}

func (x *stop) decided(e *Engine, err error) {
	bad := protocol.StatusOf(err) == protocol.StatusBadSession
	switch {
	case err == nil || sessionGone(err):
		x.end(e)
	case bad && x.msg.Epoch != x.own: // an attach overtook the stop
		x.conn = nil
		e.send(&x.Request)
	case bad: // a change of leader has detached it, or another holder has it: the answer to an attach tells
		x.conn = nil
		e.pause(&x.Request)
	default:
		e.pause(&x.Request)
	}
}

// left: a client whose connections are refused for good sends no pings, so the session ends with its
// timeout.
func (x *stop) left(e *Engine, _ error) {
	e.withdraw(&x.Request)
	x.end(e)
}

func (x *stop) end(e *Engine) {
	x.state = Over
	x.s.stopHeard = true
	x.s.enqueue(e)
}
