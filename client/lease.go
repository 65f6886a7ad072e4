package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/contexts"
	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/client/internal/driver"
	"github.com/signalbox-dev/signalbox/client/internal/millis"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Lease is a number of units of a semaphore that a session holds. It ends when it is released, when
// the session ends, or when it is taken away. Its context ends with it, before another session can
// be granted the units.
//
// A lock cannot stop a process that does not check it. Send Token with every write to what the
// lease protects, and let the resource reject tokens that are lower than one it has seen.
type Lease struct {
	s    *Session
	name string
	d    driver.Lease
}

// Name is the semaphore's name.
func (l *Lease) Name() string { return l.name }

// Token is the fencing token. It is higher for every later grant of the same semaphore name, for as
// long as the coordination node exists. With a limit above 1 each holder has a token of its own,
// and the resource must compare per holder.
func (l *Lease) Token() uint64 { return l.d.Token }

// Session is the session that holds the lease.
func (l *Lease) Session() *Session { return l.s }

// Count is the number of units held.
func (l *Lease) Count() uint64 { return l.d.Units() }

// Context ends with the lease. Its cause is Lost, or ErrReleased. It ends 5 % of the session's
// timeout before the last moment at which the lease may be relied on, so that work has time to
// stop. Its Err reads the clock, as Held does; Done, and contexts derived from it, end with a timer.
func (l *Lease) Context() context.Context { return l.d.Context() }

// Held reports whether the lease may be relied on now. It reads the clock, so late timers do not
// make it wrong.
func (l *Lease) Held() bool { return l.d.Held() }

// Lost is nil while the lease is held, and after it was released. Otherwise it says why the lease
// was lost: ErrLeaseLost, or the session's Err.
func (l *Lease) Lost() error { return l.d.Lost() }

// Release gives the units back. The lease ends at once; the call returns when the server has
// answered. When ctx ends first, even before the call, the release goes on in the background and
// the error is that of ctx. It also goes on when a connection is refused. Releasing twice is no
// error; releasing a lost lease returns Lost. If the session is lost before the answer, the error
// wraps ErrOutcomeUnknown and the session's: the units are free at the latest when the server ends
// the session.
func (l *Lease) Release(ctx context.Context) error {
	return withOp("release", l.name, releaseOutcome(ctx, l.s, l.d.Release(ctx)))
}

// releaseOutcome is the result of a release. A session that was closed before the answer has given
// back everything once the server has heard of it. Any other one may live on at the server for a
// while, with its units.
func releaseOutcome(ctx context.Context, s *Session, r core.Result) error {
	if r.Err == nil || r.Answered || !r.Unknown || r.InBackground {
		return driver.Err(r)
	}
	if errors.Is(r.Err, ErrSessionClosed) {
		if closed := s.d.Close(ctx, ErrSessionClosed); closed.Err == nil {
			return nil
		}
	}
	return driver.Outcome(r)
}

// run calls work, if the lease is still held, with a context that ends with the lease, at once, and
// with ctx. It releases the lease when work has returned; if that is not answered in time, it goes on
// in the background. The error says if the lease was lost.
func (l *Lease) run(ctx context.Context, work func(ctx context.Context, l *Lease) error) error {
	called, err := contexts.During(ctx, l, func(ctx context.Context) error { return work(ctx, l) })
	lost := l.Lost()
	switch {
	case lost == nil:
		return err
	case called && err != nil && !errors.Is(err, context.Canceled):
		lost = fmt.Errorf("%w (the work ended with: %w)", lost, err)
	}
	return withOp("hold", l.name, lost)
}

// ReduceOption is an option of Lease.Reduce.
type ReduceOption func(*reduceOptions)

type reduceOptions = core.Change

// Reduce gives back all but count units, 1 up to the units held. The place among the owners and the
// token stay. Of slots it gives back the last ones, or those that Keep does not name. A count above
// the units held is ErrBadRequest: acquire with another session, or release first.
func (l *Lease) Reduce(ctx context.Context, count uint64, opts ...ReduceOption) error {
	if count == 0 { // which would leave the count as it is
		return withOp("reduce", l.name, protocol.Errorf(protocol.StatusBadRequest,
			"count is 0; it must be 1 to the units held: Release gives all back"))
	}
	x := core.Change{Count: count}
	for _, f := range opts {
		f(&x)
	}
	return withOp("reduce", l.name, driver.Outcome(l.d.Change(ctx, &x)))
}

