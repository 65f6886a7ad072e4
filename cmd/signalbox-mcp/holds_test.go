package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// kit is an agent without a host, its session, and the session of somebody else.
func kit(t *testing.T, opts ...servertest.Option) (a *agent, own, other *client.Session) {
	t.Helper()
	srv := servertest.Start(t, opts...)
	a, err := (&agents{ctx: t.Context(), list: make(map[string]*agent)}).enter("")
	if err != nil {
		t.Fatal(err)
	}
	return a, session(t, srv.Addr()), session(t, srv.Addr())
}

// hasNotice waits until the agent is notified with words.
func hasNotice(t *testing.T, a *agent, words string) {
	t.Helper()
	await.True(t, words, func() bool { return strings.Contains(strings.Join(a.takeNotices(), "\n"), words) })
}

// TestCancelledGrantIsGivenBack: what was granted to a call that is cancelled is not kept, unless the
// place of its name is: then the next call gets it.
func TestCancelledGrantIsGivenBack(t *testing.T) {
	t.Parallel()
	a, own, other := kit(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, names := range [][]string{{"x"}, {"x", "y"}} {
		_, at, err := a.begin(own, names, want{}, false, []client.AcquireOption{client.Exclusive()})
		if err != nil {
			t.Fatal(err)
		}
		<-at.done
		if until, err := a.await(ctx, at, time.Hour); !until.IsZero() || err == nil || len(a.all.own()) != 0 {
			t.Error(until, err, a.all.own())
		}
		for _, name := range names {
			l, err := other.Acquire(t.Context(), name, client.Exclusive())
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 2 {
		_, at, err := a.begin(own, []string{"z"}, want{}, true, []client.AcquireOption{client.Exclusive(), client.MaxHold(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		<-at.done
		if until, err := a.await(ctx, at, time.Hour); until.IsZero() || err == nil {
			t.Error(until, err)
		}
		hasNotice(t, a, `"z": this agent holds it now. Call lock on it by `)
		if own := a.all.own(); len(own) != 1 || own[0].State != "held" || own[0].Until != stamp(at.until) {
			t.Error("a hold that is given back soon is said to last:", own)
		}
		_, again, err := a.begin(own, []string{"z"}, want{}, true, nil)
		if err != nil || again != at {
			t.Fatal("the place is lost", err)
		}
		if until, err := a.await(t.Context(), at, time.Hour); !until.IsZero() || err != nil {
			t.Error(until, err)
		}
		a.expire(at, at.until)
		if n := a.release(t.Context(), "z"); n.State != "released" {
			t.Error(n)
		}
	}
}

// TestKeptPlaces: a place is kept when its call ends. What is granted meanwhile is notified, and is
// kept by the next call, or else given back at the end of the time.
func TestKeptPlaces(t *testing.T) {
	t.Parallel()
	a, own, other := kit(t)
	for _, again := range []bool{true, false} {
		l, err := other.Acquire(t.Context(), "x", client.Exclusive())
		if err != nil {
			t.Fatal(err)
		}
		begin := func() ([]*claim, *attempt) {
			held, at, err := a.begin(own, []string{"x"}, want{}, true, []client.AcquireOption{client.Exclusive()})
			if err != nil {
				t.Fatal(err)
			}
			return held, at
		}
		_, at := begin()
		if until, err := a.await(t.Context(), at, time.Millisecond); until.IsZero() || err != nil {
			t.Fatal(until, err)
		}
		if own := a.all.own(); len(own) != 1 || own[0].State != "waiting" || own[0].Until == "" {
			t.Error(own)
		}
		if _, _, err := a.begin(own, []string{"x"}, want{shared: true}, true, nil); err == nil {
			t.Error("a place is kept for other arguments")
		}
		before := at.until
		_, same := begin()
		if same != at {
			t.Error("the place is not the same")
		}
		a.expire(at, before) // the first call's time ends while the second one waits
		canceled, cancel := context.WithCancel(t.Context())
		cancel() // by a host that has waited for long enough: the next call goes on
		if until, err := a.await(canceled, at, time.Hour); until.IsZero() || err == nil {
			t.Fatal(until, err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		hasNotice(t, a, `"x": this agent holds it now. Call lock on it by `)
		if again {
			before = at.until
			if _, same := begin(); same != at {
				t.Error("the place is not the same")
			}
			if until, err := a.await(t.Context(), at, time.Hour); !until.IsZero() || err != nil {
				t.Error(until, err)
			}
			a.expire(at, before)
			if own := a.all.own(); len(own) != 1 || own[0].State != "held" {
				t.Error(own)
			}
			if n := a.release(t.Context(), "x"); n.State != "released" {
				t.Error(n)
			}
			continue
		}
		a.expire(at, at.until)
		hasNotice(t, a, "given back since lock was not called again")
		if _, err = other.Acquire(t.Context(), "x", client.Exclusive()); err != nil {
			t.Error(err)
		}
	}
}

// TestWaitEndsWithTheCallsTime: time that a call took before, as for its session, shortens its wait,
// so that the answer comes before hosts give up.
func TestWaitEndsWithTheCallsTime(t *testing.T) {
	t.Parallel()
	a, own, other := kit(t, servertest.RealTime())
	if _, err := other.Mutex("x").Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.all.maxHold = time.Hour
	for _, names := range [][]string{{"x", "y"}, {"x"}} {
		before := maxWait - time.Second
		if len(names) > 1 {
			before -= answerTime
		}
		c := call{&mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{}}, time.Now().Add(-before), own}
		ctx, done := context.WithTimeout(t.Context(), 30*time.Second)
		r, err := a.lock(ctx, c, lockIn{Names: names, WaitSeconds: 300})
		if done(); err != nil || r.State == "held" {
			t.Error(names, r, err)
		}
	}
}

// TestHoldsThatOthersWant: an agent is notified once when a waiter wants what it holds, and when it
// loses it.
func TestHoldsThatOthersWant(t *testing.T) {
	t.Parallel()
	a, own, other := kit(t)
	if err := other.Create(t.Context(), "gpu", 1, nil, client.SemaphoreConfig{Preempt: client.PreemptAny}); err != nil {
		t.Fatal(err)
	}
	_, at, err := a.begin(own, []string{"gpu"}, want{units: 1}, false, []client.AcquireOption{client.MaxHold(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.await(t.Context(), at, 0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = other.Acquire(ctx, "gpu")
	}()
	hasNotice(t, a, `"gpu": a waiter wants this back. Save your work and release it by `)
	if lines := a.takeNotices(); len(lines) != 0 {
		t.Error(lines)
	}
	if err := other.Delete(t.Context(), "gpu", true); err != nil {
		t.Fatal(err)
	}
	hasNotice(t, a, `You lost "gpu" at `)
	cancel()
	<-ended
}

// TestWarning: an agent is notified before the longest time of a hold is over, and again once the
// hold is prolonged.
func TestWarning(t *testing.T) {
	t.Parallel()
	a, own, _ := kit(t, servertest.RealTime())
	_, at, err := a.begin(own, []string{"x"}, want{}, false, []client.AcquireOption{client.Exclusive(), client.MaxHold(4 * time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.await(t.Context(), at, 0); err != nil {
		t.Fatal(err)
	}
	h := a.claims["x"]
	<-h.lease.Ending()
	lines := strings.Join(a.takeNotices(), "\n")
	if !h.lease.Held() {
		t.Skip("this machine was too slow: the hold is over")
	}
	if !strings.HasPrefix(lines, `"x": its longest time is nearly over: it is released by `) {
		t.Error(lines)
	}
	if lines := a.takeNotices(); len(lines) != 0 {
		t.Error(lines)
	}
	if err := h.lease.Extend(t.Context(), 5*time.Second); err != nil {
		t.Fatal(err)
	}
	<-h.lease.Ending()
	if lines := a.takeNotices(); len(lines) != 1 {
		t.Error(lines)
	}
}

// TestLossesSayWhy: an agent is notified why it lost a hold, and what to do.
func TestLossesSayWhy(t *testing.T) {
	t.Parallel()
	for what, take := range map[string]func(t *testing.T, own, other *client.Session) error{
		"killed by an operator: host is broken) (ask the operator": func(t *testing.T, own, other *client.Session) error {
			return admin.OfNode(other.Node()).KillSession(t.Context(), own.ID(), "host is broken")
		},
		"a waiter preempted it, and the time to yield is over (yield when": func(t *testing.T, _, other *client.Session) error {
			_, err := other.Acquire(t.Context(), "gpu")
			return err
		},
		"semaphore was deleted by force; create it again before the next acquire (create the semaphore again": func(t *testing.T, _, other *client.Session) error {
			return other.Delete(t.Context(), "gpu", true)
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			a, own, other := kit(t, servertest.RealTime())
			if err := other.Create(t.Context(), "gpu", 1, nil, client.SemaphoreConfig{Preempt: client.PreemptAny, Grace: time.Second}); err != nil {
				t.Fatal(err)
			}
			_, at, err := a.begin(own, []string{"gpu"}, want{units: 1}, false, []client.AcquireOption{client.MaxHold(time.Hour)})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := a.await(t.Context(), at, 0); err != nil {
				t.Fatal(err)
			}
			if err := take(t, own, other); err != nil {
				t.Fatal(err)
			}
			var lines []string
			await.True(t, "a loss", func() bool {
				lines = append(lines, a.takeNotices()...)
				return strings.Contains(strings.Join(lines, "\n"), "You lost")
			})
			if text := strings.Join(lines, "\n"); !strings.Contains(text, what) {
				t.Errorf("it is notified: %s", text)
			}
		})
	}
}
