package discovery_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/discovery"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// TestEndWaits: neither Drain nor the client's Close returns while a function of OnState runs.
func TestEndWaits(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(r *discovery.Registration) error{
		"drain": func(r *discovery.Registration) error { return r.Drain(context.Background(), 0) },
		"close": func(r *discovery.Registration) error { return r.Session().Client().Close() },
	} {
		t.Run(name, func(t *testing.T) {
			srv := servertest.Start(t, servertest.RealTime())
			n, operator := openNode(t, srv, "/default"), startSession(t, srv)
			called, proceed := make(chan struct{}), make(chan struct{})
			returned := false // guarded by what waits for it
			r, err := discovery.Register(t.Context(), startSession(t, srv), "api", discovery.Endpoint{Addr: "10.0.0.1:80"},
				discovery.OnState(func(discovery.State, string) {
					close(called)
					<-proceed
					returned = true
				}))
			must(t, err)
			must(t, discovery.RequestDrain(t.Context(), operator, "api", r.Session().ID(), "a test"))
			<-called
			ended := make(chan error, 1)
			go func() { ended <- end(r) }()
			<-r.Done()
			for got := "?"; got != ""; { // the answer is on its way
				got = members(t, n)
			}
			select {
			case <-ended:
				close(proceed)
				t.Fatal("it is over while a function runs")
			default:
			}
			close(proceed)
			must(t, <-ended)
			if !returned {
				t.Error("it is over before the function has returned")
			}
		})
	}
}

// TestOnStateEndsGoroutine: a function that ends its goroutine, as FailNow of a test does, is called
// again with the next state.
func TestOnStateEndsGoroutine(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	states, operator := make(chan discovery.State, 2), startSession(t, srv)
	r, err := discovery.Register(t.Context(), startSession(t, srv), "api", discovery.Endpoint{Addr: "10.0.0.1:80"},
		discovery.OnState(func(state discovery.State, _ string) {
			states <- state
			runtime.Goexit()
		}))
	must(t, err)
	must(t, discovery.RequestDrain(t.Context(), operator, "api", r.Session().ID(), "a test"))
	if state := <-states; state != discovery.Draining {
		t.Error(state)
	}
	must(t, discovery.CancelDrain(t.Context(), operator, "api", r.Session().ID()))
	select {
	case state := <-states:
		if state != discovery.Ready {
			t.Error(state)
		}
	case <-t.Context().Done():
		t.Fatal("it is not called again")
	}
	must(t, r.Drain(t.Context(), 0))
}

func startSession(t *testing.T, srv *servertest.Server) *client.Session {
	t.Helper()
	s, err := dial(t, srv).Session(t.Context(), "/default")
	must(t, err)
	return s
}
