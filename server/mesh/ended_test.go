package mesh

import (
	"context"
	"testing"
)

// TestEnded: the end of a peer's process is told, a connection that was reset is not.
func TestEnded(t *testing.T) {
	n := NewMemoryNetwork()
	told := make(chan string, 16)
	a := startMesh(t, memoryConfig(n, "a:1"), func(m *Mesh) { m.OnEnded(func(_ context.Context, address string) { told <- address }) })
	b := startMesh(t, memoryConfig(n, "b:1"), nil)
	c := startMesh(t, memoryConfig(n, "c:1"), nil)
	open := func(m *Mesh) {
		t.Helper()
		if _, err := m.dial(t.Context(), "a:1", purposeRaft); err != nil {
			t.Fatal(err)
		}
	}
	open(b)
	open(c)
	await(t, "two connections", func() bool { return a.count.inbound.Load() == 2 })

	n.Reset("a:1", "b:1")
	await(t, "the end of one", func() bool { return a.count.inbound.Load() == 1 })
	if a.Ended(t.Context(), "b:1") {
		t.Error("who listens has not ended")
	}
	await(t, "a verdict", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.ending) == 0
	})
	if len(told) > 0 {
		t.Errorf("%s is said to have ended, and lives", <-told)
	}

	open(b)
	_ = c.Close()
	if address := <-told; address != "c:1" {
		t.Errorf("%s is said to have ended", address)
	}
	if !a.Ended(t.Context(), "c:1") {
		t.Error("nobody listens there")
	}
	// What is cut off may live.
	n.CutBoth("a:1", "b:1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if a.Ended(ctx, "b:1") {
		t.Error("who is cut off has not ended")
	}
}
