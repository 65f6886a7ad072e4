package chaos

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/ratelimit"
	"github.com/signalbox-dev/signalbox/server/servertest/binary"
)

// TestLimitParticipants: many sessions share a limit with ten leaves, and call ten times a second
// each. The log has what they cost the server, first with all calls admitted, then with half of
// them denied.
func TestLimitParticipants(t *testing.T) {
	size := sizeOf(t, 500, 10_000)
	watched := 3 * time.Second
	if size == 10_000 {
		watched = 30 * time.Second
	}
	in := startInstanceWith(t, binary.Signalbox(t))
	in.awaitAnswer()
	clients := openClients(t, max(1, size/100), in.listen)
	operator, err := clients[0].Session(t.Context(), client.DefaultNode)
	if err != nil {
		t.Fatal(err)
	}
	leaf := func(i int) string { return fmt.Sprintf("api/tenant-%d", i%10) }
	for i := -1; i < 10; i++ {
		path, config := leaf(i+10), ratelimit.Config{}
		if i < 0 {
			path, config = "api", ratelimit.Config{Rate: ratelimit.PerSecond(20 * float64(size))}
		}
		if _, err := ratelimit.Create(t.Context(), operator, path, config); err != nil {
			t.Fatal(err)
		}
	}
	limiters := make([]*ratelimit.Limiter, size)
	began := now()
	inParallel(t, size, func(ctx context.Context, i int) error {
		s, err := clients[i%len(clients)].Session(ctx, client.DefaultNode, client.Timeout(time.Minute))
		if err == nil {
			limiters[i], err = ratelimit.JoinSession(ctx, s, leaf(i))
		}
		return err
	})
	t.Logf("%d sessions take part after %v", size, now()-began)
	for _, x := range []struct {
		what string
		rate float64
	}{{"all calls admitted", 20 * float64(size)}, {"half of the calls denied", 5 * float64(size)}} {
		if _, err := ratelimit.Alter(t.Context(), operator, "api", 0, ratelimit.Config{Rate: ratelimit.PerSecond(x.rate)}); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan [2]int)
		go func() { ended <- callAll(ctx, limiters) }()
		time.Sleep(watched / 3) // until their shares have settled
		spent, refreshes, from := cpuOf(in.cmd.Process.Pid), in.metric("signalbox_limit_refreshes_total"), now()
		time.Sleep(watched)
		took := now() - from
		t.Logf("%s: %.3f cores of the server, %.0f refreshes/s", x.what, float64(cpuOf(in.cmd.Process.Pid)-spent)/float64(took),
			(in.metric("signalbox_limit_refreshes_total")-refreshes)/took.Seconds())
		stop()
		calls := <-ended
		t.Logf("%d of %d calls were admitted", calls[0], calls[1])
		if calls[0] == 0 {
			t.Errorf("%s: no call was admitted", x.what)
		}
	}
	inParallel(t, size, func(ctx context.Context, i int) error { return limiters[i].Close(ctx) })
}

// callAll has each limiter called ten times a second until ctx ends. It returns how many calls were
// admitted, and how many were made.
func callAll(ctx context.Context, limiters []*ratelimit.Limiter) (calls [2]int) {
	t := time.NewTicker(10 * time.Millisecond)
	defer t.Stop()
	each := len(limiters)/10 + 1
	for i := 0; ; {
		select {
		case <-ctx.Done():
			return calls
		case <-t.C:
		}
		for range each {
			if limiters[i%len(limiters)].Allow(1) {
				calls[0]++
			}
			calls[1]++
			i++
		}
	}
}

// TestLimitShares: of three sessions that share a limit one joins, stops to call, calls again and
// leaves. Each time the others, or it, get the new share; the log has how long that takes.
func TestLimitShares(t *testing.T) {
	steps := sizeOf(t, 2, 20)
	const rate = 1000
	in := startInstanceWith(t, binary.Signalbox(t))
	in.awaitAnswer()
	var limiters [3]*ratelimit.Limiter
	var sessions [3]*client.Session
	for i, c := range openClients(t, 3, in.listen) {
		var err error
		if sessions[i], err = c.Session(t.Context(), client.DefaultNode, client.Timeout(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ratelimit.Create(t.Context(), sessions[0], "api", ratelimit.Config{Rate: ratelimit.PerSecond(rate)}); err != nil {
		t.Fatal(err)
	}
	open := func(i int) {
		t.Helper()
		var err error
		if limiters[i], err = ratelimit.JoinSession(t.Context(), sessions[i], "api"); err != nil {
			t.Fatal(err)
		}
	}
	call := func(i int) (end func()) { // has its calls wait for units
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		l := limiters[i]
		go func() {
			defer close(done)
			for l.Wait(ctx, 10) == nil {
			}
		}()
		return func() { cancel(); <-done }
	}
	awaitShare := func(what string, i int, part float64) time.Duration {
		t.Helper()
		began := now()
		for limiters[i].Stats().Rate <= 0.94*part*rate {
			if now()-began > waitLimit {
				t.Fatalf("%s: a session has %v of %v", what, limiters[i].Stats().Rate, rate)
			}
			time.Sleep(time.Millisecond)
		}
		return now() - began
	}
	for i := range 2 {
		open(i)
		defer call(i)()
	}
	awaitShare("at first", 0, 0.5)
	var end func()
	took := map[string][]float64{}
	for range steps {
		for _, x := range []struct {
			what  string
			do    func()
			gains int
			part  float64
		}{
			{"a session joins", func() { open(2); end = call(2) }, 2, 1. / 3},
			{"its calls end", func() { end() }, 0, 0.5},
			{"it calls again", func() { end = call(2) }, 2, 1. / 3},
			{"it leaves", func() {
				end()
				if err := limiters[2].Close(t.Context()); err != nil {
					t.Fatal(err)
				}
			}, 0, 0.5},
		} {
			x.do()
			took[x.what] = append(took[x.what], awaitShare(x.what, x.gains, x.part).Seconds()*1e3)
			time.Sleep(200 * time.Millisecond) // its refreshes come at other times
		}
	}
	for what, list := range took {
		t.Logf("%s: the new shares after %.0f ms (p50), %.0f at most", what, middle(list), slices.Max(list))
	}
}
