package client_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// recorder is an Observer that keeps what it is notified of, in order.
type recorder struct {
	mu     sync.Mutex
	starts []client.AcquireStart
	ends   chan client.AcquireEnd
	holds  chan client.HoldEnd
	conns  chan client.ConnectionChange
	states chan client.SessionChange
	again  chan client.RequestRetry
	skip   bool // it does not follow acquires
}

func newRecorder() *recorder {
	return &recorder{
		ends: make(chan client.AcquireEnd, 100), holds: make(chan client.HoldEnd, 100), conns: make(chan client.ConnectionChange, 100),
		states: make(chan client.SessionChange, 100), again: make(chan client.RequestRetry, 100),
	}
}

// Those that nobody takes are dropped: how often something is tried is the network's.

func (r *recorder) ConnectionChanged(c client.ConnectionChange) { keep(r.conns, c) }
func (r *recorder) SessionChanged(s client.SessionChange)       { keep(r.states, s) }
func (r *recorder) RequestRetried(x client.RequestRetry)        { keep(r.again, x) }

func keep[T any](to chan T, v T) {
	select {
	case to <- v:
	default:
	}
}

func (r *recorder) AcquireStarted(ctx context.Context, a client.AcquireStart) client.AcquireObserver {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.starts = append(r.starts, a)
	if ctx == nil || r.skip {
		return nil
	}
	return &recordedAcquire{recorder: r}
}

// recordedAcquire panics if its calls do not come once, and in order.
type recordedAcquire struct {
	*recorder
	mu      sync.Mutex
	holding bool
	over    bool
}

func (a *recordedAcquire) AcquireEnded(e client.AcquireEnd) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.holding || a.over {
		panic("an acquire ended twice")
	}
	a.holding, a.over = e.Err == nil, e.Err != nil
	a.ends <- e
}

func (a *recordedAcquire) HoldEnded(e client.HoldEnd) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.holding || a.over {
		panic("a hold ended that had not begun, or twice")
	}
	a.over = true
	a.holds <- e
}

// now is the next report, which must be there.
func now[T any](t *testing.T, c chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	default:
		t.Fatal("nothing was reported")
	}
	return v
}

// soon is the next report.
func soon[T any](t *testing.T, c chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-testContext(t).Done():
		t.Fatal("nothing was reported")
	}
	return v
}

func observe(t *testing.T, srv *servertest.Server) (*client.Client, *recorder) {
	t.Helper()
	r := newRecorder()
	c, err := client.Open(testContext(t), client.Config{Endpoints: []string{srv.Addr()}, Observer: r})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseWithoutRelease)
	return c, r
}

