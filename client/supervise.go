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

func supervise(ctx context.Context, c *Client, node string, serve func(ctx context.Context, s *Session) error, opts []SessionOption) error {
	retry := backoff{base: superviseBase, max: superviseMax}
	for {
		s, err := c.Session(ctx, node, opts...)
		if err != nil {
			return err
		}
		began := c.clock.now()
		err = serveSession(ctx, s, serve)
		ended := s.Err() // before it is closed
		closeSupervised(ctx, s)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(ended, ErrTakenOver), errors.Is(ended, ErrClientClosed):
			return ended
		case ended == nil, errors.Is(ended, ErrSessionClosed):
			return err
		}
		if c.clock.now()-began >= s.Timeout() {
			retry.failures = 0
		}
		wait := retry.next()
		c.cfg.Logger.Warn("session lost, starting a new one",
			"node", node, "session", s.ID(), "error", ended, "wait", wait)
		if !sleep(ctx, c.ctx.Done(), wait) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return ErrClientClosed
		}
	}
}

// closeSupervised ends a session, and waits for the server's answer as long as Client.Close does,
// also if ctx has ended: a program that ends when Supervise returns leaves nothing held.
func closeSupervised(ctx context.Context, s *Session) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sessionStopTimeout)
	defer cancel()
	_ = s.Close(ctx)
}

// serveSession calls serve with a context that ends with the session, at once, and with ctx.
func serveSession(ctx context.Context, s *Session, serve func(context.Context, *Session) error) error {
	both, end := bothContexts(s.ctx, ctx)
	defer end()
	return serve(both, s)
}
