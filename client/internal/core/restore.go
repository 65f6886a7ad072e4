package core

import (
	"errors"

	"github.com/signalbox-dev/signalbox/client/internal/sessionstate"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Restore takes a session over that another holder started, by an attach. ID, Node, Tier, Key and
// Nonce of the session are set before.
//
// All tries have one epoch and one nonce: an epoch for each would let a later try overtake the attach
// of another successor of the same saved state. A restore that ended unanswered may have been carried
// out. Its nonce is remembered, and the next one of the same session under the same epoch continues
// it.
type Restore struct {
	Request
	Epoch uint64 // of the attach, above all that the holder before can have used
	First uint64 // number of the first request, in the same way
	// the connection that it is given up on; else it is ended, because it may keep the session alive
	// for nobody
	Keep bool

	s     *Session
	sent  moment
	msg   protocol.SessionAttach
	reply protocol.SessionReply
}

// restoreKey names a restore: of a session, from one saved state.
type restoreKey struct{ session, epoch uint64 }

var errRestoreGivenUp = errors.New("a restore on it was given up")

func (x *Restore) begin(e *Engine, s *Session) {
	x.s = s
	s.numbers.Reset(x.First)
	s.epoch = x.Epoch
	s.Timeout = sessionstate.Enlarge(s.Timeout, s.Grace)
	if nonce, ok := e.restores[x.key()]; ok {
		delete(e.restores, x.key()) // for one: two restores at a time are two holders
		s.Nonce = nonce
	}
	x.msg = newAttachRequest(s)
	x.msg.Epoch = x.Epoch
	x.Request = Request{Waiter: x.Waiter, purpose: purpose{
		kind: protocol.KindSessionAttach, message: &x.msg, op: x, to: atBucket, tier: s.Tier,
		arg: uint64(protocol.SessionBucket(s.ID)),
	}}
	e.send(&x.Request)
}

func (x *Restore) key() restoreKey { return restoreKey{x.s.ID, x.Epoch} }

// prepare implements preparer.
func (x *Restore) prepare(e *Engine, _ *Conn, _ uint64) { x.sent = e.moment() }

func (x *Restore) turn(*Engine) {}
func (x *Restore) decode(body []byte) (bool, error) {
	return false, protocol.DecodeBody(&x.reply, body)
}

func (x *Restore) decided(e *Engine, err error) {
	if err != nil {
		e.refuse(&x.Request, err)
		return
	}
	x.s.live(e, x.from, &x.reply, x.sent, x.attempts > 1)
	e.complete(&x.Request, Result{})
}

func (x *Restore) left(e *Engine, err error) {
	sent, on := x.unanswered || x.state == Sent, x.on
	e.withdraw(&x.Request)
	x.remember(e, sent)
	if on != nil && !x.Keep {
		on.end(e, errRestoreGivenUp)
	}
	e.complete(&x.Request, Result{Err: err, Unknown: sent})
}

func (x *Restore) over(e *Engine, err error) {
	x.remember(e, x.unanswered)
	e.fail(&x.Request, err)
}

// remember notes that the server may have the session for a holder that was given up.
func (x *Restore) remember(e *Engine, sent bool) {
	if sent {
		put(&e.restores, x.key(), x.s.Nonce)
	}
}
