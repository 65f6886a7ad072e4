package discovery

import (
	"context"
	"errors"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/internal/access"
)

// Serve registers a member in a service and keeps it registered until ctx ends. Then the member
// drains, for the grace of DrainGrace; it leaves; and Serve returns ctx's error. So a program that
// ends ctx at SIGTERM, and goes on answering until Serve has returned, fails no call of those that
// watch. It waits up to 2 s for the answer, so that nobody is sent to a program that has ended.
//
// A member excludes nobody, so the program can go on working whatever becomes of its registration.
// If the session is lost, or an operator takes the membership away, Serve registers again with
// another session, for as long as it takes; meanwhile watchers may see the member leave. Each loss
// is logged as a warning by the client's Logger, and reported to OnRegistration. What must run once
// at a time needs a lock or an election instead.
//
// While the cluster is away, Serve waits for it: with a client of client.New, a program starts all
// the same. Until the member is registered for the first time, a refusal ends Serve that another try
// would get again: what is out of range, a node that does not exist, credentials, a right, another
// cluster, a name that is in use otherwise. After that only the end of ctx does, and ErrClientClosed.
func Serve(ctx context.Context, c *client.Client, node, service string, m Member, opts ...Option) error {
	k := &keeper{ended: ctx.Err, service: service, o: optionsOf(opts), present: newPresent(m)}
	if err := k.o.validate(m); err != nil {
		return err
	}
	for pause := retryMin; ; pause = min(2*pause, retryMax) {
		before := k.registrations
		err := c.Supervise(ctx, node, k.serve, k.o.session...)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case k.registrations == 0 && !passes(err), errors.Is(err, client.ErrClientClosed):
			return err
		case k.registrations > before:
			pause = retryMin
		}
		access.Client(c).Logger.Warn("service member is not registered, registering again",
			"node", node, "service", service, "error", err, "wait", pause)
		if _, reported := errors.AsType[lost](err); !reported {
			k.notify(nil, err)
		}
		sleep(ctx, pause)
	}
}

// passes reports whether time may mend what kept a member from its first registration.
func passes(err error) bool {
	return client.Retryable(err) || errors.Is(err, client.ErrUnreachable) || errors.Is(err, client.ErrOutcomeUnknown) ||
		errors.Is(err, client.ErrAborted) || errors.Is(err, client.ErrLeaseLost)
}

// keeper is one Serve.
type keeper struct {
	ended   func() error // of Serve's context: that of a session may end a moment later
	service string
	o       options
	present *present

	registrations int // so far
}

func (k *keeper) notify(r *Registration, err error) {
	if k.o.notify != nil {
		k.o.notify(r, err)
	}
}

// serve is the member with one session.
func (k *keeper) serve(ctx context.Context, s *client.Session) error {
	var acquire []client.AcquireOption
	if k.registrations == 0 && k.o.first != nil {
		acquire = k.o.first(s)
	}
	r, err := register(ctx, s, k.service, k.present, k.o, acquire)
	if err != nil {
		return err
	}
	defer r.goroutines.Wait() // the registration is over by then
	k.registrations++
	k.notify(r, nil)
	select {
	case <-r.Done():
	case <-ctx.Done():
	}
	if k.ended() != nil && s.Err() == nil { // the registration may have ended too: that is no loss to speak of
		_ = r.Drain(context.WithoutCancel(ctx), k.o.grace) // what is left ends with the session
		return nil
	}
	if err = r.lease.Lost(); err == nil {
		err = client.ErrReleased // through its session
	}
	k.notify(nil, err)
	return lost{err}
}

// lost is the end of a registration, which has been reported.
type lost struct{ error }

func (l lost) Unwrap() error { return l.error }
