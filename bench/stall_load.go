// How long does the longest call take while something happens to a cluster?

package bench

import (
	"context"

	"sync"
	"time"
)

// stallLoad is a load whose longest calls count: how long callers wait while a cluster changes.
type stallLoad struct {
	ctx    context.Context // of the calls
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	now   callStats
	err   error       // of the first call that failed; it stays
	began []time.Time // of each writer's last answered write
}

type callStats struct {
	writes  int
	longest time.Duration
	took    []time.Duration // by each write
}

// newStallLoad returns a load with this many writers. Its calls end with ctx.
func newStallLoad(ctx context.Context, writers int) *stallLoad {
	ctx, cancel := context.WithCancel(ctx)
	return &stallLoad{ctx: ctx, cancel: cancel, began: make([]time.Time, writers)}
}

// writer calls fn once every period until the load ends or a call fails; if calls take longer, one
// call after the other.
func (l *stallLoad) writer(i int, every time.Duration, fn func(ctx context.Context, n int) error) {
	ctx := l.ctx
	l.wg.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			began := time.Now()
			err := fn(ctx, n)
			took := time.Since(began)
			l.mu.Lock()
			switch {
			case err == nil:
				l.began[i] = began
				l.now.writes++
				l.now.longest = max(l.now.longest, took)
				l.now.took = append(l.now.took, took)
			case l.err == nil && ctx.Err() == nil:
				l.err = err
			}
			l.mu.Unlock()
			if err != nil {
				return
			}
			if every > took {
				_ = pause(ctx, every-took)
			}
		}
	})
}

// take returns the figures since the last take, or the error of a call that failed.
func (l *stallLoad) take() (callStats, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.now
	l.now = callStats{}
	return s, l.err
}

func (l *stallLoad) end() {
	l.cancel()
	l.wg.Wait()
}
