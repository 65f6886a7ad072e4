package peer

import (
	"context"
	"testing"

	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/memorynet"
)

// TestProcessExited: the end of a peer's process is called, a connection that was reset is not.
func TestProcessExited(t *testing.T) {
	t.Parallel()
	n := memorynet.New()
	called := make(chan string, 16)
	a := startTransport(t, memoryConfig(n, "a:1"), func(m *Transport) {
		m.OnProcessExit(func(_ context.Context, address string) { called <- address })
	})
	b := startTransport(t, memoryConfig(n, "b:1"), nil)
	c := startTransport(t, memoryConfig(n, "c:1"), nil)
	open := func(m *Transport) {
		t.Helper()
		if _, err := m.dial(t.Context(), "a:1", purposeRaft); err != nil {
			t.Fatal(err)
		}
	}
	open(b)
	open(c)
	await.True(t, "two connections", func() bool { return a.stats.Inbound.Load() == 2 })

	n.Reset("a:1", "b:1")
	await.True(t, "the end of one", func() bool { return a.stats.Inbound.Load() == 1 })
	if a.ProcessExited(t.Context(), "b:1") {
		t.Error("a process that listens has not ended")
	}
	await.True(t, "a verdict", func() bool {
		a.exits.mu.Lock()
		defer a.exits.mu.Unlock()
		return len(a.exits.busy) == 0
	})
	if len(called) > 0 {
		t.Errorf("%s is said to have ended, and lives", <-called)
	}

	open(b)
	_ = c.Close()
	if address := <-called; address != "c:1" {
		t.Errorf("%s is said to have ended", address)
	}
	if !a.ProcessExited(t.Context(), "c:1") {
		t.Error("nobody listens there")
	}
	// An instance that is cut off may live.
	n.CutBoth("a:1", "b:1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if a.ProcessExited(ctx, "b:1") {
		t.Error("a process that is cut off has not ended")
	}
}
