package bench

import (
	"context"
	"slices"
	"sync"
	"time"
)

// stallLoad is a load whose longest calls count: how long callers wait while a cluster changes.
type stallLoad struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	now   callStats
	err   error       // of the first call that failed; it stays
	began []time.Time // of each writer's last answered write
}

type callStats struct {
	writes, slow int // slow: longer than stallThreshold
	write, read  time.Duration
	took         []time.Duration // by each write
}

// p99 is the time that 99 of 100 writes took at most.
func (s callStats) p99() time.Duration {
	if len(s.took) == 0 {
		return 0
	}
	slices.Sort(s.took)
	return s.took[len(s.took)*99/100]
}

func (s callStats) and(o callStats) callStats {
	return callStats{s.writes + o.writes, s.slow + o.slow, max(s.write, o.write), max(s.read, o.read), append(s.took, o.took...)}
}

// startStallLoad makes a load with so many writers, and the context that it runs under.
func startStallLoad(ctx context.Context, writers int) (*stallLoad, context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	return &stallLoad{cancel: cancel, began: make([]time.Time, writers)}, ctx
}

// writer and reader call fn again and again until ctx ends or a call fails, so often, or one call
// after the other if calls take longer.
func (l *stallLoad) writer(ctx context.Context, i int, every time.Duration, fn func(n int) error) {
	l.run(ctx, every, fn, func(began time.Time, took time.Duration) {
		l.began[i] = began
		l.now.writes++
		l.now.write = max(l.now.write, took)
		l.now.took = append(l.now.took, took)
		if took > stallThreshold*time.Millisecond {
			l.now.slow++
		}
	})
}

func (l *stallLoad) reader(ctx context.Context, every time.Duration, fn func(n int) error) {
	l.run(ctx, every, fn, func(_ time.Time, took time.Duration) { l.now.read = max(l.now.read, took) })
}

func (l *stallLoad) run(
	ctx context.Context, every time.Duration, fn func(n int) error, note func(began time.Time, took time.Duration),
) {
	l.wg.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			began := time.Now()
			err := fn(n)
			ended := time.Now()
			took := ended.Sub(began)
			l.mu.Lock()
			switch {
			case err == nil:
				note(began, took)
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

// take is what there was since the last call, or why a call has failed.
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
