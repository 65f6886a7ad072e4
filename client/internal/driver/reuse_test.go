package driver_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

// TestRecordsAreReused: the records of calls are used again at once, also after calls that were given
// up and releases that go on in the background. Each call ends once, with a result of its own.
func TestRecordsAreReused(t *testing.T) {
	s := instant(t)
	// A record with two owners loses a call, and no context ends that.
	watchdog := time.AfterFunc(2*time.Minute, func() { panic("a call has not ended") })
	defer watchdog.Stop()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	var mu sync.Mutex
	granted := map[uint64]string{}
	// use has a lease of a name if ctx allows it.
	use := func(ctx context.Context, name string) (release func(context.Context) error) {
		l, err := acquire(ctx, s, name)
		if err != nil {
			if ctx != over || !errors.Is(err, context.Canceled) {
				t.Errorf("acquire of %s: %v", name, err)
			}
			return func(context.Context) error { return nil }
		}
		mu.Lock()
		defer mu.Unlock()
		if other := granted[l.Token]; l.Token == 0 || other != "" {
			t.Errorf("%s is granted with token %d, which %q has", name, l.Token, other)
			return func(context.Context) error { return nil }
		}
		granted[l.Token] = name
		return func(ctx context.Context) error { return l.Release(ctx).Err }
	}
	var callers sync.WaitGroup
	for caller := range 4 {
		callers.Go(func() {
			for range 50 {
				var releases []func(context.Context) error
				for i := range 8 {
					name := fmt.Sprint("name-", caller, "-", i)
					if release := use(over, name); release(t.Context()) != nil {
						t.Errorf("%s was not released", name)
					}
					releases = append(releases, use(t.Context(), name))
				}
				for i, release := range releases {
					ctx := t.Context()
					if i < len(releases)/2 {
						ctx = over // the release goes on
					}
					if err := release(ctx); err != nil && (ctx != over || !errors.Is(err, context.Canceled)) {
						t.Errorf("release: %v", err)
					}
				}
				if t.Failed() {
					return
				}
			}
		})
	}
	callers.Wait()
}
