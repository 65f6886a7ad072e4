package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/signalbox-dev/signalbox/client/internal/contexts"
	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/client/internal/driver"
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
