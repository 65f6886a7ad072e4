package driver

import (
	"context"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/boottime"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// TestContextsReadTheClock stops the timer of a driver, as a stop of its process does. At the first
// look after the deadline the contexts of the lease and of the session are over.
func TestContextsReadTheClock(t *testing.T) {
	srv := servertest.Start(t)
	d := New(Config{Endpoints: []string{srv.Addr()}, Name: "test"})
	t.Cleanup(d.Close)
	for _, look := range []string{"lease", "session"} {
		t.Run(look, func(t *testing.T) {
			s, l := d.NewSession(), new(Lease)
			s.Path, s.Timeout = "/default", 500*time.Millisecond
			if r := s.Start(t.Context()); r.Err != nil {
				t.Fatal(r.Err)
			}
			whole := AcquireOptions{Count: protocol.Forever, Timeout: protocol.Forever, Ephemeral: true, Turn: core.Free}
			if r := s.Acquire(t.Context(), look, whole, l, nil); r.Err != nil {
				t.Fatal(r.Err)
			}
			ctx := map[string]context.Context{"lease": l.Context(), "session": s.Context()}[look]
			now := d.beginStep()
			d.timer.Stop()
			d.armed = 1 // nobody arms it
			d.endStep(now)
			defer d.tick()
			for boottime.Now() < now+s.Timeout { // and makes no look
				time.Sleep(10 * time.Millisecond)
			}
			if ctx.Err() == nil {
				t.Errorf("the deadline has passed, and the context of the %s is not over", look)
			}
			select {
			case <-ctx.Done():
			default:
				t.Error("the look has not ended the context")
			}
		})
	}
}
