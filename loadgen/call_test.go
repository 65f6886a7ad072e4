package loadgen

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// hanging is a target whose calls never answer. It counts those that came without a deadline.
type hanging struct {
	Noop
	unbounded atomic.Int64
}

func (t *hanging) Open(ctx context.Context) (Conn, error) {
	c, err := t.Noop.Open(ctx)
	return hangingConn{c, t}, err
}

func (t *hanging) Code(err error) string {
	if err == context.DeadlineExceeded {
		return "timeout"
	}
	return "other"
}

// wait is a call that lasts until its context ends. Without a deadline it is over at once, and so
// it is in the much longer time that a load has for cleaning up.
func (t *hanging) wait(ctx context.Context) error {
	end, ok := ctx.Deadline()
	if !ok {
		t.unbounded.Add(1)
	}
	if !ok || time.Until(end) > time.Second {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

type hangingConn struct {
	Conn
	t *hanging
}

func (c hangingConn) Session(ctx context.Context) (Session, error) {
	s, err := c.Conn.Session(ctx)
	return hangingSession{s.(*noopSession), c.t}, err
}

type hangingSession struct {
	*noopSession
	t *hanging
}

func (s hangingSession) Acquirer(AcquireOptions) Acquirer {
	return AcquirerFunc(func(ctx context.Context, _ string) (Lease, error) { return s.noopSession, s.t.wait(ctx) })
}

func (s hangingSession) Reader(bool) Reader {
	return ReaderFunc(func(ctx context.Context, _ string) error { return s.t.wait(ctx) })
}

func (s hangingSession) Write(ctx context.Context, _ string, _ []byte) error { return s.t.wait(ctx) }

func (s hangingSession) Close(ctx context.Context) error { return s.t.wait(ctx) }

// TestDeadline: every call has the deadline, and is an error of its own when that has passed.
func TestDeadline(t *testing.T) {
	for _, name := range []string{"lock-pairs", "contended-lock", "semaphore", "describe-strict", "watch-stream",
		"session-storm", "discovery"} {
		cfg := Config{Target: &hanging{}, Callers: 2, Sessions: 2, Operations: 4, Deadline: time.Millisecond}
		cfg.Scenario, _ = Find(name)
		if name == "discovery" {
			cfg.Keys, cfg.Watchers, cfg.Rate = 1, 1, 1000
		}
		r, err := Run(t.Context(), cfg)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if r.Errors["timeout"] != 4 || r.ErrorCount() != 4 || r.Operations > 0 {
			t.Errorf("%s: %d operations and errors %v, want 4 timeouts", name, r.Operations, r.Errors)
		}
		if n := cfg.Target.(*hanging).unbounded.Load(); n > 0 {
			t.Errorf("%s: %d calls had no deadline", name, n)
		}
		var b strings.Builder
		if err := r.WriteTable(&b); err != nil || !strings.Contains(b.String(), "a deadline of 1ms for each call") {
			t.Errorf("%v:\n%s", err, b.String())
		}
	}
}

// silent is a target whose watches never begin, and whose deletes last until their context ends.
type silent struct{ Noop }

func (t *silent) Open(ctx context.Context) (Conn, error) {
	c, err := t.Noop.Open(ctx)
	return silentConn{c}, err
}

type silentConn struct{ Conn }

func (c silentConn) Session(ctx context.Context) (Session, error) {
	s, err := c.Conn.Session(ctx)
	return silentSession{s.(*noopSession)}, err
}

type silentSession struct{ *noopSession }

func (silentSession) Watch(ctx context.Context, _ string, _ func([]byte)) error {
	<-ctx.Done()
	return ctx.Err()
}

func (silentSession) Delete(ctx context.Context, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestWatchesThatDoNotBegin: a load that cannot be made ends, also if what it made already cannot
// be removed.
func TestWatchesThatDoNotBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{Target: &silent{}, Watchers: 3, Operations: 1}
		cfg.Scenario, _ = Find("watch-stream")
		if _, err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "0 of 3 watches began") {
			t.Errorf("the load ended with %v", err)
		}
	})
}
