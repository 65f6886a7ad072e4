package recipes_test

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/recipes"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// TestOnce: of all sessions one runs the task in a period, with a number that rises, and no run
// begins before the last one has ended.
func TestOnce(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	ctx := testContext(t)
	c := dial(t, srv)
	const day = 24 * time.Hour
	var runs, running atomic.Int64
	proceed := make(chan struct{})
	run := func(ctx context.Context, p recipes.Period) error {
		if running.Add(1) != 1 {
			t.Error("two runs at once")
		}
		defer running.Add(-1)
		if runs.Add(1); p.Number%86400 != 0 || !p.Start.Equal(time.Unix(int64(p.Number), 0)) || p.Lease.Lost() != nil {
			t.Errorf("period %+v", p)
		}
		<-proceed
		return ctx.Err()
	}
	type outcome struct {
		ran bool
		err error
	}
	outcomes := make(chan outcome, 3)
	for range 3 {
		s := session(t, c)
		go func() {
			ran, err := recipes.NewOnce(s, "task", day).Run(ctx, run)
			outcomes <- outcome{ran, err}
		}()
	}
	for range 2 { // while it runs, the others know that there is nothing to do
		if o := <-outcomes; o.ran || o.err != nil {
			t.Fatalf("beside a run: %+v", o)
		}
	}
	s := session(t, c)
	rewind := func() { // as if the next day had come
		t.Helper()
		_, err := s.Update(ctx, "task", []byte(`{"period":86400,"once":true}`))
		must(t, err)
	}
	rewind()
	if ran, err := recipes.NewOnce(s, "task", day).Run(ctx, run, client.Wait(0)); ran || !errors.Is(err, client.ErrNotAcquired) {
		t.Errorf("the next period beside a run of the one before: %t, %v", ran, err)
	}
	close(proceed)
	if o := <-outcomes; !o.ran || o.err != nil {
		t.Errorf("the run: %+v", o)
	}
	rewind()
	failed := errors.New("failed")
	if ran, err := recipes.NewOnce(s, "task", day).Run(ctx, func(context.Context, recipes.Period) error { return failed }); !ran || !errors.Is(err, failed) {
		t.Errorf("a run that fails: %t, %v", ran, err)
	}
	if ran, err := recipes.NewOnce(s, "task", day).Run(ctx, run); ran || err != nil {
		t.Errorf("after a run that failed: %t, %v", ran, err)
	}

	// A run of the same session is waited for as one of any other.
	began, proceed := make(chan struct{}), make(chan struct{})
	rewind()
	go func() {
		ran, err := recipes.NewOnce(s, "task", day).Run(ctx, func(context.Context, recipes.Period) error {
			close(began)
			<-proceed
			return nil
		})
		outcomes <- outcome{ran, err}
	}()
	<-began
	rewind()
	if ran, err := recipes.NewOnce(s, "task", day).Run(ctx, run, client.Wait(0)); ran || !errors.Is(err, client.ErrNotAcquired) {
		t.Errorf("the next period beside a run of the session: %t, %v", ran, err)
	}
	rewind()
	taken := func() bool {
		sem, err := s.Node().Describe(ctx, "task")
		return err == nil && !bytes.Contains(sem.Data, []byte(`"period":86400,`))
	}
	stopped, stop := context.WithCancel(ctx)
	other := session(t, c)
	go func() { // it is stopped while it waits, and gives the period back
		ran, err := recipes.NewOnce(other, "task", day).Run(stopped, run)
		outcomes <- outcome{ran, err}
	}()
	await.True(t, "the next period to be taken", taken)
	stop()
	if o := <-outcomes; o.ran || !errors.Is(o.err, context.Canceled) {
		t.Errorf("a call that is stopped while it waits: %+v", o)
	}
	if taken() {
		t.Error("a call that was stopped while it waited has used up the period")
	}
	go func() {
		ran, err := recipes.NewOnce(s, "task", day).Run(ctx, func(context.Context, recipes.Period) error { return nil })
		outcomes <- outcome{ran, err}
	}()
	await.True(t, "the next period to be taken", taken)
	close(proceed)
	for range 2 {
		if o := <-outcomes; !o.ran || o.err != nil {
			t.Errorf("runs of one session: %+v", o)
		}
	}
	if runs.Load() != 1 {
		t.Errorf("%d runs", runs.Load())
	}
	if _, err := recipes.NewOnce(s, "task", 1500*time.Millisecond).Run(ctx, run); !errors.Is(err, client.ErrBadRequest) {
		t.Errorf("a period of a second and a half: %v", err)
	}
}

