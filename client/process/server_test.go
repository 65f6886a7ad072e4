package process_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/process"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }

// quiet is a handler that counts its ends.
type quiet struct {
	process.BaseHandler
	terminated int
}

func (*quiet) Prepare(*process.Round) error      { return nil }
func (*quiet) Coordinate(r *process.Round) error { return r.Complete(nil) }
func (h *quiet) Terminate()                      { h.terminated++ }

// TestNotServed: a server without processes refuses a join at once and in words; the handler is told of its end, and nothing of the attempt stays.
func TestNotServed(t *testing.T) {
	srv := servertest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := client.Dial(ctx, srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	s, err := c.Session(ctx, "/default", client.Timeout(30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		h := new(quiet)
		if p, err := process.Join(ctx, s, "queue", h, process.Options{}); p != nil || !errors.Is(err, client.Unsupported) {
			t.Fatalf("join gives %v, %v", p, err)
		}
		if h.terminated != 1 {
			t.Errorf("terminated %d times", h.terminated)
		}
	}
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := process.Join(ctx, s, "queue", new(quiet), process.Options{}); !errors.Is(err, client.ErrSessionClosed) {
		t.Errorf("join on a closed session: %v", err)
	}
}
