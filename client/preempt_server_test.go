package client_test

import (
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
)

// TestPreemptionAgainstAServer: the owners that a waiter needs learn of it, and those alone.
func TestPreemptionAgainstAServer(t *testing.T) {
	t.Parallel()
	node := shared.Node(t)
	ctx := testContext(t)
	c := dial(t, node)
	a, b, d := session(t, c), session(t, c), session(t, c)
	err := a.Create(ctx, "crane", 2, nil, client.SemaphoreConfig{Policy: client.PolicyPriority,
		Preempt: client.PreemptLower, Grace: time.Hour, MinHold: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	other := acquire(t, a, "crane", client.Priority(6))
	low := acquire(t, b, "crane", client.Priority(2))
	if low.PreemptedBy() != 0 {
		t.Error("preempted before anybody waits")
	}
	high, _ := queue(t, d, "crane", client.Priority(7))
	select {
	case <-low.Preempted():
	case <-ctx.Done():
		t.Fatal("the owner never learns that it is preempted")
	}
	if low.PreemptedBy() != d.ID() {
		t.Errorf("preempted by %d, not by %d", low.PreemptedBy(), d.ID())
	}
	sem, err := a.Node().Describe(ctx, "crane", client.IncludeOwners())
	if err != nil || len(sem.Owners) != 2 || sem.Owners[0].Preempted || !sem.Owners[1].Preempted || sem.Owners[1].Silent ||
		sem.Config.Preempt != client.PreemptLower || sem.Config.Grace != time.Hour || sem.Config.MinHold != time.Minute {
		t.Fatalf("described as %+v, %v", sem, err)
	}
	release(t, low)
	release(t, high.must(t))
	select {
	case <-other.Preempted():
		t.Error("an owner that nobody needed is preempted")
	default:
	}
	release(t, other)
}
