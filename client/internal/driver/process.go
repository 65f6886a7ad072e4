package driver

import (
	"context"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/protocol"
)

// ProcessHandler receives an event of a process: a round or a message. It runs on the goroutine
// that reads the connection, and must not block. It owns the event.
type ProcessHandler func(*protocol.ProcessRound, *protocol.ProcessMessage)

// HandleProcess has what the server sends to the session about a process received by handle, until
// stop is called. There is one handler at a time: ok is false if there is one.
func (s *Session) HandleProcess(name string, handle ProcessHandler) (stop func(), ok bool) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if s.processes[name] != nil {
		return nil, false
	}
	if s.processes == nil {
		s.processes = make(map[string]ProcessHandler)
	}
	s.processes[name] = handle
	return func() {
		s.d.mu.Lock()
		defer s.d.mu.Unlock()
		delete(s.processes, name)
	}, true
}

// processEvents has the events of processes received. mu is held.
func processEvents(after []func(), events []core.ProcessEvent) []func() {
	for _, v := range events {
		var name []byte
		if v.Round != nil {
			name = v.Round.Name
		} else {
			name = v.Message.Name
		}
		if handle := v.Session.Owner.(*Session).processes[string(name)]; handle != nil {
			after = append(after, func() { handle(v.Round, v.Message) })
		}
	}
	return after
}

// Follow calls connected whenever requests of the session go another way than before, and the first
// time, until ctx or the session ends. Events that were sent in between may be lost.
func (s *Session) Follow(ctx context.Context, to core.Target, connected func()) {
	wake := newBell()
	w := &core.Way{Waiter: wake, Session: &s.Session, To: to}
	x := subscription[struct{}]{
		d:     s.d,
		open:  func(e *core.Engine, now time.Duration) { e.Follow(now, w) },
		close: func(e *core.Engine, now time.Duration) { e.Unfollow(now, w) },
		next:  func(*struct{}) (bool, error) { return w.Next() },
		last:  func() error { return nil },
	}
	for _, err := range x.all(ctx, wake) {
		if err != nil {
			return
		}
		connected()
	}
}
