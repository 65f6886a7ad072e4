package client_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
)

// TestRetryable: only what was not applied may be called again, whatever else the error has.
func TestRetryable(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{client.ErrUnavailable, true},
		{fmt.Errorf("acquire %q: %w", "x", client.ErrOverloaded), true},
		{fmt.Errorf("%w (last: %w)", context.Canceled, client.ErrUnavailable), true},
		{fmt.Errorf("%w: connection refused", client.ErrUnreachable), true},
		{fmt.Errorf("%w (last: %w)", client.ErrOutcomeUnknown, client.ErrUnavailable), false},
		{client.ErrPreconditionFailed, false},
		{client.ErrNotAcquired, false},
		{client.ErrSessionExpired, false},
		{context.Canceled, false},
	} {
		if got := client.Retryable(x.err); got != x.want {
			t.Errorf("Retryable(%v) = %t", x.err, got)
		}
	}
}
