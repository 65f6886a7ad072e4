package driver_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/client/internal/driver"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }

func open(t *testing.T, srv *servertest.Server) (*driver.Driver, *driver.Session) {
	t.Helper()
	return openFor(t, srv, 10*time.Second)
}

func openFor(t *testing.T, srv *servertest.Server, timeout time.Duration) (*driver.Driver, *driver.Session) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	d := driver.New(driver.Config{Endpoints: []string{srv.Addr()}, Name: "test"})
	t.Cleanup(d.Close)
	s := d.NewSession()
	s.Path, s.Timeout = "/default", timeout
	if r := d.ConnectWith(ctx, s); r.Err != nil {
		t.Fatal(r.Err)
	}
	return d, s
}

var whole = driver.AcquireOptions{Count: protocol.Forever, Timeout: protocol.Forever, Ephemeral: true, Turn: core.Free}

func acquire(ctx context.Context, s *driver.Session, name string) (*driver.Lease, error) {
	l := new(driver.Lease)
	r := s.Acquire(ctx, name, whole, l, nil)
	return l, r.Err
}

// TestOneHolder: of many callers of two clients one holds a lock at a time, and tokens rise.
func TestOneHolder(t *testing.T) {
	srv := servertest.Start(t)
	var mu sync.Mutex // of what the locks protect; never contended
	last := map[string]uint64{}
	var wg sync.WaitGroup
	for range 2 {
		_, s := open(t, srv)
		for w := range 16 {
			wg.Go(func() {
				for i := range 10 {
					name := fmt.Sprint("lock-", (w+i)%3)
					l, err := acquire(t.Context(), s, name)
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
					if err := l.Release(t.Context()).Err; err != nil {
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
	_, s := open(t, srv)
	_, rival := open(t, srv)
	gone := errors.New("the caller has gone")
	for i := range 60 {
		held, err := acquire(t.Context(), rival, "lock")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				l, err := acquire(ctx, s, "lock")
				if err == nil {
					err = l.Release(ctx).Err
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
			if err := held.Release(t.Context()).Err; err != nil {
				t.Error(err)
			}
			cancel(gone) // while they are granted, or have released
		})
		wg.Wait()
	}
	for _, x := range []*driver.Session{rival, s} {
		l, err := acquire(t.Context(), x, "lock")
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Release(t.Context()).Err; err != nil {
			t.Fatal(err)
		}
	}
}

// TestLostConnections: sessions, leases and waits outlive their connections. What is held is held,
// waiters keep their places, and calls are answered.
func TestLostConnections(t *testing.T) {
	srv := servertest.Start(t, servertest.RealTime()) // shards learn again of a session's end after a while
	_, s := openFor(t, srv, time.Minute)
	_, rival := openFor(t, srv, time.Minute)
	kept, err := acquire(t.Context(), s, "kept")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		name := fmt.Sprint("lock-", i)
		l, err := acquire(t.Context(), s, name)
		if err != nil {
			t.Fatal(err)
		}
		granted := make(chan error, 1)
		go func() {
			x, err := acquire(t.Context(), rival, name)
			if err == nil {
				err = x.Release(t.Context()).Err
			}
			granted <- err
		}()
		srv.DropConnections()
		if err := l.Change(t.Context(), &core.Change{Count: 1, Data: []byte("data"), SetData: true}).Err; err != nil {
			t.Fatal(err)
		}
		srv.DropConnections()
		if err := l.Release(t.Context()).Err; err != nil {
			t.Fatal(err)
		}
		if err := <-granted; err != nil {
			t.Fatal(err)
		}
		if !s.Held() || kept.Over() != nil {
			t.Fatalf("after %d lost connections the session is held: %t, its lease: %v", i+1, s.Held(), kept.Over())
		}
	}
	if err := s.Close(t.Context(), core.ErrSessionClosed).Err; err != nil {
		t.Fatal(err)
	}
	l, err := acquire(t.Context(), rival, "kept")
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
	_, s := openFor(t, srv, 500*time.Millisecond)
	l, err := acquire(t.Context(), s, "lock")
	if err != nil {
		t.Fatal(err)
	}
	srv.Unreachable()
	srv.DropConnections()
	<-s.Context().Done()
	if err := context.Cause(s.Context()); !errors.Is(err, core.ErrNotRenewed) {
		t.Errorf("the session ended with %v, want %v", err, core.ErrNotRenewed)
	}
	if s.Held() {
		t.Error("the session is held")
	}
	if err := l.Release(t.Context()).Err; !errors.Is(err, core.ErrNotRenewed) {
		t.Errorf("release: %v, want %v", err, core.ErrNotRenewed)
	}
}
