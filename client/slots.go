package client

import (
	"context"
	"errors"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/driver"
)

// Slots shares the units of one semaphore among the goroutines of any number of processes: all of
// them together run no more tasks at a time than it has units. A session has one entry on a name,
// so each lease has a session of its own. Sessions whose lease was released are used again.
type Slots struct {
	c          *Client
	node, name string
	opts       []SessionOption

	free *driver.FreeList[*Session] // hold nothing
}

// maxSlotIdle is how long a session is kept that no task uses.
const maxSlotIdle = time.Minute

// Acquire is Session.Acquire with a session that holds nothing, started if there is none. Its
// errors, and those of Client.Session. The lease's Release makes the session free for another task.
func (x *Slots) Acquire(ctx context.Context, opts ...AcquireOption) (*Lease, error) {
	return x.acquire(ctx, func(s *Session) (*Lease, error) { return s.Acquire(ctx, x.name, opts...) })
}

// TryAcquire is Acquire of what is free at once. If it is not free, the lease is nil, without an
// error.
func (x *Slots) TryAcquire(ctx context.Context, opts ...AcquireOption) (*Lease, error) {
	return x.acquire(ctx, func(s *Session) (*Lease, error) { return s.TryAcquire(ctx, x.name, opts...) })
}

// Run is Session.Run with a session that holds nothing.
func (x *Slots) Run(
	ctx context.Context, work func(ctx context.Context, l *Lease) error, opts ...AcquireOption,
) error {
	l, err := x.Acquire(ctx, opts...)
	if err != nil {
		return err
	}
	return l.run(ctx, work)
}

func (x *Slots) acquire(ctx context.Context, acquire func(s *Session) (*Lease, error)) (*Lease, error) {
	s, err := x.session(ctx)
	if err != nil {
		return nil, err
	}
	l, err := acquire(s)
	if l == nil {
		x.c.d.Run(func() { x.putOnceReleased(s) }) // an acquire that was given up is undone first
		return nil, err
	}
	context.AfterFunc(l.Context(), func() { x.putOnceReleased(s) })
	return l, nil
}

// putOnceReleased keeps a session once it holds nothing at the server either.
func (x *Slots) putOnceReleased(s *Session) {
	if r := s.d.AwaitName(x.c.d.Context(), x.name); r.Err == nil {
		x.put(s)
	}
}

// session is one that holds nothing.
func (x *Slots) session(ctx context.Context) (*Session, error) {
	for {
		s, ok, open := x.free.Take()
		switch {
		case !open:
			return nil, errSlotsClosed
		case !ok:
			return x.c.Session(ctx, x.node, x.opts...)
		case s.d.ErrNow() == nil:
			return s, nil
		}
	}
}

var errSlotsClosed = errors.New("the slots are closed")

// put keeps a session for the next task.
func (x *Slots) put(s *Session) {
	if s.d.ErrNow() != nil {
		return
	}
	x.free.Put(s, maxSlotIdle, func(s *Session) {
		x.c.d.Run(func() { _ = s.Close(x.c.d.Context()) })
	})
}

// Close closes the sessions that hold nothing. Others are closed when their leases end. Nothing is
// acquired any more. Closing the client closes all of them too.
func (x *Slots) Close(ctx context.Context) error {
	free := x.free.Close()
	failed := make(chan error, len(free))
	for _, s := range free {
		go func() { failed <- s.Close(ctx) }()
	}
	var err error
	for range free {
		err = errors.Join(err, <-failed)
	}
	return err
}
