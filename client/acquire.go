package client

import (
	"context"
	"errors"

	"github.com/signalbox-dev/signalbox/client/internal/contexts"
	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/client/internal/driver"
	"github.com/signalbox-dev/signalbox/client/internal/handle"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/boottime"
)

// Acquire waits in the semaphore's FIFO queue until the session holds the units. When ctx ends
// first, the place in the queue is given up. A grant that is on its way then is given back, in the
// background if need be. The lease does not depend on ctx.
//
// Errors: ErrNotAcquired when Wait ended; ErrAlreadyHeld; ErrSessionExpired and the others of a
// session; ErrNotFound without CreateLimit or Ephemeral; ErrBadRequest for a count of 0 or above
// the limit, a name of 0 or more than 1,024 bytes, or too much data; ErrPreconditionFailed when
// only one of the semaphore and the request is ephemeral; ErrAborted when an operator deleted the
// semaphore by force.
func (s *Session) Acquire(ctx context.Context, name string, opts ...AcquireOption) (*Lease, error) {
	l, err := s.acquire(ctx, name, opts)
	if err != nil {
		return nil, withOp("acquire", name, err)
	}
	return l, nil
}

// Run acquires, and calls work while the session holds the units. The context of work ends with ctx,
// and with the lease, before another session can be granted them; work must return then. It has the
// values of ctx. When work has returned, Run releases the units, and waits up to 2 s for the
// server's answer.
//
// Err of the context reads the clock, as l.Held does, and Run does before it calls work. Done, and
// contexts that work derives, end with a timer, which is late in a process that was stopped. So look
// at Err before each step that must not be done late, and send l.Token with each write.
//
// Run returns work's error, and Lost if the lease was lost before work returned, also by errors.Is.
// If it acquires nothing, it does not call work, and returns the error of Acquire; if the lease ended
// before work was called, Lost, or ErrReleased.
func (s *Session) Run(
	ctx context.Context, name string, work func(ctx context.Context, l *Lease) error, opts ...AcquireOption,
) error {
	l, err := s.Acquire(ctx, name, opts...)
	if err != nil {
		return err
	}
	return l.run(ctx, work)
}

// TryAcquire acquires units that are free now. If they are not, the error is ErrNotAcquired. It does
// not wait: Wait and FailOnDeadlock are ErrBadRequest.
func (s *Session) TryAcquire(ctx context.Context, name string, opts ...AcquireOption) (*Lease, error) {
	return s.Acquire(ctx, name, with(opts, untilNow)...)
}

// AcquireAll acquires 1 to MaxNames distinct names on the session's node. It returns when the session
// holds all of them. opts are of each name, before the name's own options.
//
// The names are acquired in the order of their bytes, each in its queue, whose place is kept until
// the name is granted. Callers that acquire several names this way cannot deadlock with each other.
// HoldWhileWaiting bounds a wait while other names are held: at its end everything is released, and
// after a random pause of at most a quarter of that time it starts again. Wait bounds the whole;
// Wait(0) tries each name once.
//
// After an error, and when ctx ends, nothing stays held, and a grant that is on its way is given
// back. Other sessions can see some of the names held and others not.
//
// Errors beside those of Acquire: ErrBadRequest for no name, too many, or one that is given twice;
// that of a lease that was lost while the next ones were waited for.
func (s *Session) AcquireAll(ctx context.Context, wants []Want, opts ...AcquireOption) (*LeaseGroup, error) {
	return acquireAll(ctx, s, wants, opts)
}

// acquire is Acquire with bare errors.
func (s *Session) acquire(ctx context.Context, name string, opts []AcquireOption) (*Lease, error) {
	return s.acquireWith(ctx, name, optionsOfOne(opts))
}

// optionsOfOne are those of an acquire of one name.
func optionsOfOne(opts []AcquireOption) *acquireOptions {
	o := acquireOptionsOf(opts)
	if o.whileHolding != 0 && o.err == nil {
		o.err = errOneName
	}
	return o
}

