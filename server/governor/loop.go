package governor

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/shard/replica/beat"
)

// Run executes plans while this instance leads the meta shard, until ctx ends. Then it waits for
// the steps in flight.
func (g *Governor) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { g.watchChanges(ctx) })

	l := loop{
		Governor:        g,
		workers:         &running,
		results:         make(chan stepResult, maxInFlight), // a slot for each step: none blocks after the loop ended
		inFlight:        make(map[stepKey]bool),
		locked:          make(map[stepKey]bool),
		inFlightByShard: make(map[uint64]int),
	}
	l.reset()
	for ctx.Err() == nil {
		changed := g.changes.wait()
		pause := l.reconcile(ctx)
		if pause == maxIdle {
			pause = beat.Next(maxIdle)
		}
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
	locked          map[stepKey]bool       // by steps in flight
	inFlightByShard map[uint64]int         // number of steps
	retries         map[stepKey]retryState // failed steps
	progress        *Progress
}

// maxInFlight bounds the steps in flight.
const maxInFlight = 1024

// retryState is the state of a failed step that is retried.
type retryState struct {
	until    time.Time
	delay    time.Duration
	failures int // in a row
}

// retryStateTTL is how long the failures of a step are remembered after its last try. A try may
// take twice StepTimeout, and so may that of another step that holds the same lock.
const retryStateTTL = 4 * StepTimeout

// warnAfter is how many failures of a step in a row cause a warning.
const warnAfter = 3

type stepResult struct {
	step         Step
	began, ended time.Duration
	answer       Answer
	err          error
}

// maxIdle is the longest pause between two plans. Every relevant change wakes the loop earlier. The
// limit matters only if a clock was stepped by hand, or leadership came without a notification.
const maxIdle = time.Second

// reset drops the loop's memory while another governor leads. The result of a step that ends later
// is still recorded.
func (l *loop) reset() {
	l.progress = NewProgress()
	l.retries = make(map[stepKey]retryState)
}

// reconcile starts the steps that can start, and returns the pause until the next look.
func (l *loop) reconcile(ctx context.Context) time.Duration {
	for len(l.results) > 0 {
		l.finish(<-l.results)
	}
	if !l.meta.Leading() {
		l.reset()
		return maxIdle
	}
	// Forget steps that are not planned any more.
	maps.DeleteFunc(l.retries, func(k stepKey, h retryState) bool {
		return !l.inFlight[k] && time.Since(h.until) > retryStateTTL
	})
	v := l.view()
	v.Progress = l.progress
	l.progress.Update(v)
	p, now := newPlan(v), v.Now
	l.lastPlan.Store(p)
	l.planned.wake()
	pause := maxIdle
	if slices.ContainsFunc(p.waits, func(w Wait) bool { return w.Kind != Outside }) {
		pause = Backoff // time passes, and the progress of a replica wakes nobody
	}
	for _, step := range l.prioritize(p.steps) {
		key := step.key()
		if l.inFlight[key] || l.isLocked(&step) || len(l.inFlight) >= maxInFlight ||
			(step.Shard != 0 && l.inFlightByShard[step.Shard] >= MaxStepsPerShard) {
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

// prioritize orders the steps. One transfer of leadership runs at a time, and those with the fewest
// failures go first: two that fail must not starve the others. The plan itself is not changed,
// since it is shown to operators.
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

// isLocked reports whether a lock of the step is held.
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
	now := retryState{until: time.Now().Add(rest), delay: rest, failures: before.failures + 1}
	l.retries[key] = now
	// A step may meet one that is in flight elsewhere, or a change that this instance has not
	// applied yet. Such failures are expected; the next try or two succeed.
	level := slog.LevelDebug
	if now.failures == warnAfter {
		level = slog.LevelWarn
	}
	l.log.Log(context.Background(), level, "governor step failed, will be retried", "step", o.step.String(), "error",
		o.err)
}

// view is the present input of a plan, without a memory of earlier steps.
func (g *Governor) view() View {
	v := View{State: g.State(), Now: g.clock.Now(), Health: g.health(), OfflineAfter: g.offlineAfter}
	if v.Applicants = g.applicants.current(v.Now); g.instances != nil {
		v.Unreached = g.instances.Unreached()
	}
	return v
}
