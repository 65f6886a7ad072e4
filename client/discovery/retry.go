package discovery

import (
	"context"
	"errors"
	"time"

	"github.com/signalbox-dev/signalbox/client"
)

// Pauses where nothing but a person, or time, may mend the reason: a right, or a node, is missing.
const (
	retryMin = time.Second
	retryMax = 30 * time.Second
)

// retry calls f until ctx ends, or the client is closed. It pauses in between, longer each time
// until f makes progress.
func retry(ctx context.Context, f func() (progress bool, err error)) {
	for pause := retryMin; ; pause = min(2*pause, retryMax) {
		progress, err := f()
		if ctx.Err() != nil || errors.Is(err, client.ErrClientClosed) {
			return
		}
		if progress {
			pause = retryMin
		}
		sleep(ctx, pause)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
