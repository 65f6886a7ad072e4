package driver

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/client/internal/sessionstate"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

var seed = flag.Uint64("seed", 0, "play this run of TestModel alone")

// modelRun is a program with one session and leases of two names, on a machine whose clocks go apart,
// and a server that is away at times. Whatever the program looks at, and in whatever order, is what
// the server has.
type modelRun struct {
	t       *testing.T
	rng     *rand.Rand
	machine *modelMachine
	server  *modelServer
	d       *Driver
	s       *Session
	ctx     context.Context // of the session
	leases  []*modelLease
	calls   []*modelCall
	lens    string        // the one thing that the program looks at; empty: at everything
	ran     time.Duration // for how long timers have run since the last other step
	stopped atomic.Int32
	trace   []string
	counts  map[string]int
}

// modelLease is a lease, and everything of it that the program has in its hands.
type modelLease struct {
	*Lease
	name      string
	contexts  []context.Context
	endings   []<-chan struct{}
	preempts  []<-chan struct{}
	preempted bool
	released  bool  // it was asked for
	late      bool  // an extension was answered late: it counts from when it was sent
	lost      error // what a look has said
	ends      atomic.Int32
}

// Over is why the lease is over, without a look at the clocks.
func (l *modelLease) Over() error {
	d := l.session().d
	d.mu.Lock()
	defer d.mu.Unlock()
	return l.Lease.Over()
}

// modelCall is a call on a goroutine of its own.
type modelCall struct {
	what     string
	returned atomic.Bool
	result   core.Result
}

// err is the call's error, if it has returned.
func (x *modelCall) err() error {
	if x.returned.Load() {
		return x.result.Err
	}
	return nil
}

func (r *modelRun) fail(format string, args ...any) {
	r.t.Helper()
	r.t.Fatalf("%s\nafter %v", fmt.Sprintf(format, args...), r.trace)
}

func (r *modelRun) call(what string, f func() core.Result) *modelCall {
	x := &modelCall{what: what}
	r.calls = append(r.calls, x)
	go func() {
		x.result = f()
		x.returned.Store(true)
	}()
	synctest.Wait()
	return x
}

func (r *modelRun) upTo(most time.Duration) time.Duration {
	return time.Duration(1 + r.rng.Int64N(int64(most)))
}

// mostly is below the first, and else below the second, which most sessions do not outlive.
func (r *modelRun) mostly(short, long time.Duration) time.Duration {
	if r.rng.IntN(5) == 0 {
		return r.upTo(long)
	}
	return r.upTo(short)
}

// step does one thing. Time passes in the first cases alone.
func (r *modelRun) step() {
	m, ran := r.machine, r.ran
	r.ran = 0
	time.Sleep(time.Microsecond) // no two things happen at one moment of the clock
	disturb := func(f func()) {
		m.mu.Lock()
		f()
		m.mu.Unlock()
		m.disturbed = m.real()
	}
	var what string
	switch n := r.rng.IntN(30); {
	case n < 10:
		d := r.upTo(modelTimeout / 4)
		what = fmt.Sprint("run ", d)
		time.Sleep(d)
		r.ran = ran + d
	case n < 12:
		d := r.mostly(modelTimeout/5, modelTimeout*3/2)
		if what = fmt.Sprint("sleep ", d); r.rng.IntN(2) == 0 {
			what = fmt.Sprint("stop ", d)
			disturb(func() { m.stood += d })
			break
		}
		disturb(func() { m.slept += d })
	case n < 13:
		d := modelTimeout/2 + 100*time.Millisecond + r.mostly(modelTimeout/8, modelTimeout)
		what = fmt.Sprint("sleep unseen ", d)
		disturb(func() { m.unseen += d })
		m.doubted = m.now()
	case n < 14 && r.lens == "Done": // nobody looks before it is set back by as much as it slept unseen
		what = "-"
	case n < 14:
		d := r.upTo(2*modelTimeout) - modelTimeout
		what = fmt.Sprint("set the time of day ", d)
		disturb(func() { m.set += d })
		if d > 0 { // nobody can tell it from a sleep
			m.wrongForward, m.doubted = true, m.now()
		}
	case n < 16:
		what = "away"
		r.server.reach(true)
		disturb(func() {})
	case n < 19:
		what = "back"
		r.server.reach(false)
		disturb(func() {})
	case n < 23:
		what = r.acquire()
	case n < 27:
		what = r.extend()
	case n < 28:
		what = r.preempt()
	default:
		what = r.release()
	}
	r.trace = append(r.trace, what)
	synctest.Wait()
}

