package ratelimit_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/ratelimit"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/pagesize"
)

func TestMain(m *testing.M) {
	pagesize.Two()
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent())
}

// fleet is a server with sessions that share limits.
type fleet struct {
	t      *testing.T
	ctx    context.Context
	server *servertest.Server
}

// fleetBound ends what a test waits for that does not come. No test of a fleet lasts for nearly so long.
const fleetBound = 5 * time.Minute

// newFleet begins a test, which runs beside others: they wait for leases, mostly.
func newFleet(t *testing.T) *fleet {
	t.Helper()
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), fleetBound)
	t.Cleanup(cancel)
	return &fleet{t: t, ctx: ctx, server: servertest.Start(t, servertest.RealTime())}
}

func (f *fleet) session() *client.Session {
	f.t.Helper()
	c, err := client.Open(f.ctx, client.Config{Endpoints: []string{f.server.Addr()}})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = c.Close() })
	s, err := c.Session(f.ctx, "/default", client.Timeout(time.Minute))
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

func (f *fleet) create(s *client.Session, path string, c ratelimit.Config) {
	f.t.Helper()
	if _, err := ratelimit.Create(f.ctx, s, path, c); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleet) open(s *client.Session, path string) *ratelimit.Limiter {
	f.t.Helper()
	l, err := ratelimit.JoinSession(f.ctx, s, path)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = l.Close(context.Background()) })
	return l
}

// TestLimiter: two sessions share a limit; each is admitted, and both together get no more than the
// limit allows.
func TestLimiter(t *testing.T) {
	f := newFleet(t)
	a, b := f.session(), f.session()
	f.create(a, "api", ratelimit.Config{Rate: ratelimit.PerSecond(1000), Lease: time.Second})
	la, lb := f.open(a, "api"), f.open(b, "api")
	began := time.Now()
	for range 200 {
		if err := la.Wait(f.ctx, 1); err != nil {
			t.Fatal(err)
		}
		if err := lb.Wait(f.ctx, 1); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); float64(400) > 1000*took.Seconds()*1.01+1000 {
		t.Fatalf("400 units in %v", took)
	}
	status, err := ratelimit.Describe(f.ctx, a.Node(), "api", 10)
	if err != nil || len(status.Resources) != 1 || status.Participants != 2 {
		t.Fatalf("%+v %v", status, err)
	}
	if r := status.Resources[0]; r.Leased > 1000 || r.Sessions != 2 {
		t.Fatalf("%+v", r)
	}
}

// TestRefusals: what is wrong is said at once.
func TestRefusals(t *testing.T) {
	f := newFleet(t)
	s := f.session()
	f.create(s, "api", ratelimit.Config{Rate: ratelimit.PerSecond(100)})
	f.create(s, "api/a", ratelimit.Config{})
	for path, want := range map[string]protocol.Status{
		"api": protocol.StatusPreconditionFailed, "api/b": protocol.StatusNotFound, "nope": protocol.StatusNotFound,
		"api//a": protocol.StatusBadRequest, "api/a b": protocol.StatusBadRequest, "": protocol.StatusBadRequest,
	} {
		if _, err := ratelimit.JoinSession(f.ctx, s, path); !errors.Is(err, want) {
			t.Errorf("open %q: %v, want %v", path, err, want)
		}
	}
	l := f.open(s, "api/a")
	if err := l.Wait(f.ctx, 101); !errors.Is(err, protocol.StatusBadRequest) {
		t.Error(err)
	}
	if err := l.Wait(f.ctx, 1<<63); !errors.Is(err, protocol.StatusBadRequest) {
		t.Error(err)
	}
	if !l.Allow(0) || l.Allow(1<<63) {
		t.Error("0 units are free, and too many are refused")
	}
}

