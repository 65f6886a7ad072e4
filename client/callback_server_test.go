package client_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// TestCallbackEndsGoroutine: callbacks of a session that end their goroutine, as FailNow of a test
// does, keep neither later calls from being made, nor the client from being closed, which waits for
// the last one.
func TestCallbackEndsGoroutine(t *testing.T) {
	t.Parallel()
	node := shared.Node(t)
	c := dial(t, node)
	ctx := testContext(t)
	var mu sync.Mutex
	var calls []string
	note := func(call string) {
		mu.Lock()
		calls = append(calls, call)
		mu.Unlock()
		runtime.Goexit()
	}
	stopped := make(chan struct{})
	s := session(t, c, client.OnState(func(state client.State) { note(state.String()) }),
		client.OnStopped(func(err error) {
			<-stopped
			note("stopped")
		}))
	if _, err := s.Mutex("name").Lock(ctx); err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	<-s.Context().Done()
	select {
	case err := <-closed:
		t.Errorf("the client is closed while a callback runs: %v", err)
	default:
	}
	close(stopped)
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if want := []string{client.Expired.String(), "stopped"}; !slices.Equal(calls, want) {
		t.Errorf("calls: %q, want %q", calls, want)
	}
}

// exiting is an Observer that ends the goroutine of its first calls of each kind.
type exiting struct{ connections, sessions, holds atomic.Int32 }

func exit(calls *atomic.Int32) {
	if calls.Add(1) <= 3 {
		runtime.Goexit()
	}
}

func (x *exiting) AcquireStarted(context.Context, client.AcquireStart) client.AcquireObserver {
	return exitingAcquire{x}
}
func (x *exiting) ConnectionChanged(client.ConnectionChange) { exit(&x.connections) }
func (x *exiting) SessionChanged(client.SessionChange)       { exit(&x.sessions) }
func (x *exiting) RequestRetried(client.RequestRetry)        {}

type exitingAcquire struct{ *exiting }

func (exitingAcquire) AcquireEnded(client.AcquireEnd) {}
func (a exitingAcquire) HoldEnded(client.HoldEnd)     { exit(&a.holds) }

// TestObserverEndsGoroutine: an observer that ends the goroutines of the client, which make
// connections and read, leaves the client at work.
func TestObserverEndsGoroutine(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	ctx := testContext(t)
	c, err := client.New(client.Config{Endpoints: []string{srv.Addr()}, Observer: new(exiting)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseWithoutRelease)
	// own runs a call on a goroutine of its own, which the observer may end: that is the caller's.
	own := func(f func() error) {
		t.Helper()
		err := errors.New("the observer ended the call")
		done := make(chan struct{})
		go func() {
			defer close(done)
			err = f()
		}()
		select {
		case <-done:
		case <-ctx.Done():
			t.Fatal("a call does not return")
		}
		if err != nil {
			t.Log(err)
		}
	}
	for i := range 3 {
		var s *client.Session
		for s == nil {
			own(func() (err error) {
				s, err = c.Session(ctx, "/default")
				return err
			})
		}
		var l *client.Lease
		for l == nil {
			own(func() (err error) {
				l, err = s.Mutex("name").Lock(ctx)
				return err
			})
		}
		if i < 2 {
			own(func() error { return s.Close(ctx) })
		}
		srv.DropConnections()
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = c.Close()
	}()
	select {
	case <-closed:
	case <-ctx.Done():
		t.Fatal("the client is not closed")
	}
}

// TestConfiguredEndsGoroutine: what a configuration gives and connects with may end its goroutine too. The
// call that waits for a connection is told, and a client that has one makes the next one.
func TestConfiguredEndsGoroutine(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	ctx := testContext(t)
	for what, cfg := range map[string]client.Config{
		"GetToken":   {GetToken: func(context.Context) ([]byte, error) { runtime.Goexit(); return nil, nil }},
		"GetRootCAs": {GetRootCAs: func(context.Context) (*x509.CertPool, error) { runtime.Goexit(); return nil, nil }},
	} {
		cfg.Endpoints = []string{srv.Addr()}
		if what == "GetRootCAs" {
			cfg.TLS = new(tls.Config)
		}
		if c, err := client.Open(ctx, cfg); err == nil || !strings.Contains(err.Error(), what+" ended its goroutine") {
			t.Errorf("%s that ends its goroutine: %v", what, err)
			c.CloseWithoutRelease()
		}
	}
	var dials atomic.Int32
	c, err := client.Open(ctx, client.Config{Endpoints: []string{srv.Addr()},
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			exit(&dials)
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}})
	if err != nil {
		t.Fatalf("after %d dials: %v", dials.Load(), err)
	}
	must(t, c.Close())
}

// TestCallbackPanics: a panic of a callback ends the program as that panic.
func TestCallbackPanics(t *testing.T) {
	t.Parallel()
	if os.Getenv("CALLBACK_PANICS") != "" {
		srv := servertest.Start(t)
		s := session(t, dial(t, srv), client.OnState(func(client.State) { panic("of the program") }))
		_ = s.Close(testContext(t))
		<-testContext(t).Done()
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestCallbackPanics$")
	cmd.Env = append(os.Environ(), "CALLBACK_PANICS=1")
	out, err := cmd.CombinedOutput()
	if text := string(out); err == nil || !strings.Contains(text, "panic: of the program") || strings.Contains(text, "mutex") {
		t.Errorf("the program ends with %v:\n%s", err, out)
	}
}