// TestObserver: what is reported of acquires and of what they hold, and when.
func TestObserver(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	ctx := testContext(t)
	c, r := observe(t, srv)
	a, b := session(t, c), session(t, c)

	t.Run("acquired and released", func(t *testing.T) {
		l := acquire(t, a, "jobs", client.Count(2), client.CreateLimit(2))
		end := now(t, r.ends)
		if end.Err != nil || end.Token != l.Token() || end.Attempts < 1 || end.Shard == 0 || end.Queued || end.Wait <= 0 {
			t.Errorf("%+v", end)
		}
		if start := r.starts[len(r.starts)-1]; start != (client.AcquireStart{Session: a.ID(), Node: "/default", Name: "jobs", Count: 2}) {
			t.Errorf("%+v", start)
		}
		release(t, l)
		if hold := now(t, r.holds); hold.Cause != nil || hold.Held <= 0 {
			t.Errorf("%+v", hold)
		}
		release(t, l) // again: nothing more
	})

	t.Run("queued", func(t *testing.T) {
		held := acquire(t, a, "jobs")
		now(t, r.ends)
		granted, place := queue(t, b, "jobs", client.Count(2))
		release(t, held)
		l := granted.must(t)
		if end := now(t, r.ends); !end.Queued || end.Token != place || l.Token() != place {
			t.Errorf("%+v, place %d", end, place)
		}
		now(t, r.holds)
		release(t, l)
		now(t, r.holds)
	})

	t.Run("not acquired", func(t *testing.T) {
		held := acquire(t, a, "jobs", client.Count(2))
		now(t, r.ends)
		if l, err := b.TryAcquire(ctx, "jobs"); l != nil || !errors.Is(err, client.ErrNotAcquired) {
			t.Fatal(l, err)
		}
		if end := now(t, r.ends); end.Err != client.ErrNotAcquired || end.Token != 0 || !r.starts[len(r.starts)-1].Try {
			t.Errorf("%+v", end)
		}
		if _, err := b.Acquire(ctx, "jobs", client.Wait(time.Millisecond)); !errors.Is(err, client.ErrNotAcquired) {
			t.Fatal(err)
		}
		if end := now(t, r.ends); !errors.Is(end.Err, client.ErrNotAcquired) {
			t.Errorf("%+v", end)
		}
		if _, err := b.Acquire(ctx, "jobs", client.Count(0)); err == nil {
			t.Fatal("0 units")
		}
		if end := now(t, r.ends); !errors.Is(end.Err, client.ErrBadRequest) || end.Attempts == 0 {
			t.Errorf("%+v", end)
		}
		release(t, held)
		now(t, r.holds)
	})

	t.Run("taken away", func(t *testing.T) {
		l := acquire(t, a, "jobs")
		now(t, r.ends)
		if _, err := admin.OfNode(a.Node()).ForceRelease(ctx, "jobs", l.Token(), l.Token(), "test"); err != nil {
			t.Fatal(err)
		}
		if hold := soon(t, r.holds); !errors.Is(hold.Cause, client.ErrLeaseLost) {
			t.Errorf("%+v", hold)
		}
		if err := l.Release(ctx); !errors.Is(err, client.ErrLeaseLost) {
			t.Error(err)
		}
	})

	t.Run("not followed", func(t *testing.T) {
		r.skip = true
		release(t, acquire(t, a, "jobs"))
		r.skip = false
		if len(r.ends)+len(r.holds) != 0 {
			t.Error("something was reported")
		}
	})

	t.Run("sent again", func(t *testing.T) {
		held := acquire(t, a, "jobs", client.Count(2))
		now(t, r.ends)
		granted, _ := queue(t, b, "jobs")
		srv.DropConnections()
		release(t, held)
		l := granted.must(t)
		now(t, r.holds)
		if end := now(t, r.ends); end.Attempts < 2 || end.Token != l.Token() {
			t.Errorf("%+v", end)
		}
		release(t, l)
		now(t, r.holds)
	})

	t.Run("with the session", func(t *testing.T) {
		acquire(t, a, "jobs")
		acquire(t, a, "other", client.CreateLimit(1))
		now(t, r.ends)
		now(t, r.ends)
		if err := a.Close(ctx); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if hold := now(t, r.holds); !errors.Is(hold.Cause, client.ErrSessionClosed) {
				t.Errorf("%+v", hold)
			}
		}
		acquire(t, b, "jobs")
		now(t, r.ends)
		if err := admin.OfNode(b.Node()).KillSession(ctx, b.ID(), "test"); err != nil {
			t.Fatal(err)
		}
		if hold := soon(t, r.holds); !errors.Is(hold.Cause, client.ErrSessionExpired) {
			t.Errorf("%+v", hold)
		}
		last := session(t, c)
		acquire(t, last, "jobs")
		now(t, r.ends)
		c.CloseWithoutRelease()
		if hold := soon(t, r.holds); !errors.Is(hold.Cause, client.ErrClientClosed) {
			t.Errorf("%+v", hold)
		}
	})
	if len(r.ends)+len(r.holds) != 0 {
		t.Errorf("%d acquires and %d holds were reported that nobody expects", len(r.ends), len(r.holds))
	}
}

// TestObserverOfTheWay: connections, attaches and retries, each with its reason, from the first
// connection to the end of the session.
func TestObserverOfTheWay(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	ctx := testContext(t)
	c, r := observe(t, srv)
	made := soon(t, r.conns)
	if made.State != client.ConnectionMade || made.Instance == 0 || made.Address != srv.Addr() || made.Err != nil {
		t.Errorf("connected: %+v", made)
	}
	s, other := session(t, c), session(t, c)
	for _, x := range []*client.Session{s, other} {
		at := soon(t, r.states)
		if at.Session != x.ID() || at.Node != "/default" || at.State != client.Attached || at.Instance != made.Instance || at.Shard == 0 {
			t.Errorf("attached: %+v", at)
		}
	}
	held := acquire(t, s, "jobs", client.CreateLimit(1))
	granted, _ := queue(t, other, "jobs")
	srv.Unreachable()
	srv.DropConnections()
	if lost := soon(t, r.conns); lost.State != client.ConnectionLost || lost.Instance != made.Instance || lost.Err == nil {
		t.Errorf("lost: %+v", lost)
	}
	for range 2 {
		if gone := soon(t, r.states); gone.State != client.Detached || gone.Node != "/default" {
			t.Errorf("detached: %+v", gone)
		}
	}
	if failed := soon(t, r.conns); failed.State != client.ConnectionFailed || !errors.Is(failed.Err, client.ErrUnreachable) {
		t.Errorf("failed: %+v", failed)
	}
	retry := soon(t, r.again)
	for retry.Request != "acquire" {
		retry = soon(t, r.again)
	}
	if retry.Session != other.ID() || retry.Instance != made.Instance || retry.Shard == 0 || retry.Err == nil {
		t.Errorf("sent again: %+v", retry)
	}
	srv.Reachable()
	for again := soon(t, r.conns); again.State != client.ConnectionMade; again = soon(t, r.conns) {
		if again.State != client.ConnectionFailed {
			t.Errorf("while the server cannot be reached: %+v", again)
		}
	}
	release(t, held)
	granted.must(t)
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	over := soon(t, r.states)
	for ; over.State != client.Expired; over = soon(t, r.states) {
		if over.State != client.Attached {
			t.Errorf("after the server is back: %+v", over)
		}
	}
	if over.Session != s.ID() || !errors.Is(over.Err, client.ErrSessionClosed) {
		t.Errorf("over: %+v", over)
	}
}
