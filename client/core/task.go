package core

import (
	"errors"
	"fmt"
)

// task is what a step leaves to be done after it: for a session, a connection, the routes, the fetch
// of a map, or a name. Each looks at its own state then, and does what has come to be due.
type task interface{ settle(e *Engine) }

// settle ends an input: what its steps have left is done, in order, and what that leaves.
func (e *Engine) settle() {
	if len(e.tasks) > 0 || e.bug != nil {
		e.doTasks()
	}
}

func (e *Engine) doTasks() {
	for i := 0; i < len(e.tasks); i++ {
		t := e.tasks[i]
		e.tasks[i] = nil
		t.settle(e)
	}
	e.tasks = e.tasks[:0]
	if e.bug != nil && e.closed == nil {
		shutDown(e, e.bug)
	}
}

// ErrBug: the engine has found that it broke a rule of its own, and has stopped the client.
var ErrBug = errors.New("the client stopped itself because of a bug in its engine; open another one, and report this")

// broken stops the client after the present input: a rule of the engine was broken, and what it
// believes cannot be trusted any more.
func (e *Engine) broken(r *Request, what string) {
	if e.bug == nil {
		e.bug = fmt.Errorf("%w: a request of kind %d %s", ErrBug, r.kind, what)
	}
}

// Bug is why the engine has stopped itself; nil: it has not.
func (e *Engine) Bug() error { return e.bug }
