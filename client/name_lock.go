package client

import (
	"context"
	"fmt"
	"slices"
)

// nameLock serializes a session's operations on one semaphore. The server has one entry per session
// and name, and an acquire sets it, so two goroutines that acquire one name would work on each
// other's entry.
//
// Invariant: a nameLock is in session.nameLocks while it is locked or has a lease. session.mu
// guards it.
type nameLock struct {
	name   string
	locked bool       // somebody acquires, changes, confirms or releases
	queue  []nameTurn // who wants to be next, in order of arrival
	lease  *Lease     // what is held; over or not, until its release was answered
	lost   uint64     // highest order id that was taken away while busy
}

// nameTurn is a place in the queue of a name lock.
type nameTurn struct {
	granted chan struct{} // capacity 1
	free    bool          // others are served first while the session has a lease
}

// lockMode is when a caller wants a name lock.
type lockMode uint8

const (
	lockNext lockMode = iota // behind those that came before
	lockFree                 // the same, and once the session has no lease
	lockNow                  // now or not at all
)

// nameLockSet holds a session's name locks by name. Most sessions have one, and need no map.
// Methods that take the session lock its mu. The others are called with it held.
type nameLockSet struct {
	one  *nameLock
	more map[string]*nameLock // all of them, once there were two
}

func (x *nameLockSet) get(name string) *nameLock {
	if x.more != nil {
		return x.more[name]
	}
	if x.one != nil && x.one.name == name {
		return x.one
	}
	return nil
}

// put adds an entry whose name has none.
func (x *nameLockSet) put(e *nameLock) {
	switch {
	case x.more != nil:
		x.more[e.name] = e
	case x.one == nil:
		x.one = e
	default:
		x.more = map[string]*nameLock{x.one.name: x.one, e.name: e}
		x.one = nil
	}
}

func (x *nameLockSet) remove(e *nameLock) {
	if x.more != nil {
		delete(x.more, e.name)
	} else if x.one == e {
		x.one = nil
	}
}

// all visits the entries; the present one may be removed meanwhile.
func (x *nameLockSet) all(yield func(*nameLock) bool) {
	if x.one != nil {
		yield(x.one)
		return
	}
	for _, e := range x.more {
		if !yield(e) {
			return
		}
	}
}

// lock locks a name of the session s; ok is false where lockNow would have to wait. held is what
// the session holds of the semaphore.
func (x *nameLockSet) lock(ctx context.Context, s *Session, name string, mode lockMode) (e *nameLock, held *Lease, ok bool, err error) {
	s.mu.Lock()
	if s.err != nil {
		defer s.mu.Unlock()
		return nil, nil, false, s.err
	}
	e = x.get(name)
	if e == nil {
		e = &nameLock{name: name}
		x.put(e)
	}
	if !e.locked && (mode != lockFree || e.lease == nil) {
		e.locked = true
		held = e.lease
		s.mu.Unlock()
		return e, held, true, nil
	}
	if mode == lockNow {
		s.mu.Unlock()
		return nil, nil, false, nil
	}
	turn := nameTurn{make(chan struct{}, 1), mode == lockFree}
	e.queue = append(e.queue, turn)
	s.mu.Unlock()
	if err := x.wait(ctx, s, e, turn); err != nil {
		return nil, nil, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return e, e.lease, true, nil
}

func (x *nameLockSet) wait(ctx context.Context, s *Session, e *nameLock, turn nameTurn) error {
	select {
	case <-turn.granted:
		return nil
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(e.queue, turn); i >= 0 {
		e.queue = slices.Delete(e.queue, i, i+1)
	} else {
		x.unlock(e) // the turn came at the same moment
	}
	if s.err != nil {
		return s.err
	}
	return interrupted(ctx, nil)
}

// unlockOf is unlock while session.mu is not held.
func (x *nameLockSet) unlockOf(s *Session, e *nameLock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.unlock(e)
}

// unlock unlocks a name, or hands it to the next that waits for it.
func (x *nameLockSet) unlock(e *nameLock) {
	for i, turn := range e.queue {
		if !turn.free || e.lease == nil {
			e.queue = slices.Delete(e.queue, i, i+1)
			turn.granted <- struct{}{}
			return
		}
	}
	e.locked = false
	if e.lease == nil {
		x.remove(e)
	}
}

// leaseLost is called when an operator or another client took a lease away.
func (x *nameLockSet) leaseLost(name string, orderID uint64, message string) {
	e := x.get(name)
	switch {
	case e == nil:
	case e.lease != nil && e.lease.token == orderID:
		x.lose(e, message)
	case e.locked:
		e.lost = max(e.lost, orderID) // of a grant whose acquirer has not run yet
	}
}

// lose ends a lease that the server does not have any more.
func (x *nameLockSet) lose(e *nameLock, message string) {
	err := ErrLeaseLost
	if message != "" {
		err = fmt.Errorf("%w: %s", ErrLeaseLost, message)
	}
	e.lease.end(err)
	e.lease = nil
	if !e.locked {
		e.locked = true
		x.unlock(e) // to whom the lease was in the way
	}
}

// hasMoved says whether a lease is served elsewhere by this map.
func (x *nameLockSet) hasMoved(r *routeTable, tier uint8) bool {
	for e := range x.all {
		if l := e.lease; l != nil && l.over == nil && r.leaseMoved(l.route, tier, l.bucket) {
			return true
		}
	}
	return false
}
