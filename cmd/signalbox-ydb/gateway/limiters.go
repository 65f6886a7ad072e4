package gateway

import (
	"context"
	"errors"

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

// limiters are the gateway's part in rate limits, of one connection to the cluster: a session for
// each node, and a limiter for each resource. All clients with one token share them.
type limiters struct {
	sessions handles[string, *client.Session]
	limiters handles[resourceKey, limiterUse]
}

func (c *cluster) newLimiters() *limiters {
	t := new(limiters)
	t.sessions = handles[string, *client.Session]{
		ctx: c.g.ctx,
		open: func(ctx context.Context, node string) (*client.Session, error) {
			return c.client.Session(ctx, node, client.Description("rate limits of YDB clients"))
		},
		ended: func(s *client.Session) bool { return s.Err() != nil },
		close: func(s *client.Session) {
			ctx, cancel := context.WithTimeout(c.g.ctx, stopTimeout)
			defer cancel()
			_ = s.Close(ctx) // if it cannot be stopped, it expires
		},
	}
	t.limiters = handles[resourceKey, limiterUse]{
		ctx: c.g.ctx,
		open: func(ctx context.Context, key resourceKey) (limiterUse, error) {
			s, release, err := t.sessions.use(ctx, key.node)
			if err != nil {
				return limiterUse{}, err
			}
			l, err := ratelimit.Open(ctx, s, key.resource)
			if err != nil {
				release()
				return limiterUse{}, resourceError{err}
			}
			return limiterUse{l, release}, nil
		},
		ended: func(l limiterUse) bool { return l.Context().Err() != nil },
		close: func(l limiterUse) {
			ctx, cancel := context.WithTimeout(c.g.ctx, stopTimeout)
			defer cancel()
			_ = l.Close(ctx) // if the lease cannot be given back, it ends
			l.endSession()
		},
	}
	return t
}

// resourceError is an error about a resource: what is missing is not the node.
type resourceError struct{ error }

func (e resourceError) Unwrap() error { return e.error }

// acquire calls f with the limiter of a resource, and again with another one if that ended with its
// session.
func (t *limiters) acquire(ctx context.Context, key resourceKey, f func(*ratelimit.Limiter) error) error {
	for {
		l, release, err := t.limiters.use(ctx, key)
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
		return resourceError{err}
	}
}