// TestOnceKeepsThePeriod: options that an acquire refuses use up no period.
func TestOnceKeepsThePeriod(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := session(t, dial(t, servertest.Start(t)))
	once := recipes.NewOnce(s, "task", 24*time.Hour)
	task := func(context.Context, recipes.Period) error { return nil }
	for name, option := range map[string]client.AcquireOption{
		"Count": client.Count(2), "HoldWhileWaiting": client.HoldWhileWaiting(time.Minute),
	} {
		if ran, err := once.Run(ctx, task, option); ran || !errors.Is(err, client.ErrBadRequest) {
			t.Errorf("%s: %t, %v", name, ran, err)
		}
	}
	if ran, err := once.Run(ctx, task); !ran || err != nil {
		t.Errorf("after what was refused: %t, %v", ran, err)
	}
}

// TestOnceRepeats: a run's result is kept. With UntilSuccess another process repeats a run that
// failed, and one whose process died in the middle, which it waits for; a run that succeeded is
// repeated with Again alone. Fencing tokens rise with each run.
func TestOnceRepeats(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	ctx := testContext(t)
	const day = 24 * time.Hour
	first := session(t, dial(t, srv), client.Description("first"))
	second := session(t, dial(t, srv), client.Description("second"))
	token := uint64(0)
	run := func(s *client.Session, wantRun bool, result error, opts ...recipes.OnceOption) {
		t.Helper()
		ran, err := recipes.NewOnce(s, "task", day, opts...).Run(ctx, func(_ context.Context, p recipes.Period) error {
			if p.Lease.Token() <= token || p.Number%86400 != 0 {
				t.Errorf("token %d after %d, period %d", p.Lease.Token(), token, p.Number)
			}
			token = p.Lease.Token()
			return result
		})
		if ran != wantRun || !errors.Is(err, result) {
			t.Errorf("ran %t, want %t; %v", ran, wantRun, err)
		}
	}
	last := func(by *client.Session, description, text string, ended bool) {
		t.Helper()
		r, err := recipes.NewOnce(second, "task", day).Last(ctx)
		must(t, err)
		if r.SessionID != by.ID() || r.By != description || r.Error != text || r.Ended.IsZero() == ended ||
			r.Succeeded() != (ended && text == "") || r.Began.IsZero() || r.Period%86400 != 0 || r.Period == 0 {
			t.Errorf("the last run is %+v", r)
		}
	}
	if r, err := recipes.NewOnce(second, "task", day).Last(ctx); err != nil || r != (recipes.OnceRun{}) {
		t.Errorf("before any run: %+v, %v", r, err)
	}
	failed := errors.New("failed")
	run(first, true, failed)
	last(first, "first", "failed", true)
	run(second, false, nil)
	run(second, true, failed, recipes.UntilSuccess())
	last(second, "second", "failed", true)
	run(first, true, nil, recipes.UntilSuccess())
	run(second, false, nil, recipes.UntilSuccess())
	last(first, "first", "", true)

	// The second process waits for a run of another one, which dies in the middle of it.
	killedClient := dial(t, srv)
	killed := session(t, killedClient, client.Description("killed"), client.Timeout(10*time.Second))
	began, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = recipes.NewOnce(killed, "task", day, recipes.Again()).Run(ctx, func(ctx context.Context, p recipes.Period) error {
			token = p.Lease.Token()
			close(began)
			<-ctx.Done()
			return nil
		})
	}()
	<-began
	last(killed, "killed", "", false)
	if r, err := recipes.NewOnce(second, "task", day).Last(ctx); err != nil || !r.Running {
		t.Errorf("beside the run: %+v, %v", r, err)
	}
	run(second, false, nil)
	if ran, err := recipes.NewOnce(second, "task", day, recipes.UntilSuccess()).Run(ctx, nil, client.Wait(0)); ran || !errors.Is(err, client.ErrNotAcquired) {
		t.Errorf("a repeat beside the run: %t, %v", ran, err)
	}
	killedClient.CloseWithoutRelease()
	<-ended
	repeated := make(chan struct{})
	go func() {
		defer close(repeated)
		run(second, true, nil, recipes.UntilSuccess())
	}()
	await.True(t, "the second process to wait", func() bool {
		sem, err := first.Node().Describe(ctx, "task")
		return err == nil && sem.NumWaiters == 1
	})
	srv.Advance(11 * time.Second)
	<-repeated
	last(second, "second", "", true)
	run(first, true, nil, recipes.Again())
	last(first, "first", "", true)
}
