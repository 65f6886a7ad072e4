// How does a load run from its beginning to its end?

package loadgen

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"
)

// Run puts the load on its target and returns the result. When ctx ends first, the result covers
// the run until then, and says so. Errors are of the preparation, or of the server's admin
// endpoint; those of operations are in the result.
func Run(ctx context.Context, cfg Config) (_ *Result, err error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	cfg.Patience = cmp.Or(cfg.Patience, 10*time.Second)
	clk := wallClock{time.Now()}
	sp := &span{slot: int64(slotWidth(cfg.Duration))}
	sp.from.Store(math.MaxInt64)
	c := &Env{
		Config: cfg, prefix: "load/" + strconv.FormatUint(rand.Uint64(), 36) + "/", pool: &connPool{},
		recorders: &recorderList{}, clock: clk, span: sp,
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		c.pool.close(end)
	}()

	var samples struct{ before, begin, end sample }
	sampled := cfg.Metrics != ""
	if sampled {
		if err := collectGarbage(ctx, cfg.Metrics); err != nil {
			return nil, err
		}
		if samples.before, err = takeSample(ctx, cfg.Metrics); err != nil {
			return nil, err
		}
	}

	var show progress
	show.begin(&cfg)
	defer show.end()
	w, err := cfg.Scenario.Build(ctx, c)
	if err != nil {
		return nil, err
	}
	defer closeWorkload(ctx, w)
	if p, ok := w.(pacer); ok && cfg.Rate == 0 {
		cfg.Rate = p.Rate()
	}
	if sampled {
		if err := collectGarbage(ctx, cfg.Metrics); err != nil {
			return nil, err
		}
	}

	l := &loop{
		clock: clk, span: sp, callers: w.Callers(), budget: cfg.Operations, rate: cfg.Rate, patience: cfg.Patience,
		code: cfg.Target.Code,
	}
	if len(l.callers) == 0 && cfg.Duration == 0 {
		return nil, fmt.Errorf("%s has no operations to count; give a duration", cfg.Scenario.Name)
	}
	for range l.callers {
		l.recs = append(l.recs, newRecorder(sp, len(cfg.Scenario.Series), cfg.Scenario.Operation))
	}
	// What is measured begins in the middle of the loop, when the warm-up is over.
	var cpuBegin time.Duration
	began := make(chan error, 1)
	atBegin := func() error {
		cpuBegin = cpuTime()
		if !sampled {
			return nil
		}
		var err error
		samples.begin, err = takeSample(ctx, cfg.Metrics)
		return err
	}
	if cfg.WarmUp == 0 {
		began <- atBegin()
	}
	l.begin = clk.now()
	from := l.begin + int64(cfg.WarmUp)
	if cfg.Duration > 0 {
		sp.until = from + int64(cfg.Duration)
	}
	sp.from.Store(from)
	show.run(clk, sp, l.recs)
	if cfg.WarmUp > 0 {
		timer := time.AfterFunc(cfg.WarmUp, func() { began <- atBegin() })
		defer timer.Stop()
	}
	started := time.Now().Add(cfg.WarmUp)
	l.run(ctx)
	interrupted := ctx.Err() != nil
	measured := false
	select {
	case err := <-began:
		if err != nil && !interrupted {
			return nil, err
		}
		measured = err == nil
	default: // ended in the warm-up, or so soon after it that the look at its end is still being taken
	}
	var cpu time.Duration
	if measured {
		cpu = cpuTime() - cpuBegin
	}
	if sampled && !interrupted {
		if samples.end, err = takeSample(ctx, cfg.Metrics); err != nil {
			return nil, err
		}
	}

	rest := newRecorder(sp, len(cfg.Scenario.Series), cfg.Scenario.Operation)
	if s, ok := w.(drainer); ok && !interrupted {
		drainCtx, cancel := context.WithTimeout(ctx, cfg.Patience)
		s.Drain(drainCtx, rest)
		cancel()
	}
	r := gather(c, l, rest)
	r.Started, r.Interrupted = started, interrupted
	if measured {
		r.Own.Cores = cpu.Seconds() / max(r.elapsed().Seconds(), 1e-9)
		if r.Operations > 0 {
			r.Own.CPUPerOperationUS = cpu.Seconds() * 1e6 / float64(r.Operations)
		}
		if sampled && !interrupted {
			sessions := c.sessions
			if len(l.callers) > 0 {
				sessions = 0 // with operations, those are the cost
			}
			r.Server = newServerCost(samples.before, samples.begin, samples.end, sessions, r.Operations)
		}
	}
	if r.Operations == 0 && len(l.callers) > 0 && len(r.Errors) == 0 {
		if interrupted {
			return nil, context.Cause(ctx)
		}
		if n := l.done(); n > 0 && n == cfg.Operations {
			return nil, fmt.Errorf("all %d operations ended in the warm-up of %s; give a shorter warm-up, or more operations",
				n, cfg.WarmUp)
		}
		return nil, errors.New("no operation ended in the time that is measured; give a longer duration")
	}
	return r, nil
}

// slotWidth is the width of a step of the throughput over time: a hundred or so make a picture.
func slotWidth(d time.Duration) time.Duration {
	for _, w := range []time.Duration{50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 60000, 600000} {
		if w *= time.Millisecond; d > 0 && d/w <= 120 {
			return w
		}
	}
	if d == 0 {
		return 100 * time.Millisecond
	}
	return time.Hour
}

type progress struct {
	cfg  *Config
	mu   sync.Mutex
	clk  clock
	span *span
	recs []*Recorder
	stop chan struct{}
	done chan struct{}
}

func (p *progress) begin(cfg *Config) {
	p.cfg = cfg
	if cfg.Progress == nil {
		return
	}
	p.stop, p.done = make(chan struct{}), make(chan struct{})
	go p.report()
}

func (p *progress) run(clk clock, sp *span, recs []*Recorder) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clk, p.span, p.recs = clk, sp, recs
}

func (p *progress) end() {
	if p.stop != nil {
		close(p.stop)
		<-p.done
	}
}

func (p *progress) report() {
	defer close(p.done)
	const every, window = 200 * time.Millisecond, 5
	t := time.NewTicker(every)
	defer t.Stop()
	var past [window]struct {
		at int64
		n  uint64
	}
	for i := 0; ; i++ {
		select {
		case <-p.stop:
			return
		case <-t.C:
		}
		p.mu.Lock()
		clk, sp, recs := p.clk, p.span, p.recs
		p.mu.Unlock()
		if sp == nil {
			p.cfg.Progress(Progress{Preparing: true, Duration: p.cfg.Duration})
			i = -1
			continue
		}
		now := clk.now()
		x := Progress{Duration: p.cfg.Duration, WarmingUp: now < sp.from.Load(),
			Elapsed: time.Duration(max(0, now-sp.from.Load()))}
		for _, r := range recs {
			x.Operations += r.done.Load()
			x.Errors += r.failed.Load()
		}
		old := past[i%window]
		if i < window {
			old = past[0]
		}
		if i > 0 && now > old.at {
			x.Rate = float64(x.Operations-old.n) * 1e9 / float64(now-old.at)
		}
		past[i%window].at, past[i%window].n = now, x.Operations
		p.cfg.Progress(x)
	}
}
