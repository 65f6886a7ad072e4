package core

import (
	"slices"

	"github.com/signalbox-dev/signalbox/client/sessionstate"
)

// shutDown is the end of the engine: see Engine.Close.
func shutDown(e *Engine, err error) {
	conns := slices.Clone(e.conns)
	for _, c := range conns {
		c.sessions = sessionList{} // their sessions have nothing to attach again
	}
	e.eachSession(func(s *Session) {
		s.end(e, sessionstate.EndedByServer, err)
		s.closing.drain(func(r *Request) { e.complete(r, Result{}) })
	})
	clear(e.sessions)
	for _, s := range slices.Clone(e.subscriptions) {
		s.end(e, err)
	}
	for _, r := range e.openRequests() {
		e.step(r, inEnded, err)
	}
	for _, c := range conns {
		c.over, c.Err, c.Out = true, err, nil
		e.ready.Close = append(e.ready.Close, c)
	}
	e.conns = nil
	e.timers = timers{}
	e.ready.Dial, e.ready.Flush = nil, nil
}