// TestDeletedBurst: a limit that is deleted and made again while programs wait at it gives its burst
// once. So does a leaf. What it may give is known by the server's clock, which the test advances.
func TestDeletedBurst(t *testing.T) {
	for _, path := range []string{"api", "api/x"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			f := &fleet{t: t, ctx: t.Context(), server: servertest.Start(t)}
			s := f.session()
			c := ratelimit.Config{Rate: ratelimit.PerSecond(5), Burst: 8 * time.Second, Lease: 500 * time.Millisecond}
			if path != "api" {
				f.create(s, "api", ratelimit.Config{Rate: ratelimit.PerSecond(1000), Lease: c.Lease})
				c.Lease = 0
			}
			f.create(s, path, c)
			var admitted atomic.Int64
			var refused [3]atomic.Bool
			var limiters [3]*ratelimit.Limiter
			for i := range limiters {
				limiters[i] = f.open(f.session(), path)
			}
			f.server.Advance(c.Burst)
			ctx, cancel := context.WithCancel(f.ctx)
			var programs sync.WaitGroup
			for i, l := range limiters {
				programs.Go(func() {
					for ctx.Err() == nil {
						if l.Wait(ctx, 1) == nil {
							admitted.Add(1)
						} else {
							refused[i].Store(true) // it is not there at the moment
							time.Sleep(10 * time.Millisecond)
						}
					}
				})
			}
			passed := time.Duration(0)
			advance := func() {
				f.server.Advance(10 * time.Millisecond)
				passed += 10 * time.Millisecond
			}
			for deletions := 0; ; deletions++ {
				await.True(t, "all programs wait, and have asked", func() bool {
					advance()
					status, err := ratelimit.Describe(f.ctx, s.Node(), path, 10)
					return err == nil && status.Resources[0].Waiting >= 3 && status.Resources[0].Acquires >= 3 &&
						admitted.Load() >= 40
				})
				if deletions == 4 {
					break
				}
				for i := range refused {
					refused[i].Store(false)
				}
				if err := ratelimit.Delete(f.ctx, s, path, 0, ratelimit.Force()); err != nil {
					t.Fatal(err)
				}
				await.True(t, "all programs are refused", func() bool {
					advance()
					return refused[0].Load() && refused[1].Load() && refused[2].Load()
				})
				f.create(s, path, c)
			}
			if n, most := admitted.Load(), 40+5*passed.Seconds(); float64(n) > most {
				t.Errorf("%d units are admitted in %v, and at most %.0f are allowed", n, passed, most)
			}
			cancel()
			programs.Wait()
		})
	}
}

// TestDeleted: calls on a limit that is deleted end with ErrNotFound, and go on when there is one
// of the name again.
func TestDeleted(t *testing.T) {
	f := newFleet(t)
	s := f.session()
	f.create(s, "api", ratelimit.Config{Rate: ratelimit.PerSecond(1000), Lease: 500 * time.Millisecond})
	l := f.open(s, "api")
	if err := l.Wait(f.ctx, 1); err != nil {
		t.Fatal(err)
	}
	if err := ratelimit.Delete(f.ctx, s, "api", 0, ratelimit.Force()); err != nil {
		t.Fatal(err)
	}
	for {
		if err := l.Wait(f.ctx, 1000); err != nil {
			if !errors.Is(err, protocol.StatusNotFound) {
				t.Fatal(err)
			}
			break
		}
	}
	f.create(s, "api", ratelimit.Config{Rate: ratelimit.PerSecond(1000)})
	for errors.Is(l.Wait(f.ctx, 1), protocol.StatusNotFound) {
		time.Sleep(10 * time.Millisecond)
	}
}

// TestSpentRemotely: what was spent of a resource that the server gives out is taken there, before
// later calls.
func TestSpentRemotely(t *testing.T) {
	f := newFleet(t)
	s := f.session()
	f.create(s, "jobs", ratelimit.Config{Rate: ratelimit.PerSecond(10), Lease: 500 * time.Millisecond})
	l := f.open(s, "jobs")
	l.Spent(14) // more than one burst
	if l.Allow(1) {
		t.Error("a call overtakes what was spent")
	}
	if err := l.Wait(f.ctx, 1); err != nil {
		t.Fatal(err)
	}
	if s := l.Stats(); !s.Remote || s.Allowed != 15 || s.Waited != 1 {
		t.Errorf("%+v", s)
	}
	d, err := ratelimit.Describe(f.ctx, s.Node(), "jobs", 0)
	if err != nil || d.Resources[0].Acquires < 3 {
		t.Errorf("%+v %v", d, err)
	}
}

