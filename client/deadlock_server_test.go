package client_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
)

// explain is ExplainWait of a session, again if a busy machine did not answer in time.
func explain(ctx context.Context, s *client.Session, name string) (*client.QueueStatus, error) {
	for {
		st, err := s.Node().ExplainWait(ctx, name, s.ID())
		if err != nil || st.Unread == "" {
			return st, err
		}
	}
}

func TestDeadlockIsExplained(t *testing.T) {
	t.Parallel()
	node := shared.Node(t)
	ctx := testContext(t)
	c := dial(t, node)
	a, b, outside := session(t, c, client.Description("job a")), session(t, c, client.Description("job b")), session(t, c)
	holdsX, holdsY := acquire(t, a, "x", client.Exclusive()), acquire(t, b, "y", client.Exclusive())
	toY, placeY := queue(t, a, "y", client.Exclusive())

	// One that waits for one who works is not deadlocked.
	st, err := explain(ctx, a, "y")
	if err != nil || st.Deadlock != nil || len(st.Behind) != 0 || st.Unread != "" {
		t.Fatalf("why: %+v, %v", st, err)
	}
	toX, placeX := queue(t, b, "x", client.Exclusive(), client.Wait(client.Forever))
	st, err = explain(ctx, a, "y")
	must(t, err)
	ids := []uint64{a.ID(), b.ID()}
	slices.Sort(ids)
	d := st.Deadlock
	if d == nil || !d.Confirmed || !slices.Equal(d.Sessions, ids) || len(d.Steps) != 2 || !d.Has(a.ID()) || d.Has(outside.ID()) {
		t.Fatalf("deadlock: %+v", d)
	}
	one, two := d.Steps[0], d.Steps[1]
	if one.Session != a.ID() || one.Name != "y" || one.Place != placeY || one.By != b.ID() || !one.Holds || one.Token != holdsY.Token() ||
		one.Description != "job a" || one.ByDescription != "job b" || one.Since.IsZero() || !one.Ends.IsZero() {
		t.Errorf("first step %+v", one)
	}
	if two.Session != b.ID() || two.Name != "x" || two.Place != placeX || two.By != a.ID() || two.Token != holdsX.Token() {
		t.Errorf("second step %+v", two)
	}
	if text := one.String(); !strings.Contains(text, "(job a) waits for y since ") || !strings.Contains(text, "(job b) holds since ") {
		t.Error(text)
	}

	// One behind it is told so, and what it waits for.
	behind, _ := queue(t, outside, "x", client.Exclusive())
	st, err = explain(ctx, outside, "x")
	if err != nil || st.Deadlock == nil || st.Deadlock.Has(outside.ID()) || len(st.Behind) != 1 || st.Behind[0].Session != a.ID() {
		t.Errorf("behind: %+v, %v", st, err)
	}
	release(t, holdsX)
	release(t, toX.must(t))
	release(t, holdsY)
	release(t, toY.must(t))
	release(t, behind.must(t))
}

// TestCycleWithAnOwnerOutside: one owner outside a cycle may give back what is missing.
func TestCycleWithAnOwnerOutside(t *testing.T) {
	t.Parallel()
	node := shared.Node(t)
	ctx := testContext(t)
	c := dial(t, node)
	a, b, outside := session(t, c), session(t, c), session(t, c)
	must(t, a.Create(ctx, "two", 2, nil))
	two, other := acquire(t, a, "two"), acquire(t, outside, "two")
	lock := acquire(t, b, "lock", client.Exclusive())
	toLock, _ := queue(t, a, "lock", client.Exclusive())
	toTwo, _ := queue(t, b, "two")
	st, err := explain(ctx, a, "lock")
	if err != nil || st.Deadlock != nil || len(st.Behind) != 1 || st.Behind[0].Session != b.ID() || st.Behind[0].Name != "two" {
		t.Errorf("why: %+v, %v", st, err)
	}
	release(t, other)
	release(t, toTwo.must(t))
	release(t, lock)
	release(t, toLock.must(t))
	release(t, two)
}

// TestNeverGrantedOnSlots: slots that a waiter takes are drained.
func TestNeverGrantedOnSlots(t *testing.T) {
	t.Parallel()
	node := shared.Node(t)
	ctx := testContext(t)
	c := dial(t, node)
	a, b := session(t, c), session(t, c)
	must(t, a.Create(ctx, "gpu", 2, nil, client.SemaphoreConfig{
		Slots: []client.Slot{{Name: "g0"}, {Name: "g1", Labels: []string{"big"}}}}))
	held := acquire(t, a, "gpu", client.Labels("big"))
	waits, _ := queue(t, b, "gpu", client.Labels("big"))
	st, err := explain(ctx, b, "gpu")
	must(t, err)
	if _, never := st.NeverGranted(); never || len(st.Config.Takes(&st.Own)) != 1 {
		t.Errorf("while it is only held: %+v", st)
	}
	must(t, a.Drain(ctx, "gpu", []string{"g1"}))
	st, err = explain(ctx, b, "gpu")
	must(t, err)
	if w, never := st.NeverGranted(); !never || w.Session != b.ID() {
		t.Errorf("while it is drained: %+v", st)
	}
	must(t, a.Undrain(ctx, "gpu", []string{"g1"}))
	release(t, held)
	release(t, waits.must(t))
	if _, err := a.Node().ExplainWait(ctx, "none", a.ID()); !errors.Is(err, client.ErrNotFound) {
		t.Error(err)
	}
}

// TestFailOnDeadlock: of three sessions that wait for each other the one with the highest id fails,
// of those that may; the others finish.
func TestFailOnDeadlock(t *testing.T) {
	t.Parallel()
	node := shared.Node(t)
	ctx := testContext(t)
	c := dial(t, node)
	sessions := []*client.Session{session(t, c), session(t, c), session(t, c)}
	slices.SortFunc(sessions, func(a, b *client.Session) int { return cmp.Compare(a.ID(), b.ID()) })
	names := []string{"one", "two", "three"}
	must(t, sessions[0].Create(ctx, "two", 1, nil))
	lock := func(i int) []client.AcquireOption {
		if names[i] == "two" {
			return nil
		}
		return []client.AcquireOption{client.Exclusive()}
	}
	var held []*client.Lease
	for i, s := range sessions {
		held = append(held, acquire(t, s, names[i], lock(i)...))
	}
	var waits []outcome[*client.Lease]
	for i, s := range sessions {
		next := (i + 1) % len(sessions)
		opts := lock(next)
		if i < 2 { // the session with the highest id must not be chosen
			opts = append(opts, client.FailOnDeadlock())
		}
		w, _ := queue(t, s, names[next], opts...)
		waits = append(waits, w)
	}
	_, err := waits[1].get()
	dead, ok := errors.AsType[*client.DeadlockError](err)
	if !errors.Is(err, client.ErrDeadlock) || !ok || len(dead.Deadlock.Steps) != 3 || dead.Deadlock.Steps[0].Session != sessions[1].ID() {
		t.Fatalf("the session with the flag and the highest id: %v", err)
	}
	release(t, held[1])
	release(t, waits[0].must(t))
	release(t, held[0])
	release(t, waits[2].must(t))
	release(t, held[2])
}
