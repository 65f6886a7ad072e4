package client_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
)

func TestQueuesAgainstAServer(t *testing.T) {
	t.Parallel()
	node := shared.Node(t)
	ctx := testContext(t)
	c := dial(t, node)
	a, b, d := session(t, c, client.Description("a")), session(t, c), session(t, c)

	t.Run("priorities", func(t *testing.T) {
		if err := a.Create(ctx, "prio", 1, nil, client.SemaphoreConfig{Policy: client.PolicyPriority}); err != nil {
			t.Fatal(err)
		}
		held := acquire(t, a, "prio")
		low, place := queue(t, b, "prio", client.Priority(1))
		high, _ := queue(t, d, "prio", client.Priority(8), client.Key("k"))
		st, err := b.Node().ExplainWait(ctx, "prio", b.ID())
		if err != nil || st.Position != 2 || len(st.Ahead) != 1 || st.Ahead[0].Session != d.ID() || st.Ahead[0].Key != "k" {
			t.Fatalf("why: %+v, %v", st, err)
		}
		release(t, held)
		first := high.must(t)
		if err := first.UpdateData(ctx, []byte("x")); err != nil {
			t.Fatal(err)
		}
		sem, err := a.Node().Describe(ctx, "prio", client.IncludeOwners())
		if err != nil || sem.Config == nil || sem.Config.Policy != client.PolicyPriority || sem.Owners[0].Priority != 8 ||
			sem.Owners[0].Key != "k" {
			t.Fatalf("described as %+v, %v", sem, err)
		}
		release(t, first)
		second := low.must(t)
		if second.Token() <= first.Token() || second.Token() <= place {
			t.Errorf("token %d after %d, place %d", second.Token(), first.Token(), place)
		}
		release(t, second)
		n, err := c.Node(ctx, node.Path())
		if err != nil {
			t.Fatal(err)
		}
		history, err := n.History(ctx, "prio")
		if err != nil || len(history) != 3 || history[0].Token != second.Token() || history[2].Description != "a" ||
			history[0].Cause != "released" {
			t.Errorf("history %+v, %v", history, err)
		}
	})

	t.Run("slots", func(t *testing.T) {
		gpu := []client.Slot{{Name: "g0"}, {Name: "g1", Labels: []string{"mem=80"}}, {Name: "g2", Labels: []string{"mem=80"}}}
		if err := a.Create(ctx, "gpu", 3, nil, client.SemaphoreConfig{Slots: gpu}); err != nil {
			t.Fatal(err)
		}
		if err := a.Drain(ctx, "gpu", []string{"g1"}, client.Reason("its fan is broken")); err != nil {
			t.Fatal(err)
		}
		l := acquire(t, a, "gpu", client.Labels("mem=80"))
		if got := l.Slots(); !slices.Equal(got, []string{"g2"}) {
			t.Fatalf("got the slots %q", got)
		}
		if _, err := b.Acquire(ctx, "gpu", client.Labels("mem=80"),
			client.Count(3)); !errors.Is(err, client.ErrBadRequest) {
			t.Errorf("acquired three of two: %v", err)
		}
		waits, _ := queue(t, b, "gpu", client.Slots("g0", "g2"))
		release(t, l)
		two := waits.must(t)
		if err := two.Reduce(ctx, 1, client.Keep("g2")); err != nil || !slices.Equal(two.Slots(), []string{"g2"}) {
			t.Errorf("kept %q, %v", two.Slots(), err)
		}
		sem, err := a.Node().Describe(ctx, "gpu", client.IncludeSlots(), client.IncludeOwners())
		if err != nil {
			t.Fatal(err)
		}
		var states []client.SlotState
		for _, s := range sem.Config.Slots {
			states = append(states, s.State)
		}
		if want := []client.SlotState{client.SlotFree, client.SlotDrained, client.SlotHeld}; !slices.Equal(states, want) {
			t.Errorf("slots are %v, want %v", states, want)
		}
		if err := a.Drain(ctx, "gpu", []string{"g0", "none"}); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("drained a slot that there is not: %v", err)
		}
		release(t, two)
	})

	t.Run("transfer", func(t *testing.T) {
		for _, opts := range [][]client.AcquireOption{nil, {client.Ephemeral(), client.Count(client.Max)}} {
			name := "baton" // passed by: b
			if opts != nil {
				name = "ephemeral baton"
			} else if err := a.Create(ctx, name, 1, nil, client.SemaphoreConfig{History: 2}); err != nil {
				t.Fatal(err)
			}
			held := acquire(t, a, name, opts...)
			if err := held.TransferTo(ctx, d.ID()); !errors.Is(err, client.ErrPreconditionFailed) || !held.Held() {
				t.Fatalf("transferred to a session that does not wait: %v, held %v", err, held.Held())
			}
			if err := held.TransferTo(ctx, a.ID()); !errors.Is(err, client.ErrBadRequest) || !held.Held() {
				t.Fatalf("transferred to itself: %v, held %v", err, held.Held())
			}
			first, _ := queue(t, b, name, opts...)
			second, place := queue(t, d, name, opts...)
			if err := held.TransferTo(ctx, d.ID()); err != nil {
				t.Fatal(err)
			}
			if held.Held() || held.Lost() != nil || !errors.Is(context.Cause(held.Context()), client.ErrReleased) {
				t.Errorf("transferred: held %v, lost %v", held.Held(), held.Lost())
			}
			got := second.must(t)
			if got.Token() <= place || got.Token() <= held.Token() {
				t.Errorf("token %d after %d, place %d", got.Token(), held.Token(), place)
			}
			if err := d.TransferTo(ctx, name, b.ID()); err != nil || got.Held() {
				t.Fatalf("transferred by name: %v, held %v", err, got.Held())
			}
			release(t, first.must(t))
		}
		history, err := a.Node().History(ctx, "baton")
		if err != nil || len(history) != 2 || history[1].Cause != "transferred" || history[0].Cause != "released" {
			t.Errorf("history %+v, %v", history, err)
		}
	})

	t.Run("transfer of slots that are not free", func(t *testing.T) {
		if err := a.Create(ctx, "seats", 2, nil, client.SemaphoreConfig{Numbered: true}); err != nil {
			t.Fatal(err)
		}
		left, right := acquire(t, a, "seats", client.Slots("0")), acquire(t, b, "seats", client.Slots("1"))
		wants, _ := queue(t, d, "seats", client.Slots("1"))
		if err := left.TransferTo(ctx, d.ID()); !errors.Is(err, client.ErrNotTransferred) || left.Held() {
			t.Errorf("transferred a slot that is not wanted: %v, held %v", err, left.Held())
		}
		if err := left.TransferTo(ctx, d.ID()); !errors.Is(err, client.ErrReleased) {
			t.Errorf("transferred again: %v", err)
		}
		release(t, right)
		release(t, wants.must(t))
	})

	t.Run("of an ephemeral semaphore", func(t *testing.T) {
		if _, err := a.Acquire(ctx, "eph", client.Ephemeral(),
			client.Priority(3)); !errors.Is(err, client.ErrBadRequest) {
			t.Errorf("acquired with a priority: %v", err)
		}
		if _, err := a.Acquire(ctx, "eph", client.Priority(10)); !errors.Is(err, client.ErrBadRequest) {
			t.Errorf("acquired with priority 10: %v", err)
		}
	})
}
