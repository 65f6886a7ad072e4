package core

import "github.com/signalbox-dev/signalbox/protocol"

// A subscription is a Watch or a Stream: what a program follows until it closes it. It has a
// shardStream for each shard that has a part of it. What comes waits in the subscription until the
// program takes it, merged or bounded, so that a consumer that stops costs no more and more memory.

// subscriber is a subscription as its streams know it.
type subscriber interface {
	// place is where a part's stream is opened. It sets the part's shard and message.
	place(e *Engine, p *shardStream) *Conn
	// event processes what came on an open stream. The body is the reader's.
	event(e *Engine, p *shardStream, h *protocol.Header) error
	// opening: a part's stream is asked for; what came over the last one and is not whole is gone.
	opening(p *shardStream)
	// interrupted: a part that was live is not any more.
	interrupted(e *Engine)
	// fail ends the subscription.
	fail(e *Engine, err error)
	// layout follows a new map.
	layout(e *Engine)
	base() *subscription
}

// subscription has the fields that both kinds share.
type subscription struct {
	e        *Engine
	of       subscriber
	waiter   Waiter
	notified bool // the waiter is in Ready.Wake, or the consumer has not taken everything
	parts    []*shardStream
	err      error // why it is over
	number   int   // its place in Engine.subscriptions
	ended    bool

	// former is the newest index that was taken in of each shard that is not followed now.
	former map[uint64]uint64
}

// base returns the part that both kinds share.
func (s *subscription) base() *subscription { return s }

// begin has the engine know the subscription.
func (s *subscription) begin(e *Engine, of subscriber, waiter Waiter) {
	*s = subscription{e: e, of: of, waiter: waiter, number: len(e.subscriptions)}
	e.subscriptions = append(e.subscriptions, s)
	e.routes.fetch.needed(e)
}

// end closes the streams, also at the server. The consumer gets err, if there is one.
func (s *subscription) end(e *Engine, err error) {
	if s.ended {
		return
	}
	s.ended, s.err = true, err
	n := len(e.subscriptions) - 1
	last := e.subscriptions[n]
	e.subscriptions[s.number], e.subscriptions[n] = last, nil
	last.number = s.number
	e.subscriptions = e.subscriptions[:n]
	for _, p := range s.parts {
		p.close(e)
	}
	if err != nil {
		s.wake(e)
	}
}

// wake tells the consumer that there is something to take.
func (s *subscription) wake(e *Engine) {
	if !s.notified {
		s.notified = true
		e.ready.Wake = append(e.ready.Wake, s.waiter)
	}
}

// Last is why a part of the subscription is not live now; nil: all are, or it has just begun.
func (s *subscription) Last() error {
	for _, p := range s.parts {
		if !p.live && p.last != nil {
			return p.last
		}
	}
	return nil
}
