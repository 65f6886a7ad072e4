package httpapi

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/ratelimit"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// limitSite is a gateway beside a session that sees what the server knows of a limit.
type limitSite struct {
	*site
	own *client.Session
}

// unitTime is how long a unit of a limit takes that openLimit makes.
const unitTime = 50 * time.Second

// openLimit has a limit whose burst is used up.
func openLimit(t *testing.T, srv *servertest.Server) *limitSite {
	t.Helper()
	s := openSite(t, srv)
	c, err := client.Dial(t.Context(), srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseWithoutRelease)
	own, err := c.Session(t.Context(), "/default")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ratelimit.Create(t.Context(), own, "api", ratelimit.Config{Rate: ratelimit.PerSecond(1 / unitTime.Seconds())}); err != nil {
		t.Fatal(err)
	}
	await.Seen(t, "the end of the burst", func() (string, bool) {
		a := s.ask("POST", "/v1/limits/api", "", "")
		return string(a.body), a.status == 429 && a.number("retry_after_ms") > 1000
	})
	return &limitSite{s, own}
}

// wait has so many callers wait for a unit until hangUp is called.
func (x *limitSite) wait(callers int) (hangUp func()) {
	ctx, cancel := context.WithCancel(x.t.Context())
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			if a, err := x.try(ctx, "POST", "/v1/limits/api?wait=50s", "", ""); err == nil && a.status != 200 {
				x.t.Errorf("one that waits is answered %d: %s", a.status, a.body)
			}
		})
	}
	hangUp = sync.OnceFunc(func() { cancel(); all.Wait() })
	x.t.Cleanup(hangUp)
	return hangUp
}

// awaitWaiting waits until so many units are waited for at the server.
func (x *limitSite) awaitWaiting(units float64) {
	x.t.Helper()
	await.Seen(x.t, fmt.Sprintf("%v units that are waited for", units), func() (float64, bool) {
		d, err := ratelimit.Describe(x.t.Context(), x.own.Node(), "api", 0)
		if err != nil {
			x.t.Fatal(err)
		}
		return d.Resources[0].Waiting, d.Resources[0].Waiting == units
	})
}

// refused takes a unit, which is not there, and returns the turn that the answer names.
func (x *limitSite) refused(query string) time.Duration {
	x.t.Helper()
	a := x.ask("POST", "/v1/limits/api"+query, "", "").wants(429, "limited")
	turn := time.Duration(a.number("retry_after_ms")) * time.Millisecond
	after, err := strconv.Atoi(a.header.Get("Retry-After"))
	if turn <= 0 || err != nil || time.Duration(after)*time.Second < turn {
		x.t.Errorf("a turn in %v, and Retry-After is %q", turn, a.header.Get("Retry-After"))
	}
	return turn
}

// TestLimitTurns: who is refused is told when it is its turn, behind those that wait, and those that hang up
// leave the queue of the server.
func TestLimitTurns(t *testing.T) {
	t.Parallel()
	x := openLimit(t, servertest.Start(t, servertest.RealTime()))
	began := time.Now()
	first := x.refused("")
	if first > unitTime+time.Second {
		t.Fatalf("the turn is in %v, of a unit each %v", first, unitTime)
	}
	turn := func(what, query string, waiting time.Duration) {
		t.Helper()
		got, want := x.refused(query), first+waiting*unitTime
		if late := want / 50; got < want-time.Since(began)-late || got > want+late {
			t.Errorf("%s: the turn is in %v, and was to be in %v for the last %v", what, got, want, time.Since(began))
		}
	}
	turn("nobody waits, after a while", "?wait=10ms", 0)
	x.wait(1) // it stays, and so the session is heard of
	x.awaitWaiting(1)
	hangUp := x.wait(3)
	x.awaitWaiting(4)
	turn("four wait", "", 4)
	turn("four wait, after a while", "?wait=10ms", 4)
	hangUp()
	x.awaitWaiting(1)
	turn("three have hung up", "", 1)
	hangUp = x.wait(40)
	await.True(t, "those that wait at the server", func() bool {
		d, err := ratelimit.Describe(t.Context(), x.own.Node(), "api", 0)
		return err == nil && d.Resources[0].Waiting >= 8
	})
	turn("41 wait", "", 41)
	hangUp()
	for range 5 { // what gives up a call that is just sent does not overtake it
		hangUp = x.wait(40)
		await.True(t, "those that wait at the server", func() bool {
			d, err := ratelimit.Describe(t.Context(), x.own.Node(), "api", 0)
			return err == nil && d.Resources[0].Waiting >= 8
		})
		hangUp()
		x.awaitWaiting(1)
	}
}

// TestLimitTurnsOfGateways: the turn is that of the gateway's session, and not behind all that wait at another one.
func TestLimitTurnsOfGateways(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	x := openLimit(t, srv)
	x.wait(8)
	x.awaitWaiting(8)
	other := &limitSite{openSite(t, srv), x.own}
	if turn := other.refused(""); turn > 4*unitTime {
		t.Errorf("beside another gateway's 8 callers the turn of the first one is in %v", turn)
	}
}
