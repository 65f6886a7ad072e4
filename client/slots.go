package client

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Slots shares the units of one semaphore among the goroutines of any number of processes: at most
// so many tasks at a time, over all of them. A session has one entry on a name, so each lease has a
// session of its own. Sessions whose lease was released are used again.
type Slots struct {
	c          *Client
	node, name string
	opts       []SessionOption

	mu     sync.Mutex
	idle   []*idleSession // the last one was used last
	closed bool
}

// idleSession is a session that holds nothing. The timer closes it.
type idleSession struct {
	s     *Session
	timer *time.Timer
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
func (x *Slots) Run(ctx context.Context, work func(ctx context.Context, l *Lease) error, opts ...AcquireOption) error {
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
	x.mu.Lock()
	for len(x.idle) > 0 {
		last := x.idle[len(x.idle)-1]
		x.idle = x.idle[:len(x.idle)-1]
		if last.timer.Stop(); last.s.d.ErrNow() == nil {
			x.mu.Unlock()
			return last.s, nil
		}
	}
	closed := x.closed
	x.mu.Unlock()
	if closed {
		return nil, errSlotsClosed
	}
	return x.c.Session(ctx, x.node, x.opts...)
}

var errSlotsClosed = errors.New("the slots are closed")

// put keeps a session for the next task.
func (x *Slots) put(s *Session) {
	if s.d.ErrNow() != nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		x.c.d.Run(func() { _ = s.Close(x.c.d.Context()) })
		return
	}
	i := &idleSession{s: s}
	i.timer = time.AfterFunc(maxSlotIdle, func() { x.drop(i) })
	x.idle = append(x.idle, i)
}

// drop closes a session that nobody has used for long.
func (x *Slots) drop(i *idleSession) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for at, other := range x.idle {
		if other == i {
			x.idle = append(x.idle[:at], x.idle[at+1:]...)
			x.c.d.Run(func() { _ = i.s.Close(x.c.d.Context()) })
			return
		}
	}
}

// Close closes the sessions that hold nothing. Others are closed when their leases end. Nothing is
// acquired any more. Closing the client closes all of them too.
func (x *Slots) Close(ctx context.Context) error {
	x.mu.Lock()
	idle := x.idle
	x.idle, x.closed = nil, true
	x.mu.Unlock()
	failed := make(chan error, len(idle))
	for _, i := range idle {
		i.timer.Stop()
		go func() { failed <- i.s.Close(ctx) }()
	}
	var err error
	for range idle {
		err = errors.Join(err, <-failed)
	}
	return err
}
