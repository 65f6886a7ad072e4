package core

import (
	"slices"

	"github.com/signalbox-dev/signalbox/client/internal/sessionstate"
)

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
