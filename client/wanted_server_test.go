package client_test

import (
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// TestWantedAgainstAServer: the owners that a waiter needs learn of it, and those alone.
func TestWantedAgainstAServer(t *testing.T) {
	srv := servertest.Start(t)
	ctx := testContext(t)
	c := dial(t, srv)
	a, b, d := session(t, c), session(t, c), session(t, c)
	err := a.Create(ctx, "crane", 2, nil, client.ByPriority(0), client.Wanted(client.WantedHigher), client.Grace(time.Hour),
		client.MinHold(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	other := acquire(t, a, "crane", client.Priority(6))
	low := acquire(t, b, "crane", client.Priority(2))
	if low.WantedBy() != 0 {
		t.Error("wanted before anybody waits")
	}
	high, _ := queue(t, d, "crane", client.Priority(7))
	select {
	case <-low.Wanted():
	case <-ctx.Done():
		t.Fatal("the owner never learns that it is wanted")
	}
	if low.WantedBy() != d.ID() {
		t.Errorf("wanted by %d, not by %d", low.WantedBy(), d.ID())
	}
	sem, err := a.Node().Describe(ctx, "crane", client.IncludeOwners())
	if err != nil || len(sem.Owners) != 2 || sem.Owners[0].Wanted || !sem.Owners[1].Wanted || sem.Owners[1].Silent ||
		sem.Options.Wanted != client.WantedHigher || sem.Options.Grace != time.Hour || sem.Options.MinHold != time.Minute {
		t.Fatalf("described as %+v, %v", sem, err)
	}
	release(t, low)
	release(t, high.must(t))
	select {
	case <-other.Wanted():
		t.Error("an owner that nobody needed is wanted")
	default:
	}
	release(t, other)
}
