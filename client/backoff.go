package client

import (
	"context"
	"math/rand/v2"
	"time"
)

// Back-off of reconnects and of requests that are asked again.
const (
	reconnectBase   = 50 * time.Millisecond
	reconnectMax    = 5 * time.Second
	minConnLifetime = time.Second // a connection that was up for longer was no failure
	retryBase       = 10 * time.Millisecond
	retryMax        = time.Second
)

// backoff is full jitter: each wait is uniform between 0 and a bound that doubles.
type backoff struct {
	base, max time.Duration
	failures  int
}

func (b *backoff) next() time.Duration {
	bound := b.max
	if b.failures < 16 {
		bound = min(b.max, b.base<<b.failures)
	}
	b.failures++
	return rand.N(bound + 1)
}

// requestRetry is the back-off of a request that no shard served yet.
type requestRetry struct {
	backoff
	// moved is closed when the map or a leader has changed since the present try began; nil for the
	// first try.
	moved   <-chan struct{}
	skipped bool // the last try did not wait
}

func newRequestRetry() requestRetry {
	return requestRetry{backoff: backoff{base: retryBase, max: retryMax}}
}

// wake sends to a channel of capacity 1 that wakes a goroutine, unless a value waits there.
func wake(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// sleep waits for d, or until ctx or stop ends; it says whether it waited to the end. A nil stop
// never ends.
func sleep(ctx context.Context, stop <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	case <-stop:
		return false
	}
}
