package driver_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/signalbox-dev/signalbox/client/core"
	"github.com/signalbox-dev/signalbox/client/internal/driver"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }

func open(t *testing.T, srv *servertest.Server) (*driver.Driver, *core.Session) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	d, s, err := driver.Open(ctx, driver.Config{Endpoints: []string{srv.Addr()}, Name: "test"},
		driver.SessionConfig{Path: "/default", Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d, s
}

var whole = driver.AcquireOptions{Count: protocol.Forever, Timeout: protocol.Forever, Ephemeral: true, Turn: core.Free}

// TestOneHolder: of many callers of two clients one holds a lock at a time, and tokens rise.
func TestOneHolder(t *testing.T) {
	srv := servertest.Start(t)
	var mu sync.Mutex // of what the locks protect; never contended
	last := map[string]uint64{}
	var wg sync.WaitGroup
	for range 2 {
		d, s := open(t, srv)
		for w := range 16 {
			wg.Go(func() {
				for i := range 10 {
					name := fmt.Sprint("lock-", (w+i)%3)
					l, err := d.Acquire(t.Context(), s, name, whole)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					if l.Token <= last[name] {
						t.Errorf("%s was granted with token %d after %d", name, l.Token, last[name])
					}
					last[name] = l.Token
					mu.Unlock()
					if err := d.Release(t.Context(), l); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
}

// TestCancelledCalls: whatever the moment at which callers give up, nothing stays held or waiting.
func TestCancelledCalls(t *testing.T) {
	srv := servertest.Start(t)
	d, s := open(t, srv)
	other, rival := open(t, srv)
	gone := errors.New("the caller has gone")
	for i := range 60 {
		held, err := other.Acquire(t.Context(), rival, "lock", whole)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				l, err := d.Acquire(ctx, s, "lock", whole)
				if err == nil {
					err = d.Release(ctx, l)
				}
				if err != nil && !errors.Is(err, gone) {
					t.Error(err)
				}
			})
		}
		wg.Go(func() {
			if i%3 == 0 {
				cancel(gone) // while they wait
			}
			if err := other.Release(t.Context(), held); err != nil {
				t.Error(err)
			}
			cancel(gone) // while they are granted, or have released
		})
		wg.Wait()
	}
	for _, x := range []struct {
		d *driver.Driver
		s *core.Session
	}{{other, rival}, {d, s}} {
		l, err := x.d.Acquire(t.Context(), x.s, "lock", whole)
		if err != nil {
			t.Fatal(err)
		}
		if err := x.d.Release(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLostConnections: sessions, leases and waits outlive their connections. What is held is held,
// waiters keep their places, and calls are answered.
func TestLostConnections(t *testing.T) {
	srv := servertest.Start(t)
	d, s := open(t, srv)
	other, rival := open(t, srv)
	kept, err := d.Acquire(t.Context(), s, "kept", whole)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		name := fmt.Sprint("lock-", i)
		l, err := d.Acquire(t.Context(), s, name, whole)
		if err != nil {
			t.Fatal(err)
		}
		granted := make(chan error, 1)
		go func() {
			x, err := other.Acquire(t.Context(), rival, name, whole)
			if err == nil {
				err = other.Release(t.Context(), x)
			}
			granted <- err
		}()
		srv.DropConnections()
		if err := d.Change(t.Context(), l, 1, []byte("data")); err != nil {
			t.Fatal(err)
		}
		srv.DropConnections()
		if err := d.Release(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		if err := <-granted; err != nil {
			t.Fatal(err)
		}
		if !d.Held(s) || kept.Over() != nil {
			t.Fatalf("after %d lost connections the session is held: %t, its lease: %v", i+1, d.Held(s), kept.Over())
		}
	}
	if err := d.CloseSession(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	l, err := other.Acquire(t.Context(), rival, "kept", whole)
	if err != nil {
		t.Fatal(err)
	}
	if l.Token <= kept.Token {
		t.Errorf("token %d after %d", l.Token, kept.Token)
	}
}

// TestStoppedServer: a session whose server is away for longer than it may be relied on is over by
// the client's clock, and the program is notified.
func TestStoppedServer(t *testing.T) {
	srv := servertest.Start(t)
	over := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	d, s, err := driver.Open(ctx, driver.Config{Endpoints: []string{srv.Addr()}, Notify: func(v core.Event) {
		if v.Kind == core.SessionChanged && v.Err != nil {
			over <- v.Err
		}
	}}, driver.SessionConfig{Path: "/default", Timeout: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	l, err := d.Acquire(t.Context(), s, "lock", whole)
	if err != nil {
		t.Fatal(err)
	}
	srv.Unreachable()
	srv.DropConnections()
	if err := <-over; !errors.Is(err, core.ErrNotRenewed) {
		t.Errorf("the session ended with %v, want %v", err, core.ErrNotRenewed)
	}
	if d.Held(s) {
		t.Error("the session is held")
	}
	if err := d.Release(t.Context(), l); !errors.Is(err, core.ErrNotRenewed) {
		t.Errorf("release: %v, want %v", err, core.ErrNotRenewed)
	}
}