func (r *modelRun) acquire() string {
	name := []string{"a", "b"}[r.rng.IntN(2)]
	o := AcquireOptions{Count: 1, Timeout: protocol.Forever, Turn: core.Now}
	if r.rng.IntN(3) > 0 {
		o.Options = &protocol.AcquireOptions{Hold: r.hold(), Flags: protocol.KnowsBounds}
	}
	l := &modelLease{Lease: new(Lease), name: name}
	x := r.call("acquire "+name, func() core.Result { return r.s.Acquire(context.Background(), name, o, l.Lease, nil) })
	if x.returned.Load() && x.result.Err == nil {
		r.counts["acquired"]++
		r.leases = append(r.leases, l)
		l.Observe(func(error) { l.ends.Add(1) })
	}
	return fmt.Sprintf("acquire %s %v: %v", name, o.Options, x.err())
}

func (r *modelRun) hold() uint64 { return uint64(500 + r.rng.IntN(4000)) }

// some is a lease that is not over.
func (r *modelRun) some() *modelLease {
	for _, i := range r.rng.Perm(len(r.leases)) {
		if l := r.leases[i]; l.Over() == nil && !l.released {
			return l
		}
	}
	return nil
}

func (r *modelRun) extend() string {
	l := r.some()
	if l == nil {
		return "-"
	}
	hold := r.hold()
	x := r.call("extend "+l.name, func() core.Result { return l.Change(context.Background(), &core.Change{Hold: hold}) })
	if l.late = l.late || !x.returned.Load(); !l.late && x.result.Err == nil {
		r.counts["extended"]++
	}
	return fmt.Sprintf("extend %s to %d ms: %v", l.name, hold, x.err())
}

func (r *modelRun) preempt() string {
	l := r.some()
	if l == nil || !r.server.has(l.name, l.Token) {
		return "-"
	}
	if r.server.preempt(l.name, uint64(len(r.trace))) {
		r.counts["preempted"]++
		l.preempted = true
	}
	return "preempt " + l.name
}

func (r *modelRun) release() string {
	l := r.some()
	if l == nil {
		return "-"
	}
	x := r.call("release "+l.name, func() core.Result { return l.Release(context.Background()) })
	l.released = errors.Is(l.Over(), core.ErrReleased)
	if failed := x.returned.Load() && x.result.Err != nil; l.released == failed && r.s.Err() == nil {
		r.fail("a release returns %v, and the lease is over with %v", x.result.Err, l.Over())
	}
	return "release " + l.name
}

// lenses are what a program may look at. Done is a channel, which no look has closed.
var lenses = []string{"Held", "Remaining", "ErrNow", "Context", "State", "Lost", "Done"}

// look has the program look at everything that it can see, in any order: the first look after a step
// is alone with what the step has done. A program with a lens looks at one thing alone, all the time.
func (r *modelRun) look() {
	var looks []func()
	add := func(lens string, f func()) {
		if r.lens == "" || r.lens == lens {
			looks = append(looks, f)
		}
	}
	add("Held", func() { r.trusts("Session.Held", r.s.Held()) })
	add("Remaining", func() {
		left := r.s.Remaining()
		if r.trusts("Session.Remaining", left > 0); left > modelTimeout {
			r.fail("the session may be relied on for %s", left)
		}
	})
	add("ErrNow", func() { r.believes("Session.ErrNow", r.s.ErrNow() == nil) })
	add("Context", func() { r.believes("Session.Context", r.ctx.Err() == nil) })
	add("State", func() { r.believes("Session.State", r.s.State() != sessionstate.Expired) })
	add("Done", func() {
		if r.ran > modelTimeout/2 && !isClosed(r.ctx.Done()) && !r.server.lives() {
			r.fail("timers have run for %s, the session is over at the server, and its context is not", r.ran)
		}
	})
	for _, l := range r.leases {
		add("Held", func() {
			if held := l.Held(); held && !r.server.has(l.name, l.Token) {
				r.fail("Lease.Held of %s: the server has given it away", l.name)
			}
		})
		add("Lost", func() { r.hasOrDoubts("Lease.Lost", l, l.Lost() == nil) })
		if r.rng.IntN(4) == 0 {
			add(r.lens, func() { l.contexts = append(l.contexts, l.Context()) })
		}
		for _, ctx := range l.contexts {
			add("Context", func() { r.hasOrDoubts("Lease.Context", l, ctx.Err() == nil) })
			add("Done", func() {
				if r.ran > modelTimeout/2 && !isClosed(ctx.Done()) && !r.server.has(l.name, l.Token) && r.answered() {
					r.fail("timers have run for %s, %s is lost at the server, and its context is not over", r.ran, l.name)
				}
			})
		}
		if r.rng.IntN(3) == 0 {
			add(r.lens, func() { l.endings = append(l.endings, r.ending(l)) })
		}
		if r.rng.IntN(3) == 0 {
			add(r.lens, func() { l.preempts = append(l.preempts, l.Preempted()) })
		}
	}
	for _, i := range r.rng.Perm(len(looks)) {
		looks[i]()
	}
	synctest.Wait()
	if r.lens == "" {
		for _, l := range r.leases {
			r.agree(l)
		}
		r.sessionAgrees()
	}
}

