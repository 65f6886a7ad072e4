package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// TestTimeoutCodes: exit code 5 says that no instance could be reached, or none can serve. What an
// instance was asked and did not answer may have been done, and has another code.
func TestTimeoutCodes(t *testing.T) {
	reached, alone := &invocation{conn: new(client.Client), timeout: time.Second}, &invocation{timeout: time.Second}
	interrupted := func(inv *invocation) error {
		return fmt.Errorf("create semaphore: %w: %w", context.DeadlineExceeded, &timeoutError{inv})
	}
	refused := protocol.Errorf(protocol.StatusUnavailable, "the shard has no leader")
	for _, x := range []struct {
		err  error
		code int
		hint string
	}{
		{interrupted(alone), 5, "Is an instance running"},
		{fmt.Errorf("%w: connection refused", errUnreachable), 5, "Is an instance running"},
		{interrupted(reached), 1, "--timeout gives more time"},
		{fmt.Errorf("%w (last: %w)", interrupted(reached), refused), 1, "--timeout gives more time"},
		{fmt.Errorf("%w: %w", client.ErrOutcomeUnknown, interrupted(reached)), 1, "It may have taken effect"},
		{fmt.Errorf("%w: %w", client.ErrOutcomeUnknown, refused), 1, "It may have taken effect"},
		{refused, 5, "signalbox cluster health"},
	} {
		a := newApp(t.Context(), nil, io.Discard, io.Discard)
		if code := a.exit(x.err); code != x.code || !strings.Contains(a.hint(x.err, code), x.hint) {
			t.Errorf("%v: exit code %d with the hint %q, want %d with %q", x.err, code, a.hint(x.err, code), x.code, x.hint)
		}
	}
}

// TestTimeoutAfterConnecting: the SDK's error of a call whose time ended has what the exit code
// follows from.
func TestTimeoutAfterConnecting(t *testing.T) {
	srv := servertest.Start(t, servertest.RealTime())
	inv := &invocation{app: &app{}, node: "/default", ttl: time.Minute, timeout: time.Second}
	inv.cfg.Endpoints = []string{srv.Addr()}
	ctx, end := context.WithCancelCause(context.Background())
	inv.ctx, inv.longCtx = ctx, context.Background()
	defer inv.disconnect()
	n, err := inv.openNode()
	if err != nil {
		t.Fatal(err)
	}
	srv.Unreachable()
	defer srv.Reachable()
	end(&timeoutError{inv})
	_, err = n.Describe(ctx, "slots")
	var te *timeoutError
	if !errors.As(err, &te) || inv.code(err) != exitError || !strings.Contains(err.Error(), "an instance was reached") {
		t.Errorf("exit code %d of %v", inv.code(err), err)
	}
}
