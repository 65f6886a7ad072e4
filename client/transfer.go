package client

import (
	"context"
	"errors"

	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/client/internal/handle"
	"github.com/signalbox-dev/signalbox/protocol"
)

// ErrNotTransferred: the units were released, and the session that they were meant for did not get
// them: it stopped waiting, or needs slots that are not free.
var ErrNotTransferred = errors.New(
	"released, but not transferred: the session stopped waiting, or waits for slots that are not free")

// TransferTo hands the units over to a session that waits for the semaphore, past all ahead of it.
// It gets the units that it waits for, and the rest is free. The lease's context ends before the
// request is sent, with the cause ErrReleased.
//
// If the session does not wait, or wants more than the lease has, the error is
// ErrPreconditionFailed and the lease lives. ErrNotTransferred says that the lease is gone and that
// the session did not get the units. A lease that is over has the error of its context. Other
// errors are those of Release.
func (l *Lease) TransferTo(ctx context.Context, session uint64) error {
	return withOp("transfer", l.name, l.transferTo(ctx, session))
}

func (l *Lease) transferTo(ctx context.Context, session uint64) error {
	if cause := context.Cause(l.Context()); cause != nil {
		return cause
	}
	if err := l.s.mayTransfer(ctx, l.name, session); err != nil {
		return err
	}
	transferred, r := l.d.TransferTo(ctx, session)
	return transferOutcome(ctx, l.s, transferred, r)
}

// TransferTo is Lease.TransferTo without a lease, for units that the session holds, such as those
// of a restored session.
func (s *Session) TransferTo(ctx context.Context, name string, session uint64) error {
	return withOp("transfer", name, s.transferTo(ctx, name, session))
}

func (s *Session) transferTo(ctx context.Context, name string, session uint64) error {
	if name == "" {
		return handle.ErrNoSemaphore
	}
	if err := s.mayTransfer(ctx, name, session); err != nil {
		return err
	}
	_, transferred, r := s.d.ReleaseName(ctx, name, session)
	return transferOutcome(ctx, s, transferred, r)
}

func transferOutcome(ctx context.Context, s *Session, transferred bool, r core.Result) error {
	err := releaseOutcome(ctx, s, r)
	if err == nil && !transferred {
		return ErrNotTransferred
	}
	return err
}

// mayTransfer reads whether the units can be transferred, while they are still held.
func (s *Session) mayTransfer(ctx context.Context, name string, to uint64) error {
	if to == s.ID() {
		return protocol.Errorf(protocol.StatusBadRequest, "session %d cannot be given its own lease; name another one", to)
	}
	sem, err := s.node.describe(ctx, name, IncludeOwners(), IncludeWaiters(), ReadConsistency(Strict))
	if err != nil {
		return err
	}
	held := uint64(0)
	for _, o := range sem.Owners {
		if o.Session == s.ID() {
			held = o.Count
		}
	}
	for _, w := range sem.Waiters {
		switch {
		case w.Session != to:
		case held == 0:
			return protocol.Errorf(protocol.StatusPreconditionFailed,
				"session %d holds nothing of it; acquire it first", s.ID())
		case w.Count > held:
			return protocol.Errorf(protocol.StatusPreconditionFailed,
				"session %d waits for more units, %d, than are held, %d; it can be given no more than that", to, w.Count, held)
		default:
			return nil
		}
	}
	return protocol.Errorf(protocol.StatusPreconditionFailed,
		"session %d does not wait for it; see who waits with a description", to)
}
