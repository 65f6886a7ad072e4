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
	running.Go(func() { g.listen(ctx) })

	l := loop{
		Governor: g,
		running:  &running,
		outcomes: make(chan outcome, allSteps), // a slot for each step under way: none blocks when the loop has ended
		underway: make(map[stepKey]bool),
		lanes:    make(map[stepKey]bool),
		shards:   make(map[uint64]int),
	}
	l.forget()
	for ctx.Err() == nil {
		woken := g.turn.wait()
		pause := l.round(ctx)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-woken:
		case <-timer.C:
		case o := <-l.outcomes:
			l.finished(o)
		}
		timer.Stop()
	}
}

// loop is the state of Run, owned by its goroutine.
type loop struct {
	*Governor
	running  *sync.WaitGroup
	outcomes chan outcome
	underway map[stepKey]bool
	lanes    map[stepKey]bool // of those under way
	shards   map[uint64]int   // how many are under way by shard
	held     map[stepKey]hold // failed steps
	progress *Progress
}

// allSteps bounds the steps under way in all.
const allSteps = 1024

// hold is how long a failed step rests.
type hold struct {
	until time.Time
	pause time.Duration
	tries int // in a row that failed
	fails int // of these, those that were not to be expected
}

// holdKept is how long failures of a step are remembered that is not tried: its try may take twice
// StepTimeout, and so may that of another one in its lane.
const holdKept = 4 * StepTimeout

// warnAfter is how many times a step fails before that is worth a warning.
const warnAfter = 3

type outcome struct {
	step         Step
	began, ended time.Duration
	answer       Answer
	err          error
}

// idle is the longest pause between two looks. Everything that matters wakes the loop before; it only bounds what a clock that was stepped by hand, or a
// leadership that was gained in silence, can cost.
const idle = time.Second

// forget drops what is remembered while another governor leads. A step that ends later is noted all the same: what was done stays done.
func (l *loop) forget() {
	l.progress = NewProgress()
	l.held = make(map[stepKey]hold)
}

// round starts what can be started and returns how long there is nothing to do if nothing happens.
func (l *loop) round(ctx context.Context) time.Duration {
	for len(l.outcomes) > 0 {
		l.finished(<-l.outcomes)
	}
	if !l.meta.Leading() {
		l.forget()
		return idle
	}
	// What nobody plans any more is forgotten.
	maps.DeleteFunc(l.held, func(k stepKey, h hold) bool { return !l.underway[k] && time.Since(h.until) > holdKept })
	v := l.view()
	v.Progress = l.progress
	l.progress.Update(v)
	p, now := newPlan(v), v.Now
	l.last.Store(p)
	l.made.wake()
	pause := idle
	if slices.ContainsFunc(p.waits, func(w Wait) bool { return w.Kind != Outside }) {
		pause = Backoff // time passes, and how far a replica has caught up wakes nobody
	}
	for _, step := range l.inTurn(p.steps) {
		key := step.key()
		if l.underway[key] || l.occupied(&step) || len(l.underway) >= allSteps || (step.Shard != 0 && l.shards[step.Shard] >= MaxSteps) {
			continue
		}
		if rest := time.Until(l.held[key].until); rest > 0 {
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

// inTurn is the order in which steps are tried. Of the transfers, which go one after the other,
// those come first that have failed least: two that fail must not keep the others from their turn.
// The plan is left as it is: it is shown.
func (l *loop) inTurn(plan []Step) []Step {
	rank := func(s *Step) int {
		if s.Kind != TransferMaster {
			return 0
		}
		return 1 + l.held[s.key()].tries
	}
	steps := slices.Clone(plan)
	slices.SortStableFunc(steps, func(a, b Step) int { return cmp.Compare(rank(&a), rank(&b)) })
	return steps
}

func (l *loop) start(ctx context.Context, step Step) {
	l.underway[step.key()] = true
	l.shards[step.Shard]++
	for _, lane := range step.lanes() {
		l.lanes[lane] = lane != stepKey{}
	}
	l.running.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, step.limit())
		defer cancel()
		o := outcome{step: step, began: l.clock.Now()}
		o.answer, o.err = l.carryOut(ctx, &step)
		o.ended = l.clock.Now()
		l.outcomes <- o
	})
}

// occupied says that a lane of the step is in use.
func (l *loop) occupied(s *Step) bool {
	for _, lane := range s.lanes() {
		if l.lanes[lane] {
			return true
		}
	}
	return false
}

func (l *loop) finished(o outcome) {
	key := o.step.key()
	delete(l.underway, key)
	for _, lane := range o.step.lanes() {
		delete(l.lanes, lane)
	}
	if l.shards[o.step.Shard]--; l.shards[o.step.Shard] == 0 {
		delete(l.shards, o.step.Shard)
	}
	before := l.held[key]
	if o.err == nil {
		l.taken.Add(1)
		delete(l.held, key)
		l.log.Debug("governor step done", "step", o.step.String(), "took", o.ended-o.began)
		l.progress.Done(&o.step, o.began, o.ended, o.answer)
		return
	}
	l.failed.Add(1)
	rest := min(max(Backoff, 2*before.pause), MaxBackoff)
	now := hold{until: time.Now().Add(rest), pause: rest, tries: before.tries + 1, fails: before.fails}
	if !errors.Is(o.err, ErrLater) {
		now.fails++
	}
	l.held[key] = now
	// A step may meet one that is under way already, or a change that this instance has not heard
	// of yet: that is expected, and over with the next try or two.
	level := slog.LevelDebug
	if now.fails == warnAfter && before.fails < warnAfter {
		level = slog.LevelWarn
	}
	l.log.Log(context.Background(), level, "governor step failed, will be retried", "step", o.step.String(), "error", o.err)
}

// view is what there is to see now, without a memory of what was done.
func (g *Governor) view() View {
	return View{State: g.State(), Now: g.clock.Now(), Health: g.health(), Silence: g.silence}
}