// trusts: what may be relied on, the server has.
func (r *modelRun) trusts(what string, held bool) {
	r.t.Helper()
	if held && !r.server.lives() {
		r.fail("%s: the session is over at the server", what)
	}
}

// doubts reports whether the machine has just slept in a way that the clock of leases does not show:
// for a tenth of the timeout the session is asked about, and not over yet.
func (r *modelRun) doubts() bool {
	return r.machine.doubted != 0 && r.machine.now() <= r.machine.doubted+modelTimeout/10
}

func (r *modelRun) believes(what string, alive bool) {
	r.t.Helper()
	r.trusts(what, alive && !r.doubts())
}

func (r *modelRun) hasOrDoubts(what string, l *modelLease, alive bool) {
	r.t.Helper()
	_, _, bounded := l.Ends() // a bound counts every sleep
	if alive && !l.released && !r.server.has(l.name, l.Token) && (bounded && r.server.lives() || !r.doubts()) {
		r.fail("%s of %s: the server has given it away", what, l.name)
	}
}

// ending is the channel of a lease that ends soon. It belongs to the present bound.
func (r *modelRun) ending(l *modelLease) <-chan struct{} {
	c := l.Ending()
	left, hold, ok := r.server.left(l.name)
	if l.released || l.Over() != nil || !ok || !r.server.has(l.name, l.Token) {
		return c
	}
	// A sleep that was not seen before the request was sent counts twice.
	precise := r.machine.doubted == 0 && !r.machine.wrongForward && !l.late
	switch closed := isClosed(c); {
	case closed && left > hold/4 && precise:
		r.fail("%s has %s left of %s, and is said to end soon", l.name, left, hold)
	case !closed && left < hold/8 && r.ran > 200*time.Millisecond:
		r.fail("%s has %s left of %s, and is not said to end soon", l.name, left, hold)
	case closed:
		r.counts["ends soon"]++
	}
	return c
}

// answered reports whether no call is under way: the program knows what the server has.
func (r *modelRun) answered() bool {
	return !slices.ContainsFunc(r.calls, func(x *modelCall) bool { return !x.returned.Load() })
}

// agree: no two looks at one moment contradict each other, and what is over stays so.
func (r *modelRun) agree(l *modelLease) {
	held, lost, over := l.Held(), l.Lost(), l.Over()
	synctest.Wait()
	switch {
	case held && (lost != nil || over != nil || l.released):
		r.fail("%s is held, lost with %v, and over with %v", l.name, lost, over)
	case l.lost != nil && lost != l.lost:
		r.fail("%s is lost with %v, and was with %v", l.name, lost, l.lost)
	case l.released && lost != nil:
		r.fail("%s was released, and is lost with %v", l.name, lost)
	case lost != nil && over != lost:
		r.fail("%s is lost with %v, and over with %v", l.name, lost, over)
	case !held && over == nil && r.server.lives() && r.undisturbed():
		if left, hold, ok := r.server.left(l.name); !ok && r.server.has(l.name, l.Token) || left > hold/8 {
			r.fail("%s is not held, and has %s left of %s at the server, which answers", l.name, left, hold)
		}
	}
	l.lost = lost
	for _, ctx := range l.contexts {
		switch done := isClosed(ctx.Done()); {
		case done != (over != nil) || (ctx.Err() != nil) != done:
			r.fail("%s is over with %v, and its context with %v, %t", l.name, over, ctx.Err(), done)
		case done && context.Cause(ctx) != over && context.Cause(ctx) != r.s.Err():
			r.fail("%s is over with %v, and its context because of %v", l.name, over, context.Cause(ctx))
		}
	}
	ended := errors.Is(lost, core.ErrMaxHold) || r.rng.IntN(3) == 0 && isClosed(r.ending(l))
	for _, c := range l.endings {
		if ended && !isClosed(c) {
			r.fail("%s ends soon, or has ended (%v), and a channel that was given for it is open", l.name, lost)
		}
	}
	for _, c := range append(l.preempts, l.Preempted()) {
		if isClosed(c) != l.preempted && (l.preempted || over == nil) {
			r.fail("%s is preempted: %t, and its channel is closed: %t", l.name, l.preempted, isClosed(c))
		}
	}
	if n := l.ends.Load(); n > 1 || (n == 1) != (over != nil) {
		r.fail("%s is over with %v, and its observer was notified %d times", l.name, over, n)
	}
}

// undisturbed reports whether nothing has disturbed the machine for as long as a session needs.
func (r *modelRun) undisturbed() bool {
	r.server.mu.Lock()
	away := r.server.away
	r.server.mu.Unlock()
	return !away && r.answered() && r.machine.real()-r.machine.disturbed > 2*modelTimeout
}

