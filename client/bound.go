package client

import (
	"context"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/client/internal/driver"
	"github.com/signalbox-dev/signalbox/client/internal/millis"
	"github.com/signalbox-dev/signalbox/protocol"
)

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