func (s *Session) acquireWith(ctx context.Context, name string, o *acquireOptions) (*Lease, error) {
	if o.Options != nil && o.Options.Flags&protocol.AskDeadlock != 0 {
		return acquireUnlessDeadlocked(ctx, s, name, *o)
	}
	return s.acquireOnce(ctx, name, o)
}

func (s *Session) acquireOnce(ctx context.Context, name string, o *acquireOptions) (*Lease, error) {
	if to := s.c.cfg.Observer; to != nil {
		return s.acquireObserved(ctx, name, o, to)
	}
	l := &Lease{s: s, name: name}
	if err := s.acquireLease(ctx, o, l, nil); err != nil {
		return nil, err
	}
	return l, nil
}

// acquireLease acquires what l is to be. info, if not nil, gets how that went.
func (s *Session) acquireLease(ctx context.Context, o *acquireOptions, l *Lease, info *driver.AcquireInfo) error {
	if o.err != nil {
		return o.err
	}
	if l.name == "" {
		return handle.ErrNoSemaphore
	}
	for {
		if o.exact {
			if err := s.ensureLimit(ctx, l.name, o.limit); err != nil {
				return err
			}
		}
		r := s.d.Acquire(ctx, l.name, o.AcquireOptions, &l.d, info)
		if o.limit == 0 || !r.Answered || protocol.StatusOf(r.Err) != protocol.StatusNotFound {
			return driver.Err(r)
		}
		if o.Count > o.limit { // or it would be made, and the acquire refused
			return protocol.Errorf(protocol.StatusBadRequest,
				"count %d is above %d, the limit that CreateLimit gives the semaphore, which does not exist", o.Count, o.limit)
		}
		if _, err := s.create(ctx, l.name, o.limit, nil); err != nil && !(answered(err) && errors.Is(err, ErrAlreadyExists)) {
			return err
		}
	}
}

// ensureLimit creates a semaphore with a limit if there is none, and refuses one that has another.
func (s *Session) ensureLimit(ctx context.Context, name string, limit uint64) error {
	ctx, end := contexts.Both(s.d.Context(), ctx)
	defer end()
	for {
		sem, err := s.node.describe(ctx, name, ReadConsistency(Strict))
		switch {
		case s.d.Err() != nil:
			return s.d.Err()
		case err == nil && sem.Limit != limit:
			return protocol.Errorf(protocol.StatusPreconditionFailed,
				"semaphore has the limit %d, not %d; resize it, or acquire with its limit", sem.Limit, limit)
		case err == nil || !answered(err) || !isNotFound(err):
			return err
		}
		_, err = s.create(ctx, name, limit, nil)
		if err == nil || !answered(err) || !errors.Is(err, ErrAlreadyExists) {
			return err
		}
	}
}

// acquireObserved acquires for an observer.
func (s *Session) acquireObserved(
	ctx context.Context, name string, o *acquireOptions, observer Observer,
) (*Lease, error) {
	began := boottime.Now()
	to := observer.AcquireStarted(ctx, AcquireStart{
		Session: s.d.ID, Node: s.node.h.Path, Name: name, Count: o.Count, Try: o.Turn == core.Now,
	})
	var info driver.AcquireInfo
	l := &Lease{s: s, name: name}
	err := s.acquireLease(ctx, o, l, &info)
	if err != nil {
		l = nil
	}
	if to == nil {
		return l, err
	}
	now := boottime.Now()
	end := AcquireEnd{Err: err, Wait: now - began, Queued: info.Queued, Attempts: info.Attempts, Shard: info.Shard}
	if l != nil {
		end.Token = l.d.Token
	}
	to.AcquireEnded(end)
	if l != nil {
		l.d.Observe(func(cause error) {
			if errors.Is(cause, ErrReleased) {
				cause = nil
			}
			to.HoldEnded(HoldEnd{Held: boottime.Now() - now, Cause: cause})
		})
	}
	return l, err
}
