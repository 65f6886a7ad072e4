package recipes

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/internal/access"
	"github.com/signalbox-dev/signalbox/client/internal/driver"
)

// Pool shares the units of one semaphore among the goroutines of any number of processes: all of
// them together run no more tasks at a time than it has units. A session has one entry on a name,
// so each lease has a session of its own. Sessions whose lease was released are used again.
type Pool struct {
	c          *client.Client
	d          *driver.Driver
	node, name string
	opts       []client.SessionOption

	mu     sync.Mutex
	free   []*idleSession // the last one was used last
	closed bool
}

// idleSession is a session that holds nothing.
type idleSession struct {
	*client.Session
	timer *time.Timer // of its end
}

// maxIdle is how long a pool keeps a session that no task uses.
const maxIdle = time.Minute

// NewPool is the pool of the units of the semaphore with this name on a coordination node, with the
// options of its sessions. Acquire units with CreateLimit, or create the semaphore before.
func NewPool(c *client.Client, nodePath, name string, opts ...client.SessionOption) *Pool {
	return &Pool{c: c, d: access.Client(c).Driver, node: nodePath, name: name, opts: opts}
}

// Acquire is Session.Acquire with a session that holds nothing, started if there is none. Its
// errors, and those of Client.Session. The lease's Release makes the session free for another task.
func (x *Pool) Acquire(ctx context.Context, opts ...client.AcquireOption) (*client.Lease, error) {
	return x.acquire(ctx, func(s *client.Session) (*client.Lease, error) { return s.Acquire(ctx, x.name, opts...) })
}

// TryAcquire is Acquire without a wait: client.ErrNotAcquired if too few units are free.
func (x *Pool) TryAcquire(ctx context.Context, opts ...client.AcquireOption) (*client.Lease, error) {
	return x.acquire(ctx, func(s *client.Session) (*client.Lease, error) { return s.TryAcquire(ctx, x.name, opts...) })
}

func (x *Pool) acquire(
	ctx context.Context, acquire func(s *client.Session) (*client.Lease, error),
) (*client.Lease, error) {
	s, err := x.session(ctx)
	if err != nil {
		return nil, err
	}
	l, err := acquire(s)
	x.putAfter(s, l)
	return l, err
}

// Run is Session.Run with a session that holds nothing.
func (x *Pool) Run(
	ctx context.Context, work func(ctx context.Context, l *client.Lease) error, opts ...client.AcquireOption,
) error {
	s, err := x.session(ctx)
	if err != nil {
		return err
	}
	acquired := false
	err = s.Run(ctx, x.name, func(ctx context.Context, l *client.Lease) error {
		acquired = true
		x.putAfter(s, l)
		return work(ctx, l)
	}, opts...)
	if !acquired {
		x.putAfter(s, nil)
	}
	return err
}

// putAfter keeps a session for another task after its lease, or after an acquire that was given up,
// which is undone first.
func (x *Pool) putAfter(s *client.Session, l *client.Lease) {
	put := func() {
		if r := access.Session(s).Session.AwaitName(x.d.Context(), x.name); r.Err == nil {
			x.put(s) // it holds nothing at the server either
		}
	}
	if l == nil {
		x.d.Run(put)
		return
	}
	context.AfterFunc(l.Context(), put)
}

// session is one that holds nothing.
func (x *Pool) session(ctx context.Context) (*client.Session, error) {
	for {
		switch s, err := x.take(); {
		case err != nil:
			return nil, err
		case s == nil:
			return x.c.Session(ctx, x.node, x.opts...)
		case isAlive(s):
			return s, nil
		}
	}
}

// take takes the session that was used last; nil: there is none.
func (x *Pool) take() (*client.Session, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	last := len(x.free) - 1
	switch {
	case x.closed:
		return nil, errPoolClosed
	case last < 0:
		return nil, nil
	}
	s := x.free[last]
	x.free = x.free[:last]
	s.timer.Stop()
	return s.Session, nil
}

var errPoolClosed = errors.New("the pool is closed; make another one")

// put keeps a session for the next task, for a while.
func (x *Pool) put(s *client.Session) {
	if !isAlive(s) {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		x.drop(s)
		return
	}
	idle := &idleSession{Session: s}
	idle.timer = time.AfterFunc(maxIdle, func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if i := slices.Index(x.free, idle); i >= 0 { // nobody took it
			x.free = slices.Delete(x.free, i, i+1)
			x.drop(s)
		}
	})
	x.free = append(x.free, idle)
}

// drop closes a session in the background.
func (x *Pool) drop(s *client.Session) {
	x.d.Run(func() { _ = s.Close(x.d.Context()) })
}

// isAlive reports whether a session lives, by the clock.
func isAlive(s *client.Session) bool { return access.Session(s).Session.ErrNow() == nil }

// Close closes the sessions that hold nothing. Others are closed when their leases end. Nothing is
// acquired any more. Closing the client closes all of them too.
func (x *Pool) Close(ctx context.Context) error {
	x.mu.Lock()
	free := x.free
	x.free, x.closed = nil, true
	x.mu.Unlock()
	failed := make(chan error, len(free))
	for _, s := range free {
		s.timer.Stop()
		go func() { failed <- s.Close(ctx) }()
	}
	var err error
	for range free {
		err = errors.Join(err, <-failed)
	}
	return err
}
