package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/contexts"
	"github.com/signalbox-dev/signalbox/protocol/boottime"
)

// Back-off between the sessions of Supervise.
const (
	superviseBase = 100 * time.Millisecond
	superviseMax  = 10 * time.Second
)

func supervise(
	ctx context.Context, c *Client, node string, serve func(ctx context.Context, s *Session) error, opts []SessionOption,
) error {
	failures := 0
	for {
		s, err := c.Session(ctx, node, opts...)
		if err != nil {
			return err
		}
		began := boottime.Now()
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
		if boottime.Now()-began >= s.Timeout() {
			failures = 0
		}
		wait := rand.N(min(superviseBase<<min(failures, 10), superviseMax))
		failures++
		c.cfg.Logger.Warn("session lost, starting a new one",
			"node", node, "session", s.ID(), "error", ended, "wait", wait)
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		case <-c.d.Context().Done():
			t.Stop()
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

// serveSession calls serve, if the session lives, with a context that ends with the session, at once,
// and with ctx.
func serveSession(ctx context.Context, s *Session, serve func(context.Context, *Session) error) error {
	_, err := contexts.Call(ctx, s, func(ctx context.Context) error { return serve(ctx, s) })
	return err
}
