package client

import (
	"cmp"
	"context"
	"time"
)

// Observer is notified of acquires and of what they hold, for traces and metrics. Acquire,
// TryAcquire and all recipes report to it. Package client/otelsignalbox, a module of its own,
// has one for OpenTelemetry.
//
// Its calls come on the caller's goroutine, or on one of the session's, and must not block. Any
// number may run at once. Without an Observer nothing is measured and nothing is allocated.
type Observer interface {
	// AcquireStarted is called when a call begins to acquire a semaphore, with the context of the
	// call. The result gets the rest of it; nil: nothing more is to be reported.
	AcquireStarted(ctx context.Context, a AcquireStart) AcquireObserver
}

// AcquireObserver is notified of one acquire, and of what it holds.
type AcquireObserver interface {
	// AcquireEnded is called once, when the call is about to return.
	AcquireEnded(AcquireEnd)
	// HoldEnded is called once, after AcquireEnded without an error, when the lease has ended. It
	// is called before Release and Session.Close return. After a loss it may be late.
	HoldEnded(HoldEnd)
}

// AcquireStart is an acquire that begins.
type AcquireStart struct {
	Session uint64
	Node    string // path of the coordination node
	Name    string // of the semaphore
	Count   uint64 // units
	Try     bool   // it does not wait
}

// AcquireEnd is how an acquire ended.
type AcquireEnd struct {
	Err      error         // nil: the units are held. ErrNotAcquired, also of TryAcquire, and the errors of Acquire
	Wait     time.Duration // from the call to its return
	Queued   bool          // the server put it into the semaphore's queue
	Attempts int           // how often it was sent, more than once after lost connections and moves
	Shard    uint64        // that answered last; 0: none was found
	Token    uint64        // the fencing token; 0: nothing is held
}

// HoldEnd is how a hold ended.
type HoldEnd struct {
	Held  time.Duration // since AcquireEnded
	Cause error         // nil: released. ErrSessionClosed: with its session. Otherwise it was lost, as Lease.Lost says
}

// observedHold is a lease that an observer follows.
type observedHold struct {
	observer AcquireObserver
	since    time.Duration
}

// observed runs an acquire for an observer.
func (a *acquireOp) observed(ctx context.Context, name string, o Observer) (*Lease, error) {
	s := a.s
	clock := s.c.clock
	began := clock.now()
	to := o.AcquireStarted(ctx, AcquireStart{Session: s.id, Node: s.node.path, Name: name, Count: a.o.count, Try: a.o.lock == lockNow})
	l, err := a.start(ctx, name)
	if to == nil {
		return l, err
	}
	now := clock.now()
	end := AcquireEnd{Err: err, Wait: now - began, Queued: a.accepted, Attempts: a.sendings, Shard: a.shard}
	switch {
	case l != nil:
		end.Token = l.token
	case err == nil:
		end.Err = ErrNotAcquired
	}
	to.AcquireEnded(end)
	if l != nil {
		l.observe(observedHold{to, now})
	}
	return l, err
}

// observe has the end of the lease reported. It may have ended already.
func (l *Lease) observe(h observedHold) {
	s := l.s
	s.mu.Lock()
	cause := cmp.Or(l.over, s.err)
	if cause == nil {
		l.observation = &h
	}
	s.mu.Unlock()
	if cause != nil {
		h.ended(s.c.clock.now(), cause)
	}
}

// takeObservation is what is to be reported about the lease's end, nil if nothing is, or if it was
// taken before. session.mu is held.
func (l *Lease) takeObservation() *observedHold {
	h := l.observation
	l.observation = nil
	return h
}

func (h *observedHold) ended(now time.Duration, cause error) {
	if cause == ErrReleased {
		cause = nil
	}
	h.observer.HoldEnded(HoldEnd{Held: now - h.since, Cause: cause})
}

// reportHold reports the end of a lease from the session's goroutine. mu is held.
func (l *Lease) reportHold(cause error) {
	s := l.s
	if h := l.takeObservation(); h != nil {
		now := s.c.clock.now()
		s.notify(func() { h.ended(now, cause) })
	}
}

// reportHolds reports the end of all leases with the session. mu is held.
func reportHolds(s *Session, cause error) {
	if s.c.cfg.Observer == nil {
		return
	}
	for e := range s.nameLocks.all {
		if e.lease != nil {
			e.lease.reportHold(cause)
		}
	}
}

// closeHolds takes what is to be reported about the leases that a Close ends, and returns the
// function that reports it.
func closeHolds(s *Session, cause error) (report func()) {
	if s.c.cfg.Observer == nil {
		return func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var holds []*observedHold
	for e := range s.nameLocks.all {
		if e.lease != nil && s.err == nil {
			if h := e.lease.takeObservation(); h != nil {
				holds = append(holds, h)
			}
		}
	}
	return func() {
		now := s.c.clock.now()
		for _, h := range holds {
			h.ended(now, cause)
		}
	}
}