// UpdateData replaces the data shown beside the entry. The token stays.
func (l *Lease) UpdateData(ctx context.Context, data []byte) error {
	return withOp("update data of", l.name, driver.Outcome(l.d.Change(ctx,
		&core.Change{Data: bytes.Clone(data), SetData: true})))
}

// MaxHold bounds how long the lease lasts, 1 s to 30 days from the grant, and at most the semaphore's
// MaxHold, which is the default, as is 0. A program that hangs does not keep others out for
// longer. It goes with ephemeral semaphores and recipes too. What MaxHold says about time holds.
func MaxHold(d time.Duration) AcquireOption {
	return func(o *acquireOptions) {
		x := o.asked()
		x.Hold, x.Flags = millis.Of("time to hold", d, &o.err), x.Flags|protocol.KnowsBounds
	}
}

// Until is when the lease's context ends by itself, as known now: at the longest hold, or when a waiter
// wants the units and the time to yield is over. The zero time is never. It is earlier than the
// server's own moment by 1 % of the hold, for clocks that differ, and by TimeToStop.
func (l *Lease) Until() time.Time {
	in, _, ok := l.d.Ends()
	if !ok {
		return time.Time{}
	}
	return time.Now().Add(in)
}

// TimeToStop is how long work may take to stop once the context has ended, before another session can
// be granted the units: 5 % of the session's timeout, and for a lease with a bound not more than 5 % of
// the time that it had, and 5 s. After a forced release there is no such time.
func (l *Lease) TimeToStop() time.Duration {
	most := l.s.Timeout() / 20
	if _, toStop, ok := l.d.Ends(); ok {
		return min(most, toStop)
	}
	return most
}

// Extend asks for d more from now on, 1 s to 30 days; at most the semaphore's MaxHold counts. A
// hold that has more time left, or has no bound, stays as it is. Only the program knows that its
// work goes on well, so nothing extends a hold by itself; Ending says when to think of it.
//
// Errors: ErrPreconditionFailed if the semaphore has a MaxHold and not Extend, or if a
// waiter wants the units; ErrMaxHold and the others of the lease if it ended before the answer
// came.
func (l *Lease) Extend(ctx context.Context, d time.Duration) error {
	var err error
	x := core.Change{Hold: millis.Of("time to hold", d, &err)}
	if x.Hold == 0 && err == nil {
		err = errNoMoreTime
	}
	if err == nil {
		err = driver.Outcome(l.d.Change(ctx, &x))
	}
	return withOp("extend", l.name, err)
}

var errNoMoreTime = protocol.Errorf(protocol.StatusBadRequest, "time to hold is 0; ask for 1s to 720h")

// Ending is closed when but a fifth of the time is left that the lease had when it got its bound, and
// at the bound at the latest. After an Extend, call it again for the channel of the new bound.
func (l *Lease) Ending() <-chan struct{} { return l.d.Ending() }

// PreemptMode says which owners of a semaphore waiters may preempt.
type PreemptMode uint8

// The modes.
const (
	PreemptOff   = PreemptMode(protocol.PreemptOff)
	PreemptLower = PreemptMode(protocol.PreemptLower) // owners with a lower Priority than the waiter's; PolicyPriority only
	PreemptAny   = PreemptMode(protocol.PreemptAny)   // all owners
)

var preemptModes = [...]string{PreemptOff: "off", PreemptLower: "lower", PreemptAny: "any"}

// String is for people: off, lower, any.
func (m PreemptMode) String() string {
	if int(m) < len(preemptModes) {
		return preemptModes[m]
	}
	return "unknown"
}

// Preempted is closed when a waiter preempts the lease, once: finish the work and release.
// Where the semaphore has a Grace, Until has changed, and the lease ends then. It stays closed if
// the waiter goes. See SemaphoreConfig.Preempt.
func (l *Lease) Preempted() <-chan struct{} { return l.d.Preempted() }

// PreemptedBy is the session that preempts the lease. 0: none does now, or it is not known.
func (l *Lease) PreemptedBy() uint64 { return l.d.PreemptedBy() }