func (r *modelRun) sessionAgrees() {
	held, err, left := r.s.Held(), r.s.ErrNow(), r.s.Remaining()
	synctest.Wait()
	over := r.s.State() == sessionstate.Expired
	switch {
	case held != (left > 0) || held && err != nil || over != (err != nil) || over != (r.s.Err() != nil):
		r.fail("the session is held: %t, for %s, over: %t, with %v", held, left, over, err)
	case over != isClosed(r.ctx.Done()) || over && context.Cause(r.ctx) != err:
		r.fail("the session is over: %t, and its context with %v", over, context.Cause(r.ctx))
	case over && r.stopped.Load() != 1 || !over && r.stopped.Load() != 0:
		r.fail("the session is over: %t, and that was said %d times", over, r.stopped.Load())
	case !held && r.server.lives() && r.undisturbed():
		r.fail("the session is not held, and the server answers")
	}
}

// saysWhy: a session that ended says why, and nothing that stood still is blamed without having done so
// for long.
func (r *modelRun) saysWhy() {
	l, ok := errors.AsType[*core.Loss](r.s.Err())
	if !ok {
		r.fail("the session ended with %v, which does not say why", r.s.Err())
	}
	r.counts[l.Cause]++
	const least = modelTimeout * 3 / 10
	if l.Cause == "process_stood_still" && r.machine.stood < least || l.Cause == "machine_slept" && r.machine.slept < least {
		r.fail("%v: the process stood still for %s, and the machine slept for %s", l, r.machine.stood, r.machine.slept)
	}
}

// end ends the run: every call has an outcome.
func (r *modelRun) end() {
	r.server.reach(false)
	time.Sleep(2 * modelTimeout)
	synctest.Wait()
	r.lens = ""
	r.look()
	r.d.Close()
	synctest.Wait()
	for _, x := range r.calls {
		if !x.returned.Load() {
			r.fail("%s has not returned", x.what)
		}
	}
	for _, l := range r.leases {
		if l.Over() == nil || l.ends.Load() != 1 || l.Held() {
			r.fail("%s is held by a client that is closed, or its observer was notified %d times", l.name, l.ends.Load())
		}
	}
}

// TestModel: what a program sees of its session and its leases, under random extensions, steps of each
// clock and outages. It looks after each single step.
func TestModel(t *testing.T) {
	first, runs := uint64(1), uint64(form.Of(1500, 50_000))
	if *seed != 0 {
		first, runs = *seed, 1
	}
	counts := map[string]int{}
	for n := first; n < first+runs && !t.Failed(); n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("go test ./client/internal/driver -run 'TestModel$' -seed %d", n)
				}
			}()
			defer emptyPools() // a channel of a bubble is of no use outside
			emptyPools()
			synctest.Test(t, func(t *testing.T) { playModel(t, n, counts) })
		})
	}
	t.Log(counts)
	for _, what := range []string{
		"acquired", "extended", "preempted", "ends soon", "lost at its bound", "session over",
		"process_stood_still", "machine_slept", "unreachable",
	} {
		if counts[what] < 30 && *seed == 0 && !t.Failed() {
			t.Errorf("%s happened %d times: the runs do not try it", what, counts[what])
		}
	}
}

func emptyPools() {
	acquires = sync.Pool{New: acquires.New}
	releases = sync.Pool{New: releases.New}
}

func playModel(t *testing.T, seed uint64, counts map[string]int) {
	m := &modelMachine{began: time.Now()}
	srv := &modelServer{machine: m, leases: map[string]*modelHold{}}
	r := &modelRun{t: t, rng: rand.New(rand.NewPCG(seed, 0)), machine: m, server: srv, counts: counts}
	r.d = New(Config{Endpoints: []string{"1"}, Name: "test", Dial: srv.dial, now: m.now, wall: m.wall, asleep: m.asleep})
	defer r.d.Close()
	r.s = r.d.NewSession()
	r.s.Path, r.s.Timeout = "/n", modelTimeout
	r.s.OnStopped = func(error) { r.stopped.Add(1) }
	if x := r.d.ConnectWith(t.Context(), r.s); x.Err != nil {
		t.Fatal(x.Err)
	}
	r.ctx = r.s.Context()
	if r.rng.IntN(2) == 0 {
		r.lens = lenses[r.rng.IntN(len(lenses))]
	}
	for range 80 {
		r.step()
		r.look()
	}
	for _, l := range r.leases {
		if errors.Is(l.lost, core.ErrMaxHold) {
			counts["lost at its bound"]++
		}
	}
	if r.s.Err() != nil {
		counts["session over"]++
		r.saysWhy()
	}
	r.end()
}
