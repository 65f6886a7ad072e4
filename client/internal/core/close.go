package core

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/sessionstate"
)

// maxReleaseAll bounds how many leases a close gives back one by one, and releaseAllTimeout for how
// long.
const (
	maxReleaseAll     = 1024
	releaseAllTimeout = time.Second
)

// Close is the end of a session by its holder. First it gives back what the session holds, all at
// once. The stop that follows releases it too, but for other shards than the home that needs a
// message between shards. Then it waits for the answer to the stop, until the session's deadline at
// most. See R8.
type Close struct {
	Request
	s     *Session
	cause error
	open  int           // releases that are not answered
	until time.Duration // the deadline of the session, when it was closed
}

func (x *Close) begin(e *Engine, s *Session, cause error) {
	x.Request = Request{Waiter: x.Waiter, purpose: purpose{op: x}, sending: sending{state: Waiting}}
	x.delay.of = x
	x.s, x.cause, x.open = s, cause, 0
	switch {
	case s.stopped || s.err != nil && !errors.Is(s.err, ErrSessionClosed):
		e.complete(&x.Request, Result{}) // it was over before
		return
	case s.err != nil:
		x.until = e.now + stopTimeout
		x.await(e)
		return
	}
	s.catchUp(e)
	x.until = s.machine.Deadline()
	if a := s.attachment; a != nil {
		s.names.each(func(n *name) {
			l := n.lease
			if l != nil && l.over == nil && !n.locked && x.open < maxReleaseAll {
				x.open++
				r := &Release{closing: x}
				r.release(e, l)
				l.over = cause
				e.ready.Event = append(e.ready.Event, Event{Kind: LeaseEnded, Session: s, Lease: l, Err: cause})
			}
		})
		s.later.each(func(q *Request) { // of leases that are over: who closes has stopped its work
			if r := q.op.(*Release); x.open < maxReleaseAll {
				x.open++
				r.closing, r.notBefore = x, e.now
				q.unlist()
				e.send(q)
			}
		})
	}
	if x.open == 0 {
		x.end(e)
		return
	}
	s.closing.pushBack(&x.Request)
	e.timers.set(&x.delay, min(x.until, e.now+releaseAllTimeout))
}

// released counts an answer to a release.
func (x *Close) released(e *Engine) {
	if x.open--; x.open == 0 && x.s.err == nil {
		x.end(e)
	}
}

// end ends the session. What is not released yet is left to the stop.
func (x *Close) end(e *Engine) {
	x.await(e)
	x.s.end(e, sessionstate.Closed, x.cause)
}

// await waits for the answer to the stop.
func (x *Close) await(e *Engine) {
	if x.in == nil {
		x.s.closing.pushBack(&x.Request)
	}
	e.timers.set(&x.delay, x.until)
}

// due implements what the timer is for: the releases took too long, or the stop did.
func (x *Close) due(e *Engine) {
	if x.s.err == nil {
		x.end(e)
		return
	}
	e.complete(&x.Request, Result{Err: fmt.Errorf(
		"%w: the stop was not answered before the session's deadline; the server ends it by itself", ErrUnreachable)})
}

func (x *Close) turn(*Engine)                {}
func (x *Close) decode([]byte) (bool, error) { return false, nil }
func (x *Close) decided(*Engine, error)      {}
func (x *Close) over(*Engine, error)         {}

// left: the session ends at once, and is stopped in the background.
func (x *Close) left(e *Engine, err error) {
	e.withdraw(&x.Request)
	e.complete(&x.Request, Result{Err: err})
	if x.s.err == nil {
		x.s.end(e, sessionstate.Closed, x.cause)
	}
}

// shutDown is the end of the engine: see Engine.Close. Whatever is begun or sent again from now on
// ends with err.
func shutDown(e *Engine, err error) {
	if e.closed != nil {
		return
	}
	e.closed = err
	for _, c := range e.conns {
		c.sessions = sessionList{} // their sessions have nothing to attach again
	}
	sessions := e.Sessions()
	for _, s := range sessions {
		s.end(e, sessionstate.EndedByServer, err)
	}
	for _, s := range sessions { // before they are forgotten, which is what a stop that was answered does
		s.closing.drain(func(r *Request) { e.complete(r, Result{Err: err, Unknown: true}) })
	}
	e.resolve()
	clear(e.sessions)
	for _, s := range slices.Clone(e.subscriptions) {
		s.end(e, err)
	}
	for _, r := range e.openRequests() {
		e.step(r, inEnded, err)
	}
	e.resolve()
	for _, c := range e.conns {
		c.over, c.Err, c.Out = true, err, nil
		e.ready.Close = append(e.ready.Close, c)
	}
	e.conns = nil
	e.timers.stopAll()
	e.ready.Dial, e.ready.Flush = nil, nil
}
