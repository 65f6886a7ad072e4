package core

import (
	"maps"
	"slices"
)

// name serializes a session's operations on one semaphore (R9). The server has one entry per
// session and name, and an acquire sets it, so two calls that acquire one name would work on each
// other's entry.
//
// Invariant: a name is in its session while it is locked or has a lease.
type name struct {
	key    string
	locked bool   // an operation acquires, changes, confirms or releases
	queue  list   // operations that come next
	lease  *Lease // what is held; over or not, until its release was answered
	lost   uint64 // highest order id that was taken away while an operation was under way
	early  *earlyReport
	next   *name // in the engine's list of those that are used again

	// What is to be done after the step; see resolve.
	s      *Session
	queued bool // it is in Engine.tasks
	ended  bool // the operation that had the turn is over
	asks   bool // the lease is to be asked about
}

// Turn is when an operation wants a name.
type Turn uint8

const (
	Next Turn = iota // behind those that came before
	Free             // the same, and once the session has no lease
	Now              // now or not at all
)

// nameSet is a session's names. Most sessions have one, and need no map.
type nameSet struct {
	one  *name
	more map[string]*name // all of them, once there were two
}

func (x *nameSet) get(key string) *name {
	if x.more != nil {
		return x.more[key]
	}
	if x.one != nil && x.one.key == key {
		return x.one
	}
	return nil
}

// take is the name of a key of a session, made if there is none.
func (x *nameSet) take(e *Engine, s *Session, key string) *name {
	n := x.get(key)
	if n != nil {
		return n
	}
	if n = e.freed; n != nil {
		e.freed, n.next = n.next, nil
	} else {
		n = new(name)
	}
	n.key, n.s = key, s
	if x.empty() {
		e.named = append(e.named, s)
		s.namedAt = len(e.named)
	}
	switch {
	case x.more != nil:
		x.more[key] = n
	case x.one == nil:
		x.one = n
	default:
		x.more = map[string]*name{x.one.key: x.one, key: n}
		x.one = nil
	}
	return n
}

func (x *nameSet) remove(e *Engine, n *name) {
	if x.more != nil {
		delete(x.more, n.key)
	} else if x.one == n {
		x.one = nil
	}
	if x.empty() {
		unname(e, n.s)
	}
	*n = name{next: e.freed}
	e.freed = n
}

// unname takes a session out of Engine.named, where the last one takes its place.
func unname(e *Engine, s *Session) {
	if s.namedAt == 0 {
		return // it is over
	}
	last := len(e.named) - 1
	other := e.named[last]
	e.named[s.namedAt-1], other.namedAt = other, s.namedAt
	e.named[last], s.namedAt = nil, 0
	e.named = e.named[:last]
}

func (x *nameSet) empty() bool { return x.one == nil && len(x.more) == 0 }

// each visits the names in order.
func (x *nameSet) each(visit func(*name)) {
	if x.one != nil {
		visit(x.one)
	}
	for _, key := range slices.Sorted(maps.Keys(x.more)) {
		visit(x.more[key])
	}
}

// busy reports whether an operation is under way.
func (x *nameSet) busy() (busy bool) {
	if x.one != nil {
		return x.one.locked
	}
	for _, n := range x.more {
		busy = busy || n.locked
	}
	return busy
}

// lock begins an operation on a name, or queues it for its turn. It returns false for Now if the
// operation would have to wait.
func (n *name) lock(e *Engine, r *Request, turn Turn) bool {
	switch {
	case !n.locked && (turn != Free || n.lease == nil):
		n.locked = true
		e.turn(r)
	case turn == Now:
		return false
	default:
		r.state, r.free = Idle, turn == Free
		n.queue.pushBack(r)
	}
	return true
}

// unlock ends an operation: the next one begins after the step.
func (n *name) unlock(e *Engine) {
	if n.queue.empty() && !n.queued {
		n.free(e)
		return
	}
	n.ended = true
	n.enqueue(e)
}

// free lets a name go that no operation waits for.
func (n *name) free(e *Engine) {
	n.locked = false
	if n.lease == nil && n.queue.empty() {
		n.s.names.remove(e, n)
	}
}

func (n *name) enqueue(e *Engine) { e.enqueue(n, &n.queued) }

// resolve implements task: the lease is asked about, and the next operation begins. Those of a session
// that is over end with it.
func (n *name) resolve(e *Engine) {
	n.queued = false
	if n.s.err != nil {
		return
	}
	if n.asks {
		n.asks = false
		n.confirm(e, n.s)
	}
	if !n.ended {
		return
	}
	n.ended = false
	for r := n.queue.first; r != nil; r = r.next {
		if !r.free || n.lease == nil {
			r.unlist()
			e.turn(r)
			return
		}
	}
	n.free(e)
}
