// How does this project lock, read, watch and register?

package loadgen

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Signalbox is this project's server as a target, through its SDK.
type Signalbox struct {
	// Client configures the connections. Each connection is a client of its own.
	Client client.Config

	// Node is the path of the coordination node; default /default.
	Node string

	// Timeout of the sessions; default 10 s.
	Timeout time.Duration

	// SessionEach: each connection is for one session, which client.OpenSession starts
	// together with it.
	SessionEach bool
}

// Name returns the name and the endpoints, for people.
func (t *Signalbox) Name() string { return "signalbox at " + strings.Join(t.Client.Endpoints, ",") }

func (t *Signalbox) node() string { return cmp.Or(t.Node, "/default") }

// Open returns a new client.
func (t *Signalbox) Open(ctx context.Context) (Conn, error) {
	if t.SessionEach {
		s, err := client.OpenSession(ctx, t.Client, t.node(), t.sessionOptions()...)
		if err != nil {
			return nil, err
		}
		c := &signalboxConn{t: t, c: s.Client()}
		c.first.Store(s)
		return c, nil
	}
	c, err := client.Open(ctx, t.Client)
	if err != nil {
		return nil, err
	}
	return &signalboxConn{t: t, c: c}, nil
}

func (t *Signalbox) sessionOptions() []client.SessionOption {
	opts := []client.SessionOption{client.Description("signalbox load")}
	if t.Timeout > 0 {
		opts = append(opts, client.Timeout(t.Timeout))
	}
	return opts
}

// Code is the server's answer, or the outcome of the call at this end.
func (t *Signalbox) Code(err error) string {
	switch {
	case errors.Is(err, client.ErrNotAcquired):
		return "not acquired"
	case errors.Is(err, client.ErrSessionExpired):
		return "session expired"
	case errors.Is(err, client.ErrSessionClosed), errors.Is(err, client.ErrClientClosed):
		return "closed"
	case errors.Is(err, client.ErrLeaseLost):
		return "lease lost"
	case errors.Is(err, client.ErrAlreadyHeld):
		return "already held"
	}
	if s := protocol.StatusOf(err); s != protocol.StatusInternal {
		return s.String()
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return "timeout"
	}
	return "other"
}

type signalboxConn struct {
	t     *Signalbox
	c     *client.Client
	first atomic.Pointer[client.Session] // came with the connection, and was not given out yet; nil: none
}

func (c *signalboxConn) Session(ctx context.Context) (Session, error) {
	s := c.first.Swap(nil)
	if s == nil {
		var err error
		if s, err = c.c.Session(ctx, c.t.node(), c.t.sessionOptions()...); err != nil {
			return nil, err
		}
	}
	return &signalboxSession{signalboxObserver{s.Node()}, s}, nil
}

// Observer implements CanObserve.
func (c *signalboxConn) Observer(ctx context.Context) (Session, error) {
	n, err := c.c.Node(ctx, c.t.node())
	if err != nil {
		return nil, err
	}
	return signalboxObserver{n}, nil
}

func (c *signalboxConn) Close() error { return c.c.Close() }

// signalboxObserver reads and watches, which needs no session.
type signalboxObserver struct{ n *client.Node }

func (o signalboxObserver) Close(context.Context) error { return nil }

type signalboxSession struct {
	signalboxObserver
	s *client.Session
}

func (s *signalboxSession) Close(ctx context.Context) error { return s.s.Close(ctx) }

func (s *signalboxSession) Alive() bool { return s.s.Err() == nil }

func (s *signalboxSession) Acquirer(h AcquireOptions) Acquirer {
	opts := []client.AcquireOption{client.Exclusive()}
	if h.Limit > 0 {
		opts = []client.AcquireOption{client.CreateLimit(h.Limit)}
	}
	if len(h.Data) > 0 {
		opts = append(opts, client.Data(h.Data))
	}
	return AcquirerFunc(func(ctx context.Context, name string) (Lease, error) {
		l, err := s.s.Acquire(ctx, name, opts...)
		if err != nil {
			return nil, err
		}
		return l, nil
	})
}

func (s *signalboxSession) Create(ctx context.Context, name string, data []byte) error {
	return s.s.Create(ctx, name, client.Max, data)
}

func (s *signalboxSession) Delete(ctx context.Context, name string) error {
	err := s.s.Delete(ctx, name, true)
	if errors.Is(err, client.ErrNotFound) {
		return nil
	}
	return err
}

func (s *signalboxSession) Write(ctx context.Context, name string, data []byte) error {
	_, err := s.s.Update(ctx, name, data)
	return err
}

func (o signalboxObserver) Reader(strict bool) Reader {
	c := client.Relaxed
	if strict {
		c = client.Strict
	}
	opts := []client.ReadOption{client.ReadConsistency(c)}
	return ReaderFunc(func(ctx context.Context, name string) error {
		_, err := o.n.Describe(ctx, name, opts...)
		return err
	})
}

func (o signalboxObserver) Watch(ctx context.Context, name string, notify func(data []byte)) error {
	for ev, err := range o.n.Watch(ctx, name) {
		if err != nil {
			return err
		}
		notifyData(&ev, notify)
	}
	return nil
}

func (o signalboxObserver) Subscribe(ctx context.Context, name string, notify func(data []byte), over func(error)) {
	o.n.WatchFunc(ctx, name, func(ev client.Event, err error) {
		if err != nil {
			over(err)
			return
		}
		notifyData(&ev, notify)
	})
}

func notifyData(ev *client.Event, notify func(data []byte)) {
	if ev.Kind == client.EventChanged && (ev.Created || ev.DataChanged) {
		notify(ev.Data)
	}
}

func (s *signalboxSession) Register(ctx context.Context, service string, data []byte) (Lease, error) {
	l, err := s.s.Service(service).Register(ctx, data)
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (o signalboxObserver) Members(
	ctx context.Context, service string, ready func(), notify func(joined bool, data []byte),
) error {
	for ev, err := range o.n.Service(service).Watch(ctx) {
		if err != nil {
			return err
		}
		switch ev.Kind {
		case client.MemberSnapshot:
			for _, m := range ev.Members {
				notify(true, m.Data)
			}
			ready()
		case client.MemberAdded:
			notify(true, ev.Member.Data)
		case client.MemberRemoved:
			notify(false, ev.Member.Data)
		}
	}
	return nil
}
