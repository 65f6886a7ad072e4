package gateway

import (
	"context"
	"errors"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/ratelimit"
)

// resourceKey names a resource of a rate limit by the path of its node and its own.
type resourceKey struct{ node, resource string }

// limiterUse is a limiter with the session that it is of.
type limiterUse struct {
	*ratelimit.Limiter
	endSession func()
}

// Limiters are a gateway's part in rate limits, of one connection to the cluster: a session for
// each node, and a limiter for each resource. All callers with one token share them.
type Limiters struct {
	sessions Shared[string, *client.Session]
	limiters Shared[resourceKey, limiterUse]
}

// stopTimeout bounds how long the end of a shared session or limiter waits for the cluster.
const stopTimeout = 10 * time.Second

// newLimiters makes those of a client, which is set before the first use.
func newLimiters(ctx context.Context, purpose string, c **client.Client) *Limiters {
	t := new(Limiters)
	t.sessions = Shared[string, *client.Session]{
		Context: ctx,
		Open: func(ctx context.Context, node string) (*client.Session, error) {
			return (*c).Session(ctx, node, client.Description(purpose))
		},
		Ended: func(s *client.Session) bool { return s.Err() != nil },
		Close: func(s *client.Session) {
			ctx, cancel := context.WithTimeout(ctx, stopTimeout)
			defer cancel()
			_ = s.Close(ctx) // if it cannot be stopped, it expires
		},
	}
	t.limiters = Shared[resourceKey, limiterUse]{
		Context: ctx,
		Open: func(ctx context.Context, key resourceKey) (limiterUse, error) {
			s, release, err := t.sessions.Use(ctx, key.node)
			if err != nil {
				return limiterUse{}, err
			}
			l, err := ratelimit.JoinSession(ctx, s, key.resource)
			if err != nil {
				release()
				return limiterUse{}, ResourceError{Err: err}
			}
			return limiterUse{l, release}, nil
		},
		Ended: func(l limiterUse) bool { return l.Context().Err() != nil },
		Close: func(l limiterUse) {
			ctx, cancel := context.WithTimeout(ctx, stopTimeout)
			defer cancel()
			_ = l.Close(ctx) // if the lease cannot be given back, it ends
			l.endSession()
		},
	}
	return t
}

// Session gives the session of a node. The caller calls release when it does not use it any more.
func (t *Limiters) Session(ctx context.Context, node string) (s *client.Session, release func(), err error) {
	return t.sessions.Use(ctx, node)
}

// ResourceError is an error about a resource of a rate limit: what is missing is not the node.
type ResourceError struct{ Err error }

// Error is the cluster's sentence.
func (e ResourceError) Error() string { return e.Err.Error() }

// Unwrap is the cluster's error.
func (e ResourceError) Unwrap() error { return e.Err }

// Do calls f with the limiter of a resource, and again with another one if that ended with its
// session. Errors about the resource are ResourceErrors.
func (t *Limiters) Do(ctx context.Context, node, resource string, f func(*ratelimit.Limiter) error) error {
	for {
		l, release, err := t.limiters.Use(ctx, resourceKey{node, resource})
		if err != nil {
			return err
		}
		err = f(l.Limiter)
		ended := l.Context().Err() != nil
		release()
		switch {
		case err == nil:
			return nil
		case ended && ctx.Err() == nil && !errors.Is(err, client.ErrClientClosed):
			continue
		}
		return ResourceError{Err: err}
	}
}
