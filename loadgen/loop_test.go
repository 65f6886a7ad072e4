package loadgen

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// bubbleClock is the virtual time of a synctest bubble.
type bubbleClock struct{ base time.Time }

func (c bubbleClock) now() int64 { return int64(time.Since(c.base)) }

func (c bubbleClock) sleepUntil(t int64) { time.Sleep(time.Duration(t - c.now())) }

// stalling is a target that takes a fixed time for an operation, and stands still between two
// moments of the run.
type stalling struct {
	clock    clock
	takes    time.Duration
	from, to time.Duration
	err      error
	busy     *atomic.Int64
	most     *atomic.Int64
}

func (s stalling) Do(ctx context.Context, _ *Recorder) error {
	n := s.busy.Add(1)
	defer s.busy.Add(-1)
	if n > s.most.Load() {
		s.most.Store(n)
	}
	d := s.takes
	if now := time.Duration(s.clock.now()); now >= s.from && now < s.to {
		d += s.to - now
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return s.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

type loopCase struct {
	callers          int
	takes            time.Duration
	from, to         time.Duration // of the stall
	err              error
	rate             float64
	warmUp, duration time.Duration
	budget           uint64
	patience         time.Duration
}

// runLoop gives the merged result of a loop in virtual time, and the most operations that were
// under way at a time.
func runLoop(t *testing.T, x loopCase) (*Result, int64) {
	t.Helper()
	var r *Result
	var busy, most atomic.Int64
	synctest.Test(t, func(t *testing.T) {
		clk := bubbleClock{time.Now()}
		sp := &span{slot: int64(100 * time.Millisecond)}
		sp.from.Store(int64(x.warmUp))
		if x.duration > 0 {
			sp.until = int64(x.warmUp + x.duration)
		}
		l := &loop{clock: clk, span: sp, budget: x.budget, rate: x.rate, patience: x.patience,
			code: func(error) string { return "refused" }}
		s := &Scenario{Name: "test", Series: []string{"operation"}}
		for range x.callers {
			l.callers = append(l.callers, stalling{clk, x.takes, x.from, x.to, x.err, &busy, &most})
			l.recs = append(l.recs, newRecorder(sp, 1, 0))
		}
		l.run(t.Context())
		c := &Env{Config: Config{Scenario: s, Target: &Noop{}}, pool: &connPool{}, recorders: &recorderList{}, span: sp}
		r = gather(c, l, newRecorder(sp, 1, 0))
	})
	return r, most.Load()
}

func near(us float64, want time.Duration) bool {
	return math.Abs(us-float64(want.Microseconds())) <= 0.005*float64(want.Microseconds())
}

// TestOpenLoopCountsWhatAStallHoldsUp: at 100 operations a second, a server that takes 1 ms stands
// still from second 1 to 2. The 100 operations that were to begin in that second waited for 0 to 1
// s each. A closed loop, or an open one that counts from the actual start, sees hardly more than
// one of them.
func TestOpenLoopCountsWhatAStallHoldsUp(t *testing.T) {
	stall := loopCase{callers: 1, takes: time.Millisecond, from: time.Second, to: 2 * time.Second,
		duration: 10 * time.Second, patience: time.Minute}
	stall.rate = 100
	r, _ := runLoop(t, stall)
	if r.Operations != 1000 || len(r.Errors) != 0 {
		t.Fatalf("%d operations, errors %v", r.Operations, r.Errors)
	}
	s, naive := r.Series[0], r.Series[1]
	// A hundred were held up by the second, and ten more by the backlog behind them: 11 % of all.
	if !near(s.MaxUS, 1001*time.Millisecond) || !near(s.P50US, time.Millisecond) {
		t.Errorf("max %v us and p50 %v us, want 1001 ms and 1 ms", s.MaxUS, s.P50US)
	}
	if p95 := s.At(95); p95 < 400*time.Millisecond || p95 > 650*time.Millisecond {
		t.Errorf("p95 is %v: half of the tenth that was held up waited longer than half a second", p95)
	}
	if p95 := naive.At(99); p95 > 2*time.Millisecond || !near(naive.MaxUS, 1001*time.Millisecond) {
		t.Errorf("from the actual start, p99 is %v and the maximum %v us", p95, naive.MaxUS)
	}
	if want := 100.0; math.Abs(r.Rate-want) > 0.1 {
		t.Errorf("rate %v, want %v", r.Rate, want)
	}

	stall.rate = 0
	r, _ = runLoop(t, stall)
	if p99 := r.Series[0].At(99.9); p99 > 2*time.Millisecond || r.Operations != 9000 {
		t.Errorf("the closed loop's p99.9 is %v over %d operations", p99, r.Operations)
	}
}

// TestOpenLoopWithFreeCallers: with enough callers nothing waits for another operation, only for
// the server.
func TestOpenLoopWithFreeCallers(t *testing.T) {
	r, most := runLoop(t, loopCase{callers: 50, takes: 100 * time.Millisecond, rate: 200, duration: 5 * time.Second, patience: time.Minute})
	if r.Operations != 1000 || !near(r.Series[0].MaxUS, 100*time.Millisecond) || most < 20 || most > 21 {
		t.Errorf("%d operations of at most %v us, %d at a time", r.Operations, r.Series[0].MaxUS, most)
	}
}

// TestOpenLoopBeyondCapacity: at twice what the server can do, all operations that were to begin
// are done in the end, if the patience is long enough, and the rate is the server's.
func TestOpenLoopBeyondCapacity(t *testing.T) {
	over := loopCase{callers: 1, takes: 10 * time.Millisecond, rate: 200, duration: 5 * time.Second, patience: time.Minute}
	r, _ := runLoop(t, over)
	if r.Operations != 1000 || math.Abs(r.Rate-100) > 1 || !near(r.Series[0].MaxUS, 5005*time.Millisecond) {
		t.Errorf("%d operations at %v/s, the last after %v us", r.Operations, r.Rate, r.Series[0].MaxUS)
	}
	over.patience = time.Second
	r, _ = runLoop(t, over)
	if lost := r.Errors["not started"] + r.Errors["unanswered"]; r.Operations < 599 || r.Operations > 600 ||
		r.Operations+lost != 1000 || lost != r.ErrorCount() {
		t.Errorf("%d operations and errors %v, want 1000 together", r.Operations, r.Errors)
	}
}

func TestClosedLoop(t *testing.T) {
	r, most := runLoop(t, loopCase{callers: 4, takes: 10 * time.Millisecond, warmUp: time.Second,
		duration: 2 * time.Second, patience: time.Second})
	// The operations that end as the warm-up does count.
	if r.Operations != 4*201 || most != 4 || len(r.Errors) != 0 || r.ElapsedMS != 2000 {
		t.Errorf("%d operations in %v ms, %d at a time, errors %v", r.Operations, r.ElapsedMS, most, r.Errors)
	}
	for i, n := range r.Throughput.Operations[1:20] {
		if n != 40 {
			t.Errorf("slot %d has %d operations, want 40", i+1, n)
		}
	}
	r, _ = runLoop(t, loopCase{callers: 7, takes: time.Millisecond, budget: 100})
	if r.Operations != 100 {
		t.Errorf("%d operations, want 100", r.Operations)
	}
	r, most = runLoop(t, loopCase{callers: 7, takes: time.Millisecond, budget: 3})
	if r.Operations != 3 || most != 3 {
		t.Errorf("%d operations by %d callers, want 3 by 3", r.Operations, most)
	}
	r, _ = runLoop(t, loopCase{callers: 2, rate: 10, takes: time.Millisecond, budget: 15})
	if r.Operations != 15 {
		t.Errorf("%d operations, want 15", r.Operations)
	}
}

// TestUnanswered: what does not end within the patience is an error, and no latency.
func TestUnanswered(t *testing.T) {
	r, _ := runLoop(t, loopCase{callers: 3, takes: time.Hour, duration: time.Second, patience: time.Second})
	if r.Operations != 0 || r.Errors["unanswered"] != 3 || r.ErrorCount() != 3 {
		t.Errorf("%d operations, errors %v", r.Operations, r.Errors)
	}
}

// TestFailures: errors are counted by code, and slow a caller down to a thousand a second.
func TestFailures(t *testing.T) {
	r, _ := runLoop(t, loopCase{callers: 1, err: errors.New("no"), duration: time.Second, patience: time.Second})
	if n := r.Errors["refused"]; r.Operations != 0 || n != r.ErrorCount() || n < 900 || n > 1000 {
		t.Errorf("%d operations, errors %v", r.Operations, r.Errors)
	}
}

// TestNothingPerOperation: the loop, the recorder and the choice of names take no memory in the
// steady state. What does is a name, where a program would make one for each call.
func TestNothingPerOperation(t *testing.T) {
	for name, made := range map[string]float64{"lock-pairs": 1, "contended-lock": 0, "semaphore": 0, "describe-strict": 1, "mixed": 1} {
		cfg := Config{Target: &Noop{}, Callers: 1, Keys: 100, Skew: 1, Connections: 1}
		if name == "mixed" {
			cfg.Scenario = newMixed([]mixedPart{{scenario: lockPairs, weight: 1}, {scenario: contendedLock, weight: 1}})
		} else {
			cfg.Scenario, _ = Find(name)
		}
		clk := wallClock{time.Now()}
		sp := &span{slot: int64(time.Hour)}
		c := &Env{Config: cfg, pool: &connPool{}, recorders: &recorderList{}, clock: clk, span: sp}
		w, err := cfg.Scenario.Build(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		rec := newRecorder(sp, len(cfg.Scenario.Series), cfg.Scenario.Operation)
		for _, rate := range []float64{0, maxRate} {
			l := &loop{clock: clk, span: sp, callers: w.Callers(), recs: []*Recorder{rec}, code: cfg.Target.Code, rate: rate}
			const many = 1000
			round := func() {
				if l.rate == 0 {
					l.runClosed(t.Context(), l.callers[0], rec, many)
					return
				}
				tickets := make(chan int64, many)
				for range many {
					tickets <- clk.now()
				}
				close(tickets)
				l.runOpen(t.Context(), l.callers[0], rec, tickets)
			}
			round()
			// What is left is a histogram's kilobyte for an octave not seen before, and whatever
			// else goes on in this process.
			if n := testing.AllocsPerRun(5, round); n > many*made+many/10 {
				t.Errorf("%s allocates %v times in %d operations (rate %v)", name, n, many, rate)
			}
		}
		if err := w.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// BenchmarkOwnCost measures what the load generator itself takes for an operation, without a client
// and a server.
func BenchmarkOwnCost(b *testing.B) {
	for _, name := range []string{"lock-pairs", "contended-lock", "semaphore", "describe-strict", "mixed"} {
		b.Run(name, func(b *testing.B) {
			s, err := Find(name)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			if _, err := Run(b.Context(), Config{Scenario: s, Target: &Noop{}, Operations: uint64(b.N)}); err != nil {
				b.Fatal(err)
			}
		})
	}
}
