package core

import (
	"fmt"
	"slices"
)

// account is what a test knows of an engine by itself: the sessions that it has begun, and the calls
// that have no outcome yet.
type account struct {
	sessions []*Session
	open     []*Request
}

// began notes a call before it is begun, and the session that it starts or restores, or nil.
func (a *account) began(r *Request, s *Session) {
	if a.open = append(a.open, r); s != nil {
		a.sessions = append(a.sessions, s)
	}
}

// check compares with the engine after a step; done is what that has handed back.
func (a *account) check(e *Engine, done []*Request) error {
	for _, r := range done {
		i := slices.Index(a.open, r)
		if i < 0 {
			return fmt.Errorf("a call of kind %d was handed back, and has its outcome since before", r.kind)
		}
		a.open = slices.Delete(a.open, i, i+1)
	}
	var started []*Session
	for _, s := range a.sessions {
		if s.machine != nil {
			started = append(started, s)
		}
	}
	return Check(e, started, a.open)
}
