package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// stopWait is longer than a test: what returns before it is not held up.
const stopWait = 30 * time.Minute

// waitsToStop has an instance wait until it is not needed. The channel is closed when it returns.
func waitsToStop(ctx context.Context, s *instance) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.AwaitNotNeeded(ctx)
	}()
	return done
}

func over(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// TestStopOfTwoAtOnce: of three instances that ask at the same moment one may go. The next one
// may when the first is back, and the third after the wait that its context ends.
func TestStopOfTwoAtOnce(t *testing.T) {
	form.SkipUntil(t, form.Full, "instances stop in turn")
	t.Parallel()
	k := newClusterKit(t, 3)
	k.change = func(_ string, c *server.Config) { c.StopWait = stopWait }
	k.startAll("a", "b", "c")
	k.await("three instances with three votes", balanced(3, 3, 3))
	names := []string{"a", "b", "c"}
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	waits := map[string]<-chan struct{}{}
	for _, n := range names {
		waits[n] = waitsToStop(ctx, k.server(n))
	}
	goes := ""
	await.True(t, "one of three to go", func() bool {
		for _, n := range names {
			if over(waits[n]) {
				goes = n
			}
		}
		return goes != ""
	})
	first := k.server(goes)
	k.await("the first as one that goes", func(s *meta.State) bool { // the leader answers before others apply it
		return instanceNamed(s, goes).Target.Variant == meta.Offline
	})
	delete(waits, goes)
	if err := shutdown(first); err != nil {
		t.Error(err)
	}
	k.mu.Lock()
	delete(k.run, goes)
	k.mu.Unlock()
	k.await("the first one Offline", func(s *meta.State) bool {
		return instanceNamed(s, goes).Current.Variant == meta.Offline
	})
	for n, done := range waits {
		if over(done) {
			t.Errorf("%s and %s go, of three", goes, n)
		}
		if err := k.server(n).Ready(); err != nil {
			t.Errorf("%s waits, and does not serve: %v", n, err)
		}
	}
	k.must(goes)
	second := ""
	await.True(t, "the second to go once the first is back", func() bool {
		for n, done := range waits {
			if over(done) {
				second = n
			}
		}
		return second != ""
	})
	delete(waits, second)
	k.await("the second as one that goes", func(s *meta.State) bool {
		return instanceNamed(s, second).Target.Variant == meta.Offline
	})
	for n, done := range waits {
		if over(done) {
			t.Errorf("%s and %s go, of three", second, n)
		}
		giveUp()
		await.True(t, "the end of a wait that is given up", func() bool { return over(done) })
	}
}

// TestStopWaitOfFew: in a cluster of one or two voters a stop does not wait for what cannot come.
func TestStopWaitOfFew(t *testing.T) {
	form.SkipUntil(t, form.Full, "instances stop in turn")
	t.Parallel()
	for _, names := range [][]string{{"a"}, {"a", "b"}} {
		t.Run(fmt.Sprint(len(names)), func(t *testing.T) {
			k := newClusterKit(t, len(names))
			k.change = func(_ string, c *server.Config) { c.StopWait = stopWait }
			if k.must("a"); len(names) > 1 {
				k.must("b", "a")
			}
			k.await("all instances Online", func(s *meta.State) bool {
				for _, n := range names {
					if i := instanceNamed(s, n); i.Current != i.Target || i.Current.Variant != meta.Online {
						return false
					}
				}
				return true
			})
			done := waitsToStop(t.Context(), k.server("a"))
			await.True(t, "the end of the wait", func() bool { return over(done) })
			if i := instanceNamed(k.server("a").Meta.State(), "a"); i.Target.Variant != meta.Online {
				t.Errorf("of %d: it is to be %v before its stop begins", len(names), i.Target)
			}
		})
	}
}
