package governor

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// Run carries out plans while this instance leads the meta shard, until ctx ends; then it waits for the steps under way and returns.
func (g *Governor) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { g.watchChanges(ctx) })

	l := loop{
		Governor:        g,
		workers:         &running,
		results:         make(chan stepResult, maxInFlight), // a slot for each step under way: none blocks when the loop has ended
		inFlight:        make(map[stepKey]bool),
		locked:          make(map[stepKey]bool),
		inFlightByShard: make(map[uint64]int),
	}
	l.reset()
	for ctx.Err() == nil {
		changed := g.changes.wait()
		pause := l.reconcile(ctx)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C:
		case o := <-l.results:
			l.finish(o)
		}
		timer.Stop()
	}
}

// loop is the state of Run, owned by its goroutine.
type loop struct {
	*Governor
	workers         *sync.WaitGroup
	results         chan stepResult
	inFlight        map[stepKey]bool
	locked          map[stepKey]bool       // of those under way
	inFlightByShard map[uint64]int         // how many are under way by shard
	retries         map[stepKey]retryState // failed steps
	progress        *Progress
}

// maxInFlight bounds the steps under way in all.
const maxInFlight = 1024

// hold is how long a failed step rests.
type retryState struct {
	until      time.Time
	delay      time.Duration
	failures   int // in a row that failed
	unexpected int // of these, those that were not to be expected
}

// retryStateTTL is how long failures of a step are remembered that is not tried: its try may take twice
// StepTimeout, and so may that of another one in its lane.
const retryStateTTL = 4 * StepTimeout

// warnAfter is how many times a step fails before that is worth a warning.
const warnAfter = 3

type stepResult struct {
	step         Step
	began, ended time.Duration
	answer       Answer
	err          error
}

// idle is the longest pause between two looks. Everything that matters wakes the loop before; it only bounds what a clock that was stepped by hand, or a
// leadership that was gained in silence, can cost.
const maxIdle = time.Second

// forget drops what is remembered while another governor leads. A step that ends later is noted all the same: what was done stays done.
func (l *loop) reset() {
	l.progress = NewProgress()
	l.retries = make(map[stepKey]retryState)
}

// round starts what can be started and returns how long there is nothing to do if nothing happens.
func (l *loop) reconcile(ctx context.Context) time.Duration {
	for len(l.results) > 0 {
		l.finish(<-l.results)
	}
	if !l.meta.Leading() {
		l.reset()
		return maxIdle
	}
	// What nobody plans any more is forgotten.
	maps.DeleteFunc(l.retries, func(k stepKey, h retryState) bool { return !l.inFlight[k] && time.Since(h.until) > retryStateTTL })
	v := l.view()
	v.Progress = l.progress
	l.progress.Update(v)
	p, now := newPlan(v), v.Now
	l.lastPlan.Store(p)
	l.planned.wake()
	pause := maxIdle
	if slices.ContainsFunc(p.waits, func(w Wait) bool { return w.Kind != Outside }) {
		pause = Backoff // time passes, and how far a replica has caught up wakes nobody
	}
	for _, step := range l.prioritize(p.steps) {
		key := step.key()
		if l.inFlight[key] || l.isLocked(&step) || len(l.inFlight) >= maxInFlight || (step.Shard != 0 && l.inFlightByShard[step.Shard] >= MaxStepsPerShard) {
			continue
		}
		if rest := time.Until(l.retries[key].until); rest > 0 {
			pause = min(pause, rest)
			continue
		}
		if step.At > now {
			pause = min(pause, step.At-now)
			continue
		}
		l.start(ctx, step)
	}
	return pause
}

// prioritize is the order in which steps are tried. Of the transfers, which go one after the other,
// those come first that have failed least: two that fail must not keep the others from their turn.
// The plan is left as it is: it is shown.
func (l *loop) prioritize(plan []Step) []Step {
	rank := func(s *Step) int {
		if s.Kind != TransferLeader {
			return 0
		}
		return 1 + l.retries[s.key()].failures
	}
	steps := slices.Clone(plan)
	slices.SortStableFunc(steps, func(a, b Step) int { return cmp.Compare(rank(&a), rank(&b)) })
	return steps
}

func (l *loop) start(ctx context.Context, step Step) {
	l.inFlight[step.key()] = true
	l.inFlightByShard[step.Shard]++
	for _, lock := range step.locks() {
		l.locked[lock] = lock != stepKey{}
	}
	l.workers.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, step.timeout())
		defer cancel()
		o := stepResult{step: step, began: l.clock.Now()}
		o.answer, o.err = l.execute(ctx, &step)
		o.ended = l.clock.Now()
		l.results <- o
	})
}

// occupied says that a lane of the step is in use.
func (l *loop) isLocked(s *Step) bool {
	for _, lock := range s.locks() {
		if l.locked[lock] {
			return true
		}
	}
	return false
}

func (l *loop) finish(o stepResult) {
	key := o.step.key()
	delete(l.inFlight, key)
	for _, lock := range o.step.locks() {
		delete(l.locked, lock)
	}
	if l.inFlightByShard[o.step.Shard]--; l.inFlightByShard[o.step.Shard] == 0 {
		delete(l.inFlightByShard, o.step.Shard)
	}
	before := l.retries[key]
	if o.err == nil {
		l.stepsDone.Add(1)
		delete(l.retries, key)
		l.log.Debug("governor step done", "step", o.step.String(), "took", o.ended-o.began)
		l.progress.Done(&o.step, o.began, o.ended, o.answer)
		return
	}
	l.stepsFailed.Add(1)
	rest := min(max(Backoff, 2*before.delay), MaxBackoff)
	now := retryState{until: time.Now().Add(rest), delay: rest, failures: before.failures + 1, unexpected: before.unexpected}
	if !errors.Is(o.err, ErrLater) {
		now.unexpected++
	}
	l.retries[key] = now
	// A step may meet one that is under way already, or a change that this instance has not heard
	// of yet: that is expected, and over with the next try or two.
	level := slog.LevelDebug
	if now.unexpected == warnAfter && before.unexpected < warnAfter {
		level = slog.LevelWarn
	}
	l.log.Log(context.Background(), level, "governor step failed, will be retried", "step", o.step.String(), "error", o.err)
}

// view is what there is to see now, without a memory of what was done.
func (g *Governor) view() View {
	return View{State: g.State(), Now: g.clock.Now(), Health: g.health(), OfflineAfter: g.offlineAfter}
}
