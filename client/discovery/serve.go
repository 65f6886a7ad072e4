// Package discovery keeps a program registered as a member of a service while it runs.
//
//	err := discovery.Serve(ctx, c, "/billing", "api", discovery.Data("10.0.0.1:80"))
//
// Package client has what is below: [client.Service] registers for the life of one session, and
// lists and watches the members.
package discovery

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/internal/rpc"
)

// Member is what others see of a member of a service. Data is one.
type Member interface {
	encode() ([]byte, error)
}

// Data is a form of the program's own, such as host:port; at most 1 MiB.
type Data []byte

func (d Data) encode() ([]byte, error) { return d, nil }

// Option is an option of Serve.
type Option func(*options)

type options struct {
	session []client.SessionOption
	first   func(s *client.Session) []client.AcquireOption
	notify  func(r *Registration, err error)
}

// WithSession gives the options of the sessions that hold the membership.
func WithSession(opts ...client.SessionOption) Option {
	return func(o *options) { o.session = append(o.session, opts...) }
}

// WithFirst has f called with the session that is to register first. The options that it returns,
// such as client.Wait, are for that registration alone: later ones wait for as long as it takes.
func WithFirst(f func(s *client.Session) []client.AcquireOption) Option {
	return func(o *options) { o.first = f }
}

// WithNotify has f called whenever the member is registered, and, with a nil registration and the
// reason, when it is not registered any more and when registering again was refused. Nothing
// registers while f runs.
func WithNotify(f func(r *Registration, err error)) Option {
	return func(o *options) { o.notify = f }
}

// Pauses before it registers again where nothing but a person, or time, may mend the reason. A
// session that was lost is replaced sooner: see client.Client.Supervise.
const (
	retryMin = time.Second
	retryMax = 30 * time.Second
)

// Serve registers a member in a service and keeps it registered until ctx ends. Then the member
// leaves, and Serve returns ctx's error. It waits up to 2 s for the answer, so that nobody is sent
// to a program that has ended.
//
// A member excludes nobody, so the program can go on working whatever becomes of its registration.
// If the session is lost, or an operator takes the membership away, Serve registers again with
// another session, for as long as it takes; meanwhile watchers may see the member leave. Each loss
// is logged as a warning by the client's Logger, and reported to WithNotify. What must run once at
// a time needs a lock or an election instead.
//
// Until the member is registered for the first time, an error ends Serve: those of Client.Session
// and Service.Register. After that only the end of ctx does, and ErrClientClosed.
func Serve(ctx context.Context, c *client.Client, node, service string, m Member, opts ...Option) error {
	k := &keeper{service: service}
	for _, f := range opts {
		f(&k.o)
	}
	data, err := m.encode()
	if err != nil {
		return err
	}
	k.data = data
	for pause := retryMin; ; pause = min(2*pause, retryMax) {
		before := k.registrations
		err := c.Supervise(ctx, node, k.serve, k.o.session...)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case k.registrations == 0, errors.Is(err, client.ErrClientClosed):
			return err
		case k.registrations > before:
			pause = retryMin
		}
		rpc.Logger(c).Warn("service member is not registered, registering again",
			"node", node, "service", service, "error", err, "wait", pause)
		if _, reported := errors.AsType[lost](err); !reported {
			k.notify(nil, err)
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// keeper is one Serve.
type keeper struct {
	service string
	o       options

	registrations int // so far

	mu   sync.Mutex
	data []byte // of the next registration
}

func (k *keeper) notify(r *Registration, err error) {
	if k.o.notify != nil {
		k.o.notify(r, err)
	}
}

// serve is the member with one session.
func (k *keeper) serve(ctx context.Context, s *client.Session) error {
	var opts []client.AcquireOption
	if k.registrations == 0 && k.o.first != nil {
		opts = k.o.first(s)
	}
	k.mu.Lock()
	data := k.data
	k.mu.Unlock()
	r, err := s.Service(k.service).Register(ctx, data, opts...)
	if err != nil {
		return err
	}
	k.registrations++
	k.notify(&Registration{k: k, lease: r.Lease}, nil)
	held := r.Lease.Context()
	select {
	case <-held.Done():
	case <-ctx.Done():
		if s.Err() == nil {
			return nil // it leaves
		}
	}
	if err = r.Lease.Lost(); err == nil {
		err = client.ErrReleased // through its session
	}
	k.notify(nil, err)
	return lost{err}
}

// lost is the end of a registration, which has been reported.
type lost struct{ error }

func (l lost) Unwrap() error { return l.error }

// Registration is one registration of a member that Serve keeps registered. It ends with its
// session, or when it is taken away, and another one follows.
type Registration struct {
	k     *keeper
	lease *client.Lease
}

// Token is the member's token in the list of members. The next registration has a higher one.
func (r *Registration) Token() uint64 { return r.lease.Token() }

// Session is the session that holds the membership.
func (r *Registration) Session() *client.Session { return r.lease.Session() }

// Done is closed when the registration has ended.
func (r *Registration) Done() <-chan struct{} { return r.lease.Context().Done() }

// Err is nil while the member is registered, and after it has left. Otherwise it says why the
// registration was lost: client.ErrLeaseLost, or the session's Err.
func (r *Registration) Err() error { return r.lease.Lost() }

// Update replaces what others see of the member, now and in the registrations that follow. If this
// one has ended it returns Err, and the next one has the new data.
func (r *Registration) Update(ctx context.Context, m Member) error {
	data, err := m.encode()
	if err != nil {
		return err
	}
	r.k.mu.Lock()
	before := r.k.data
	r.k.data = data
	r.k.mu.Unlock()
	err = r.lease.UpdateData(ctx, data)
	if errors.Is(err, client.BadRequest) { // the next registration would be refused as well
		r.k.mu.Lock()
		r.k.data = before
		r.k.mu.Unlock()
	}
	return err
}
