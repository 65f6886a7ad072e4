package client

import (
	"context"
	"errors"
	"time"
)

// Back-off between the sessions of Supervise.
const (
	superviseBase = 100 * time.Millisecond
	superviseMax  = 10 * time.Second
)

// Supervise runs a service that outlives its sessions. It starts a session on a node and calls
// serve with it; when the session expires, it starts another session and calls serve again. Each
// time, serve acquires and registers what the service needs, works until its context ends, and
// returns.
//
//	err := c.Supervise(ctx, "/billing", func(ctx context.Context, s *client.Session) error {
//		if _, err := s.Service("api").Register(ctx, address); err != nil {
//			return err
//		}
//		<-ctx.Done()
//		return nil
//	})
//
// The context of serve ends with ctx, and with the session, whose end is then its cause. Only serve
// acquires anything, and the next session starts after serve has returned, so no work under a lost
// lease goes on. Each expiry is logged as a warning and reported to OnStopped, which may be among
// the options. The pause before the next session is random, up to 100 ms; the bound doubles up to
// 10 s while sessions expire before their timeout has passed.
//
// Supervise closes the session and returns when serve has returned,
//   - with serve's result while the session lives: nil ends the work, an error is not retried;
//   - with ctx's error;
//   - with ErrTakenOver, ErrClientClosed, or the refusal of a session, such as NotFound.
func (c *Client) Supervise(ctx context.Context, node string, serve func(ctx context.Context, s *Session) error, opts ...SessionOption) error {
	retry := backoff{base: superviseBase, max: superviseMax}
	for {
		s, err := c.Session(ctx, node, opts...)
		if err != nil {
			return err
		}
		began := c.clock.now()
		err = serveSession(ctx, s, serve)
		ended := s.Err() // before it is closed
		_ = s.Close(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case ended == nil, errors.Is(ended, ErrSessionClosed):
			return err
		case errors.Is(ended, ErrTakenOver), errors.Is(ended, ErrClientClosed):
			return ended
		}
		if c.clock.now()-began >= s.Timeout() {
			retry.failures = 0
		}
		wait := retry.next()
		c.cfg.Logger.Warn("session lost, starting a new one", "node", node, "session", s.ID(), "error", ended, "wait", wait)
		if !sleep(ctx, c.ctx.Done(), wait) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return ErrClientClosed
		}
	}
}

// serveSession calls serve with a context that ends with the session, at once, and with ctx.
func serveSession(ctx context.Context, s *Session, serve func(context.Context, *Session) error) error {
	both, cancel := context.WithCancelCause(valued{s.ctx, ctx})
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	defer stop()
	return serve(both, s)
}

// valued is a context with the values of another one beside its own.
type valued struct {
	context.Context
	values context.Context
}

// Value implements context.Context.
func (v valued) Value(key any) any {
	if x := v.Context.Value(key); x != nil {
		return x
	}
	return v.values.Value(key)
}
