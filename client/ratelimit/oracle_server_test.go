package ratelimit

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// serverWorld is an oracleWorld whose programs are sessions of a real server, in real time.
type serverWorld struct {
	*oracleWorld
	began time.Time
	ctx   context.Context
	node  *client.Node
	real  []*serverProgram
}

// serverProgram does what a program of the oracle does in virtual time.
type serverProgram struct {
	*oracleProgram
	limiters []*Limiter
	stop     func() // ends its calls, and returns when they have

	mu   sync.Mutex
	list []serverCall
}

// serverCall is one that was admitted, between two times.
type serverCall struct {
	from, to time.Duration
	amount   uint64
}

func newServerWorld(t *testing.T, seed uint64) *serverWorld {
	w := &serverWorld{oracleWorld: newOracleWorld(t, seed, 200), began: time.Now(), ctx: t.Context()}
	srv := servertest.Start(t, servertest.RealTime())
	session := func() *client.Session {
		c, err := client.Open(w.ctx, client.Config{Endpoints: []string{srv.Addr()}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		s, err := c.Session(w.ctx, "/default", client.Timeout(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	maker := session()
	w.node = maker.Node()
	w.tree.Resources("", func(path string, _ uint64, c *protocol.LimitConfig) bool {
		if _, err := Create(w.ctx, maker, path, configOf(c)); err != nil {
			t.Fatal(err)
		}
		return true
	})
	for _, p := range w.programs {
		x := &serverProgram{oracleProgram: p, stop: func() {}}
		s := session()
		for _, leaf := range p.q.leaves {
			l, err := JoinSession(w.ctx, s, leaf.path)
			if err != nil {
				t.Fatal(err)
			}
			x.limiters = append(x.limiters, l)
		}
		w.real = append(w.real, x)
	}
	return w
}

// begin has a program make other calls.
func (w *serverWorld) begin(p *serverProgram) {
	p.stop()
	w.change(p.oracleProgram)
	ctx, cancel := context.WithCancel(w.ctx)
	q := *p.q
	var calls sync.WaitGroup
	calls.Go(func() {
		if q.waits {
			w.waitForCalls(ctx, p, &q, &calls)
		} else {
			w.allowCalls(ctx, p, &q)
		}
	})
	p.stop = func() { cancel(); calls.Wait() }
}

// pace is when the next call of a caller comes.
func (q *simCaller) pace(ctx context.Context, next *time.Time, without time.Duration) bool {
	gap := without
	if q.demand > 0 {
		gap = time.Duration(float64(q.amount) / q.demand * 1e9)
	}
	*next = next.Add(gap)
	if late := time.Since(*next); late > time.Second { // what a busy machine did not do is not made up for
		*next = next.Add(late)
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(time.Until(*next)):
		return true
	}
}

func (w *serverWorld) allowCalls(ctx context.Context, p *serverProgram, q *simCaller) {
	for next := time.Now(); ; {
		from := time.Since(w.began)
		if p.limiters[0].Allow(q.amount / 1000) {
			p.admitted(w, from, q.amount)
			if q.demand == 0 && ctx.Err() == nil {
				next = time.Now()
				continue
			}
		}
		if !q.pace(ctx, &next, 2*time.Millisecond) {
			return
		}
	}
}

func (w *serverWorld) waitForCalls(ctx context.Context, p *serverProgram, q *simCaller, calls *sync.WaitGroup) {
	wait := p.limiters[0].Wait
	if len(p.limiters) > 1 {
		wait = All(p.limiters...).Wait
	}
	waiting := make(chan struct{}, cmp.Or(q.most, 3))
	for next := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case waiting <- struct{}{}:
		}
		calls.Go(func() {
			defer func() { <-waiting }()
			ctx := ctx
			if q.patience > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, time.Duration(q.patience*1e6))
				defer cancel()
			}
			from := time.Since(w.began)
			if err := wait(ctx, q.amount/1000); err == nil {
				p.admitted(w, from, q.amount)
			} else if ctx.Err() == nil {
				w.t.Errorf("session %d: %v", p.session, err)
			}
		})
		if !q.pace(ctx, &next, 0) {
			return
		}
	}
}

func (p *serverProgram) admitted(w *serverWorld, from time.Duration, amount uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = append(p.list, serverCall{from, time.Since(w.began), amount})
}

// look notes what all programs have had by now.
func (w *serverWorld) look() time.Time {
	for _, p := range w.real {
		p.mu.Lock()
		p.got = 0
		for _, c := range p.list {
			p.got += float64(c.amount) * float64(len(p.limiters))
		}
		p.mu.Unlock()
	}
	return time.Now()
}

// run is that of the virtual time.
func (w *serverWorld) run(phases int, out oracleFigures, log func(string, ...any)) {
	for phase := range phases {
		for _, p := range w.real {
			if p.under = false; phase == 0 || w.r.IntN(2) == 0 {
				w.begin(p)
			}
		}
		w.pass(time.Second)
		shares := w.shares()
		from := w.look()
		began, had := from, make([]float64, len(w.programs))
		for i, p := range w.programs {
			had[i] = p.got
		}
		for range 3 {
			for _, p := range w.programs {
				p.before = p.got
			}
			w.pass(time.Second)
			at := w.look()
			for i, p := range w.programs {
				w.compare(p, shares[i]*at.Sub(from).Seconds(), out, log)
			}
			from = at
		}
		for i, p := range w.programs {
			if due := shares[i] * from.Sub(began).Seconds() / float64(p.q.amount); due >= fewest && p.q.waits && p.got == had[i] {
				say := w.t.Logf // a machine that is busy may not run a program
				if form.Is(form.Long) {
					say = w.t.Errorf
				}
				say("seed %d: session %d, with calls of %d for %d leaves, had none of %.0f that were due\n%s",
					w.seed, p.session, p.q.amount, len(p.q.leaves), due, w.status())
			}
		}
	}
	for _, p := range w.real {
		p.stop()
	}
	w.checkPromise()
}

// fewest is how many calls have to be due to a program that is to have had one.
const fewest = 5

// status is what the server knows, for a failure.
func (w *serverWorld) status() string {
	s, err := Describe(w.ctx, w.node, "api", 100)
	return fmt.Sprintf("%+v %v", s, err)
}

// pass is a time in which only the programs do something.
func (w *serverWorld) pass(d time.Duration) {
	select {
	case <-w.ctx.Done():
	case <-time.After(d):
	}
}

// checkPromise fails if in any window more was admitted for certain than a resource allows. A call that began and
// ended in a window was admitted in it.
func (w *serverWorld) checkPromise() {
	end := time.Since(w.began)
	for path, m := range w.meters {
		for _, window := range []time.Duration{200 * time.Millisecond, time.Second, end} {
			step := max(window/20, 1)
			sums := make([]float64, end/step+2) // of windows that begin at each step, as differences
			for _, p := range w.real {
				for _, l := range p.q.leaves {
					if l.path != path && (len(l.path) <= len(path) || l.path[:len(path)+1] != path+"/") {
						continue
					}
					for _, c := range p.list {
						first := (max(c.to-window, 0) + step - 1) / step
						if last := c.from / step; first <= last {
							sums[first] += float64(c.amount)
							sums[last+1] -= float64(c.amount)
						}
					}
				}
			}
			most := m.burst + m.rate*(float64(window)/1e6+1) + 1000
			for i, sum := 0, 0.; i < len(sums); i++ {
				if sum += sums[i]; sum > most {
					w.t.Fatalf("seed %d: %.0f thousandths of %s are admitted within %v from %v on, and at most %.0f may be",
						w.seed, sum, path, window, time.Duration(i)*step, most)
				}
			}
		}
	}
}

// TestRandomOracleOnServers is the random oracle with real servers: what their programs get, and never more than
// any resource allows.
func TestRandomOracleOnServers(t *testing.T) {
	form.SkipUntil(t, form.Full, "programs that call for seconds, one tree after the other")
	figures := oracleFigures{}
	trees, log := cmp.Or(*oracleTrees, form.Of(3, 30)), (func(string, ...any))(nil)
	first := uint64(1)
	if *oracleSeed > 0 {
		first, trees, log = *oracleSeed, 1, t.Logf
	}
	for seed := range uint64(trees) {
		newServerWorld(t, first+seed).run(2, figures, log)
	}
	t.Logf("%d trees\n%s", trees, figures)
}
