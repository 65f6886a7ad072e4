package integration

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// stuckLog is a log whose lines about changes of nodes take until they are let go.
type stuckLog struct {
	slog.Handler
	let chan struct{}
}

func (l stuckLog) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "node change asked" {
		<-l.let
	}
	return nil
}

func (l stuckLog) Enabled(context.Context, slog.Level) bool { return true }

// TestStuckLoopIsNotLive: an event loop that does nothing for some seconds is a reason to restart the
// process, until it goes on.
func TestStuckLoopIsNotLive(t *testing.T) {
	form.SkipUntil(t, form.Full, "a loop is stuck for seconds")
	t.Parallel()
	let := make(chan struct{})
	s := start(t, func(c *server.Config) { c.Logger = slog.New(stuckLog{slog.DiscardHandler, let}) })
	defer func() {
		if let != nil {
			close(let)
		}
	}()
	c := connect(t, s)
	if err := s.Live(); err != nil {
		t.Fatal(err)
	}
	c.write(protocol.AppendFrame(nil, protocol.KindNodeCreate, 1000, 0, &protocol.NodeCreate{Path: "/stuck"}))
	await.True(t, "the event loop to be missed", func() bool { return s.Live() != nil })
	if err := s.Live(); err != nil && !strings.Contains(err.Error(), "an event loop has done nothing for ") {
		t.Error(err)
	}
	close(let)
	let = nil
	await.True(t, "the event loop to turn", func() bool { return s.Live() == nil })
}