// TestClose: who leaves gives its rate back at once, and waiting calls end.
func TestClose(t *testing.T) {
	f := newFleet(t)
	a, b := f.session(), f.session()
	f.create(a, "api", ratelimit.Config{Rate: ratelimit.PerSecond(100), Lease: time.Minute})
	la, lb := f.open(a, "api"), f.open(b, "api")
	wait := make(chan error, 1)
	go func() {
		for {
			if err := la.Wait(f.ctx, 50); err != nil {
				wait <- err
				return
			}
		}
	}()
	if err := lb.Wait(f.ctx, 20); err != nil {
		t.Fatal(err)
	}
	if err := la.Close(f.ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-wait; !errors.Is(err, ratelimit.ErrClosed) {
		t.Fatal(err)
	}
	for lb.Stats().Rate < 95 { // within a minute only if the lease was given back
		if err := lb.Wait(f.ctx, 1); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCloseAfterReconnect: a limiter whose session was attached again, by another connection,
// gives its rate back at once all the same.
func TestCloseAfterReconnect(t *testing.T) {
	f := newFleet(t)
	a, b := f.session(), f.session()
	f.create(a, "api", ratelimit.Config{Rate: ratelimit.PerSecond(1000), Lease: time.Minute})
	la, lb := f.open(a, "api"), f.open(b, "api")
	for la.Stats().Rate == 0 {
		if err := la.Wait(f.ctx, 10); err != nil {
			t.Fatal(err)
		}
	}
	f.server.DropConnections()
	if err := la.Close(f.ctx); err != nil {
		t.Fatal(err)
	}
	for lb.Stats().Rate < 950 { // within a minute only if the lease was given back
		if err := lb.Wait(f.ctx, 10); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSharesFollowDemand: shares change when a session joins, when its calls end, when they come
// again and when it leaves; also when the limit changes. Refreshes that are due come too late for
// all of it: the server asks for others.
func TestSharesFollowDemand(t *testing.T) {
	f := newFleet(t)
	a, b := f.session(), f.session()
	f.create(a, "api", ratelimit.Config{Rate: ratelimit.PerSecond(1000), Lease: time.Minute})
	all, stop := context.WithCancel(f.ctx)
	var calling sync.WaitGroup
	defer calling.Wait()
	defer stop()
	begin := func(l *ratelimit.Limiter) (end func()) { // has its calls wait for units
		ctx, cancel := context.WithCancel(all)
		calling.Go(func() {
			for l.Wait(ctx, 10) == nil {
			}
		})
		return cancel
	}
	la := f.open(a, "api")
	begin(la)
	has := func(when string, l *ratelimit.Limiter, least, most float64) {
		t.Helper()
		await.True(t, fmt.Sprintf("a rate of %v to %v %s", least, most, when), func() bool {
			rate := l.Stats().Rate
			return rate >= least && rate <= most
		})
	}
	has("alone", la, 950, 1000)
	lb := f.open(b, "api")
	end := begin(lb)
	has("of the second that joined", lb, 475, 500)
	has("of the first, that shares", la, 475, 500)
	end()
	has("when the calls of the second have ended", la, 900, 1000)
	end = begin(lb)
	has("of the second that calls again", lb, 475, 500)
	if _, err := ratelimit.Alter(f.ctx, a, "api", 0, ratelimit.Config{Rate: ratelimit.PerSecond(600), Lease: time.Minute}); err != nil {
		t.Fatal(err)
	}
	has("of the first, of less", la, 280, 300)
	has("of the second, of less", lb, 280, 300)
	end()
	if err := lb.Close(f.ctx); err != nil {
		t.Fatal(err)
	}
	has("when the second has left", la, 570, 600)
}

// TestOpenAgain: a session that left takes part again at once, although the leader may not have looked
// at the participants meanwhile.
func TestOpenAgain(t *testing.T) {
	f := newFleet(t)
	s := f.session()
	f.create(s, "api", ratelimit.Config{Rate: ratelimit.PerSecond(100), Lease: time.Minute})
	l := f.open(s, "api")
	for range 3 {
		for range 4 { // of these refreshes the numbers are higher than of the first after it is opened again
			if err := l.Wait(f.ctx, 10); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Close(f.ctx); err != nil {
			t.Fatal(err)
		}
		l = f.open(s, "api")
		if failed := l.Stats().Failed; failed > 0 {
			t.Fatalf("%d refreshes were refused", failed)
		}
	}
}

// TestTogether: a call that needs two limits takes of both or of none.
func TestTogether(t *testing.T) {
	f := newFleet(t)
	s := f.session()
	f.create(s, "requests", ratelimit.Config{Rate: ratelimit.PerSecond(10_000)})
	f.create(s, "tokens", ratelimit.Config{Rate: ratelimit.PerSecond(100)})
	requests, tokens := f.open(s, "requests"), f.open(s, "tokens")
	both := ratelimit.All(requests, tokens)
	for range 3 {
		if err := both.Wait(f.ctx, 20); err != nil {
			t.Fatal(err)
		}
	}
	for both.Allow(20) {
	}
	if r, w := requests.Stats().Allowed, tokens.Stats().Allowed; r != w || r < 60 {
		t.Fatalf("%d of one and %d of the other", r, w)
	}
	if err := both.Wait(f.ctx, 101); !errors.Is(err, protocol.StatusBadRequest) {
		t.Fatal(err)
	}
}

// TestMiddleware: what is over the limit is told when to come again.
func TestMiddleware(t *testing.T) {
	f := newFleet(t)
	s := f.session()
	f.create(s, "api", ratelimit.Config{Rate: ratelimit.PerSecond(5), Burst: 200 * time.Millisecond, Lease: time.Minute})
	l := f.open(s, "api")
	h := ratelimit.Middleware(l, nil)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	if err := l.Wait(f.ctx, 1); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		if w.Code == http.StatusTooManyRequests {
			if w.Header().Get("Retry-After") != "1" {
				t.Fatal(w.Header())
			}
			return
		}
	}
	t.Fatal("20 calls at once are let through, of 5 a second")
}

// TestJoinWhileAway: a program starts while the cluster is away, with a limiter that denies, says so
// in the log, and admits once the cluster is there. What the server refuses then is the error of
// calls.
func TestJoinWhileAway(t *testing.T) {
	f := newFleet(t)
	f.create(f.session(), "api", ratelimit.Config{Rate: ratelimit.PerSecond(1000)})
	f.server.Stop()
	var lines lockedBuffer
	c, err := client.New(client.Config{Endpoints: []string{f.server.Addr()}, Logger: slog.New(slog.NewTextHandler(&lines, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	join := func(path string) *ratelimit.Limiter {
		t.Helper()
		l, err := ratelimit.Join(f.ctx, c, "/default", path)
		if err != nil {
			t.Fatal(err)
		}
		if l.Allow(1) {
			t.Errorf("%s admits without a cluster", path)
		}
		return l
	}
	l, missing := join("api"), join("nothere")
	if text := lines.String(); !strings.Contains(text, "rate limit is not joined yet") || !strings.Contains(text, "resource=api") {
		t.Errorf("the log says %q", text)
	}
	gone, cancel := context.WithCancel(f.ctx)
	cancel()
	if _, err := ratelimit.Join(gone, c, "/default", "api"); !errors.Is(err, context.Canceled) {
		t.Errorf("without time Join returns %v", err)
	}
	f.server.Restart()
	if err := l.Wait(f.ctx, 1); err != nil {
		t.Error(err)
	}
	if err := missing.Wait(f.ctx, 1); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("a limit that is not there: %v", err)
	}
	if err := errors.Join(l.Close(f.ctx), missing.Close(f.ctx)); err != nil {
		t.Error(err)
	}
}

// TestJoinRefused: what no wait can mend ends Join at once.
func TestJoinRefused(t *testing.T) {
	f := newFleet(t)
	c, err := client.New(client.Config{Endpoints: []string{f.server.Addr()}, TLS: &tls.Config{}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := ratelimit.Join(f.ctx, c, "/default", "api"); !errors.Is(err, client.ErrHandshake) {
		t.Errorf("TLS to a plain address: %v", err)
	}
}

// lockedBuffer is a log that goroutines share.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
