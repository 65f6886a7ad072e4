package client

import (
	"context"
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
	locked bool            // somebody acquires, changes, confirms or releases
	queue  []chan struct{} // who wants to be next
	lease  *Lease          // what is held; over or not, until its release was answered
	lost   uint64          // highest order id that was taken away while busy
}

// nameLockSet holds a session's name locks by name. Most sessions have one, and need no map.
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

// lockName locks a name. With try it is false instead of waiting. held is what the session holds of
// the semaphore.
func (s *Session) lockName(ctx context.Context, name string, try bool) (e *nameLock, held *Lease, ok bool, err error) {
	s.mu.Lock()
	if s.err != nil {
		defer s.mu.Unlock()
		return nil, nil, false, s.err
	}
	e = s.nameLocks.get(name)
	if e == nil {
		e = &nameLock{name: name}
		s.nameLocks.put(e)
	}
	if !e.locked {
		e.locked = true
		held = e.lease
		s.mu.Unlock()
		return e, held, true, nil
	}
	if try {
		s.mu.Unlock()
		return nil, nil, false, nil
	}
	turn := make(chan struct{}, 1)
	e.queue = append(e.queue, turn)
	s.mu.Unlock()
	if err := s.waitForName(ctx, e, turn); err != nil {
		return nil, nil, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return e, e.lease, true, nil
}

func (s *Session) waitForName(ctx context.Context, e *nameLock, turn chan struct{}) error {
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(e.queue, turn); i >= 0 {
		e.queue = slices.Delete(e.queue, i, i+1)
	} else {
		s.unlockNameLocked(e) // the turn came at the same moment
	}
	if s.err != nil {
		return s.err
	}
	return interrupted(ctx, nil)
}

func (s *Session) unlockName(e *nameLock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unlockNameLocked(e)
}

func (s *Session) unlockNameLocked(e *nameLock) {
	if len(e.queue) > 0 {
		e.queue[0] <- struct{}{}
		e.queue = e.queue[1:]
		return
	}
	e.locked = false
	if e.lease == nil {
		s.nameLocks.remove(e)
	}
}
